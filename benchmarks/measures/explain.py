"""What it takes to ask why a row is as it is: whole processes of the command line, whose files are in no cache."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyiceberg.table import Table

from benchmarks.bench import Bench
from benchmarks.contender import Task
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM, deployment
from benchmarks.process import PROJECT, Contestant
from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.platform import Platform
from dedup_platform.settings import ENV_PREFIX
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import load_stream

NAME = "explain"
_PROGRAM = "from dedup_platform.cli import main; main()"


def measure(bench: Bench) -> None:
    """Ask for an event and for a session, by their ids alone and with all that is known of them."""
    task = bench.ingested(bench.events)
    with Contestant(OURS, task) as ours:
        ours.call("update")
    _publish(task)
    for case, words in _cases(task).items():
        seconds = [asked(task, [NAME, *words]) for _ in range(bench.options.runs)]
        bench.say(f"  {NAME}, {case}: {', '.join(f'{each:.1f} s' for each in seconds)}")
        bench.figures.seconds(f"{NAME}: {case}", OURS, seconds)


def _publish(task: Task) -> None:
    settings = deployment(task)
    stream = load_stream(Path(task.home) / f"{STREAM}.yaml")
    Platform(settings, {STREAM: stream}, lambda: spark_session(settings)).publish_changes(STREAM)


def _cases(task: Task) -> Mapping[str, list[str]]:
    """What to ask: an event that came twice, and a session."""
    catalog = Catalog(deployment(task))
    event, session = (_first(catalog.load_table(STREAM, name)) for name in (tables.DUPLICATE_EVENTS, tables.SESSIONS))
    return {
        "event": ["event", STREAM, str(event["event_id"])],
        "event, its entity and its day": [
            *("event", STREAM, str(event["event_id"]), "--entity", str(event["entity_id"])),
            *("--at", f"{event['event_time']:%Y-%m-%d}"),
        ],
        "session": ["session", STREAM, str(session["session_id"])],
    }


def _first(table: Table) -> dict[str, object]:
    [row] = table.scan(limit=1).to_arrow().to_pylist()
    return dict(row)


def asked(task: Task, words: list[str]) -> float:
    """Seconds from the start of a process of the command line to its end, on files that are in no cache."""
    _forget(Path(task.home))
    home, streams = str(task.home), str(Path(task.home) / f"{STREAM}.yaml")
    environment = {f"{ENV_PREFIX}HOME": home, f"{ENV_PREFIX}STREAMS": streams, "PYTHONPATH": str(PROJECT)}
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        env=os.environ | environment,
        check=True,
        capture_output=True,
    )
    return time.monotonic() - started


def _forget(folder: Path) -> None:
    """Take the files of a folder out of the system's cache."""
    for file in filter(Path.is_file, folder.rglob("*")):
        with file.open("rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
