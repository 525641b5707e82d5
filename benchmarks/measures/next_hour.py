"""One more hour of events after everything is built: who can, takes in that hour; the others do everything again."""

from benchmarks.bench import Bench, land
from benchmarks.contenders import DELTA, DUCKDB, ICEBERG, NAIVE, OURS
from benchmarks.data import Events
from benchmarks.judge import Judge
from benchmarks.process import Contestant

NAME = "next_hour"
CONTENDERS = (OURS, NAIVE, DUCKDB, DELTA, ICEBERG)
SHARE = 5
"""The history is a fifth of the other measures' events: building it five times is not what is measured."""


def measure(bench: Bench) -> None:
    """Each contender builds the history first, which also warms it up; the hour alone is timed."""
    events = Events(max(bench.options.events // SHARE, 1000), bench.options.days, bench.options.copies)
    judge = Judge()
    for name in (name for name in CONTENDERS if name in bench.options.contenders):
        task = bench.fresh_task(name, events, f"work/{NAME}")
        bench.say(f"{NAME}: {name} builds {events.events:,} events")
        with Contestant(name, task) as contestant:
            contestant.call("prepare")
            contestant.call("update" if name == OURS else "rebuild")
            records = land(events.write_next_hour(bench.data), task, "next-hour.parquet")
            run = bench.told(name, contestant.run("update"))
            judge.judge(name, contestant.output())
        bench.figures.add(NAME, name, [run], history_events=events.events, records=records)
        bench.forget(task)
