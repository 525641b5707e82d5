"""Late events after everything is built: how many, and over how many partitions, decides what a repair costs."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, land
from benchmarks.contenders import DUCKDB, NAIVE, OURS
from benchmarks.data import Events
from benchmarks.judge import Judge
from benchmarks.process import Contestant, Run

NAME = "repair"
BATCH = (NAIVE, DUCKDB)
"""Do everything again, whatever came; measured once, after all late events."""
DAYS = 100
SHARE = 5
COUNTS = (1, 1_000, 100_000)
SPREADS = (1, 10, 100)


def measure(bench: Bench) -> None:
    """Repairs in a row on one warm process, each after a file of late events of its own."""
    events = Events(max(bench.options.events // SHARE, 10_000), DAYS, bench.options.copies)
    place = f"work/{NAME}"
    # Days of so few events have one bucket.
    task = replace(bench.fresh_task(OURS, events, place), buckets=1)
    judge = Judge()
    with Contestant(OURS, task) as ours:
        bench.say(f"{NAME}: {OURS} builds {events.events:,} events of {DAYS} days")
        ours.call("prepare")
        ours.call("update")
        number = 0
        for count, partitions, times in _cases(events, bench.options.runs):
            runs: list[Run] = []
            for _ in range(times):
                land(events.write_late(bench.data, count, partitions, number), task, f"late-{number}.parquet")
                number += 1
                runs.append(bench.told(f"{count:,} over {partitions}", ours.run("update")))
            cells = max(run.value["cells_rewritten"] for run in runs)
            late = "1 late event" if count == 1 else f"{count:,} late events"
            where = "1 partition" if partitions == 1 else f"{partitions} partitions"
            bench.figures.add(f"{NAME}: {late} over {where}", OURS, runs, cells_rewritten=cells)
        judge.judge(OURS, ours.output())
    for name in (name for name in BATCH if name in bench.options.contenders):
        other = bench.task(name, Path(task.sources), place)
        with Contestant(name, other) as contestant:
            contestant.call("prepare")
            contestant.call("rebuild")
            run = bench.told(name, contestant.run("update"))
            judge.judge(name, contestant.output())
        bench.figures.add(f"{NAME}: everything again", name, [run])
        bench.forget(other)
    bench.forget(task)


def _cases(events: Events, runs: int) -> Iterator[tuple[int, int, int]]:
    """Late events, partitions, and how often: the smallest repairs are the quickest and vary most."""
    yield 1, 1, runs + 1
    for count in COUNTS[1:]:
        for partitions in SPREADS:
            if count <= events.events:
                yield count, partitions, 1
