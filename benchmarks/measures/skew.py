"""Memory and time where one entity owns a fifth of all events."""

from benchmarks.bench import Bench
from benchmarks.contenders import DUCKDB, OURS, POLARS
from benchmarks.data import Events
from benchmarks.judge import Judge

NAME = "skew"
CONTENDERS = (OURS, DUCKDB, POLARS)
SHARE = 5


def measure(bench: Bench) -> None:
    """Whole processes, so that the peak is that of this work alone; beside it the same work without skew."""
    count = max(bench.options.events // SHARE, 1000)
    names = [name for name in CONTENDERS if name in bench.options.contenders]
    for skew in (0.2, 0.0):
        events = Events(count, bench.options.days, bench.options.copies, skew)
        judge = Judge(count)
        tasks = bench.tasks(names, events)
        part = (
            f"{NAME}: one entity owns {skew:.0%} of {count:,} events" if skew else f"{NAME}: {count:,} events, no skew"
        )
        bench.say(part)
        for name, task in tasks.items():
            bench.figures.add(part, name, [bench.rebuilt_cold(name, task, judge)])
