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
LARGE_DAYS, LARGE_BUCKETS = 2, 16
COUNTS = (1, 1_000, 100_000)
SPREADS = (1, 10, 100)


def measure(bench: Bench) -> None:
    """Repairs in a row on one warm process, each after a file of late events of its own."""
    _measure_large_day(bench)
    _measure_many_days(bench)


def _measure_large_day(bench: Bench) -> None:
    """One event into a day of a tenth of all events and 16 buckets: one cell in 16 of its day is rewritten."""
    events = Events(max(bench.options.events // SHARE, 10_000), LARGE_DAYS, bench.options.copies)
    task = replace(bench.fresh_task(OURS, events, f"work/{NAME}"), buckets=LARGE_BUCKETS)
    judge = Judge()
    with Contestant(OURS, task) as ours:
        bench.say(f"{NAME}: {OURS} builds {events.events:,} events of {LARGE_DAYS} days")
        ours.call("prepare")
        ours.call("update")
        sizes = ours.call("table_sizes")
        derived = sum(size["bytes"] for table, size in sizes.items() if table != "raw_events")
        runs: list[Run] = []
        for number in range(bench.options.runs + 1):
            land(events.write_late(bench.data, 1, 1, number), task, f"late-{number}.parquet")
            runs.append(bench.told("1 event, a large day", ours.run("update")))
        judge.judge(OURS, ours.output())
    part = f"{NAME}: 1 late event, a day of {events.events // LARGE_DAYS:,} in {LARGE_BUCKETS} buckets"
    bench.figures.add(part, OURS, runs[1:], day_bytes=derived // LARGE_DAYS)
    bench.forget(task)


def _measure_many_days(bench: Bench) -> None:
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
            # The very first repair warms up; whatever runs once comes after it.
            bench.figures.add(f"{NAME}: {late} over {where}", OURS, runs[1:] or runs, cells_rewritten=cells)
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
