"""What is kept so that the next copy is known to be one, beside the events themselves: bytes for each event."""

from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.contenders import DELTA, DUCKDB, ICEBERG, NAIVE, OURS, POLARS, STREAMING
from benchmarks.data import Events
from benchmarks.process import Contestant

NAME = "state"
SHARE = 5
STATELESS = (NAIVE, DUCKDB, POLARS, DELTA, ICEBERG)
"""They look at the events again."""


def measure(bench: Bench) -> None:
    """Ours keeps facts about cells in its control database, a stream keeps every key."""
    count = max(bench.options.events // SHARE, 1000)
    events = Events(count, bench.options.days, bench.options.copies)
    names = [name for name in (OURS, STREAMING) if name in bench.options.contenders]
    bench.say(f"{NAME}: {count:,} events")
    for name, task in bench.tasks(names, events).items():
        with Contestant(name, task) as contestant:
            contestant.call("clear")
            bench.told(name, contestant.run("rebuild"))
            kept = _control_database(task.home) if name == OURS else contestant.call("state_bytes")["events"]
        bench.figures.tell(NAME, name, bytes_per_event=round(kept / count, 2), events=count)
    for name in (name for name in STATELESS if name in bench.options.contenders):
        bench.figures.tell(NAME, name, bytes_per_event=0, events=count)


def _control_database(home: str) -> int:
    return (Path(home) / "control.db").stat().st_size
