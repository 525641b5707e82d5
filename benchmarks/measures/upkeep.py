"""What upkeep gains: one repair and one read of everything, among many small files and after they were put together."""

from benchmarks.bench import Bench, land
from benchmarks.contenders import OURS
from benchmarks.data import Events
from benchmarks.process import Contestant

NAME = "upkeep"
EVENTS, DAYS = 200_000, 5
BATCHES, LATE = 40, 2_000


def measure(bench: Bench) -> None:
    """Forty batches leave forty files in each cell of raw; then maintenance, then the same again."""
    events = Events(EVENTS, DAYS, bench.options.copies)
    task = bench.fresh_task(OURS, events, f"work/{NAME}")
    bench.say(f"{NAME}: {BATCHES} batches of {LATE:,} events")
    with Contestant(OURS, task) as ours:
        ours.call("prepare")
        ours.call("update")
        for number in range(BATCHES):
            land(events.write_late(bench.data, LATE, DAYS, number), task, f"late-{number}.parquet")
            ours.call("update")
        number = BATCHES
        for when in ("before", "after"):
            repairs, reads = [], []
            for _ in range(bench.options.runs):
                land(events.write_late(bench.data, 1, 1, number), task, f"late-{number}.parquet")
                number += 1
                repairs.append(bench.told(f"repair {when}", ours.run("update")))
                reads.append(bench.told(f"read {when}", ours.run("read_all")))
            sizes = ours.call("table_sizes")
            bench.figures.add(f"{NAME}: one late event, {when}", OURS, repairs, tables=sizes)
            bench.figures.add(f"{NAME}: reading all records, {when}", OURS, reads)
            if when == "before":
                bench.figures.add(f"{NAME}: maintenance", OURS, [bench.told("maintain", ours.run("maintain"))])
    bench.forget(task)
