"""Hours of events, one by one, after everything is built: who can takes in the hour, the others do everything again."""

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
    """Each contender builds the history and takes in one hour first, which warms it up; the next hours are timed."""
    events = Events(max(bench.options.events // SHARE, 1000), bench.options.days, bench.options.copies)
    judge = Judge()
    for name in (name for name in CONTENDERS if name in bench.options.contenders):
        with bench.leaving_out(NAME, name):
            _measure_contender(bench, events, judge, name)


def _measure_contender(bench: Bench, events: Events, judge: Judge, name: str) -> None:
    task = bench.fresh_task(name, events, f"work/{NAME}")
    bench.say(f"{NAME}: {name} builds {events.events:,} events")
    with Contestant(name, task) as contestant:
        contestant.call("prepare")
        contestant.call("update" if name == OURS else "rebuild")
        runs = []
        for number in range(bench.options.runs + 1):
            records = land(events.write_hour(bench.data, number), task, f"hour-{number}.parquet")
            runs.append(bench.told(name, contestant.run("update")))
        judge.judge(name, contestant.output())
    bench.figures.add(NAME, name, runs[1:], history_events=events.events, records=records)
    bench.forget(task)
