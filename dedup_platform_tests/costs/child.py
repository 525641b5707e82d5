"""A process with a Spark of its own, which keeps an event log, that repairs one late event in each of some streams.

python -m dedup_platform_tests.costs.child FOLDER DAYS...

In `FOLDER/DAYS` it takes in and repairs a stream with a history of so many days, and then an event that comes late to
the last of them. It prints one line of JSON for each: when that began and ended (milliseconds since 1970), the data
files that tasks were given to read, what the late event's commits wrote, and the bytes of metadata that they left.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.snapshots import FileChange, changes, head, since
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.platform import Platform
from dedup_platform.recompute import build, tasks
from dedup_platform.recompute.chunks import Chunk
from dedup_platform.recompute.tasks import Step, TaskResult, run_tasks
from dedup_platform.settings import Settings
from dedup_platform.spark.session import spark_session
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch

LAST_DAY = utc("2024-12-01T00:00:00")
NOW = utc("2025-01-01T00:00:00")
NEAR = 3
"""Days of a file of their own, so that their records have the same places whatever history lies before them."""
ENTITIES = 10
EVENTS_A_DAY = 2


def main(folder: Path, histories: list[int]) -> None:
    """Prepare and repair each history in turn, on one Spark."""
    log = folder / "log"
    log.mkdir()
    settings = Settings(
        home=folder / "spark",
        spark_master="local[2]",
        spark_conf={
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        },
    )
    spark = spark_session(settings)
    for days in histories:
        home = folder / f"{days}"
        home.mkdir()
        stream = make_stream(home, attributes={"amount": "decimal(12,2)"}, aggregates={"revenue": ("sum", "amount")})
        platform = temporary_platform(home / "home", stream, spark, HeldClock(NOW))
        write_batch(stream, lay_out(history(range(NEAR, days)), "history.json"))
        write_batch(stream, lay_out(history(range(NEAR)), "near.json"))
        run(platform)
        write_batch(stream, lay_out([late_event()], "late.json"))
        sys.stdout.write(f"{json.dumps(repair(platform))}\n")
    spark.stop()


def history(days_before_the_last: range) -> Iterator[Record]:
    for day in sorted(days_before_the_last, reverse=True):
        for entity in range(ENTITIES):
            for number in range(EVENTS_A_DAY):
                moment = LAST_DAY + timedelta(days=-day, hours=12, minutes=number)
                yield record(f"user {entity}", f"{entity}/{day}/{number}", moment, amount=1)


def late_event() -> Record:
    return record("user 1", "late", LAST_DAY + timedelta(hours=12, seconds=30), LAST_DAY + timedelta(days=9))


def run(platform: Platform) -> None:
    [stream] = platform.streams
    platform.ingest(stream)
    platform.repair(stream)


def repair(platform: Platform) -> dict[str, object]:
    before, heads = metadata(platform), {table: current(platform, table) for table in tables.ALL}
    start = now()
    with given_to_tasks() as (given, read):
        run(platform)
    written = {table: list(written_since(platform, table, heads[table])) for table in tables.ALL}
    return {
        "start": start,
        "end": now(),
        "given": given,
        "read": read,
        "files": {table: len(files) for table, files in written.items()},
        "bytes": {table: sum(file.bytes for file in files) for table, files in written.items()},
        "metadata": dict(metadata(platform) - before),
    }


@contextmanager
def given_to_tasks() -> Iterator[tuple[list[int], list[int]]]:
    """The bytes of each data file that tasks are given meanwhile, ascending; and what each step read of them."""
    given: list[int] = []
    read: list[int] = []

    send = tasks._on_workers

    def sent(spark: SparkSession, chunks: Iterable[Chunk], *arguments: Any) -> Any:
        known = list(chunks)
        for chunk in known:
            for cells in (chunk.cells, chunk.around, *chunk.old.values()):
                given.extend(file.file_size_in_bytes for files in cells.values() for file in files)
        given.sort()
        return send(spark, known, *arguments)

    def worked(
        spark: SparkSession, chunks: Iterable[Chunk], step: Step, stored: Mapping[str, TableFiles]
    ) -> TaskResult:
        done = run_tasks(spark, chunks, step, stored)
        read.append(done.bytes_read)
        return done

    with patch.object(tasks, "_on_workers", sent), patch.object(build, "run_tasks", worked):
        yield given, read


def current(platform: Platform, table: str) -> int:
    [stream] = platform.streams
    return head(platform.lake.catalog.load_table(stream, table)).snapshot_id


def written_since(platform: Platform, table: str, known: int) -> Iterator[FileChange]:
    """The data files that main's snapshots after the known one added."""
    [stream] = platform.streams
    loaded = platform.lake.catalog.load_table(stream, table)
    for snapshot in since(loaded, known)[0]:
        yield from (change for change in changes(loaded, snapshot) if change.sign > 0)


def metadata(platform: Platform) -> Counter[str]:
    """Bytes of metadata files of all tables, by what they are."""
    sizes: Counter[str] = Counter()
    for file in Path(platform.settings.warehouse).glob("*/*/metadata/*"):
        sizes[kind(file.name)] += file.stat().st_size
    return sizes


def kind(name: str) -> str:
    if name.endswith(".metadata.json"):
        return "table metadata"
    return "manifest lists" if name.startswith("snap-") else "manifests"


def now() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(days) for days in sys.argv[2:]])
