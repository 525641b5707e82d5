"""One late event into histories of growing length: what a repair costs must not grow with what lies behind."""

from dataclasses import replace

from benchmarks.bench import Bench, land
from benchmarks.contenders import OURS
from benchmarks.data import Events
from benchmarks.process import Contestant

NAME = "history"
DAYS = (10, 100, 1_000)
EVENTS_PER_DAY = 1_000


def measure(bench: Bench) -> None:
    """Repairs of one event in one day, on a warm process, after 10, 100 and 1,000 small days."""
    for days in DAYS:
        events = Events(days * EVENTS_PER_DAY, days, bench.options.copies)
        task = replace(bench.fresh_task(OURS, events, f"work/{NAME}"), buckets=1)
        part = f"{NAME}: one late event, {days:,} days before it"
        bench.say(part)
        with Contestant(OURS, task) as ours:
            ours.call("prepare")
            ours.call("update")
            runs = []
            for number in range(bench.options.runs + 1):
                land(events.write_late(bench.data, 1, 1, number), task, f"late-{number}.parquet")
                runs.append(bench.told(OURS, ours.run("update")))
            # The first one compiles what the others find compiled.
            bench.figures.add(part, OURS, runs[1:], tables=ours.call("table_sizes"))
        bench.forget(task)
