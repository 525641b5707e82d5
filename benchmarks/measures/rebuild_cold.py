"""Everything from nothing, cold: from the start of the process to its end."""

from benchmarks.bench import Bench
from benchmarks.contenders import DELTA, DUCKDB, ICEBERG, OURS, POLARS, STREAMING
from benchmarks.judge import Judge
from benchmarks.process import Run

NAME = "rebuild_cold"
CONTENDERS = (OURS, DUCKDB, POLARS, STREAMING, DELTA, ICEBERG)
"""Naive Spark and the plain copy are in the warm measure, and gain nothing here."""
OFTEN = (OURS, DUCKDB)
"""Run as often as warm ones; the others once."""


def measure(bench: Bench) -> None:
    """Rounds of whole processes."""
    names = [name for name in CONTENDERS if name in bench.options.contenders]
    judge = Judge(bench.events.events)
    tasks = bench.tasks(names, bench.events)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(bench.options.runs):
        bench.say(f"{NAME}: run {number + 1} of {bench.options.runs}")
        for name in names if number == 0 else [name for name in OFTEN if name in names]:
            with bench.leaving_out(NAME, name):
                runs[name].append(bench.rebuilt_cold(name, tasks[name], judge))
                bench.figures.add(NAME, name, runs[name])
