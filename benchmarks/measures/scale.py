"""What three years of a large stream leave behind: metadata, receipts, the control database, and memory of a plan.

At a hundredth of the size: so many cells, and so many of a day's commits. The tables are described and not there, all
that is measured is real: metadata files, manifests, receipts, checkpoints, the fold and the planner.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.bench import Bench
from benchmarks.contender import Task
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM, deployment, stream_file
from dedup_platform import tables
from dedup_platform.maintenance.checkpoints import Checkpoints
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.testing.described import DescribedTables

NAME = "scale"
DAYS, BUCKETS = 701, 16
"""A hundredth of 1,095 days of 1,024 buckets."""
INGESTS = 86
"""A hundredth of a day's ingests where one commits every 10 seconds."""
INGESTS_A_REPAIR = 43
CELLS_A_COMMIT = 5_000


def measure(bench: Bench) -> None:
    """A built stream, a stretch of a day in which ingests touch the newest partition, and a checkpoint."""
    bench.data.mkdir(parents=True, exist_ok=True)
    task = replace(bench.task(OURS, bench.data, f"work/{NAME}"), buckets=BUCKETS)
    bench.forget(task)
    Path(task.home).mkdir(parents=True)
    for name, value in _Stream(task).measured():
        bench.say(f"  {name}: {value:,}")
        bench.figures.tell(f"{NAME}: {name}", OURS, value=value)
    bench.forget(task)


class _Stream:
    """One stream, whose folder is looked at from outside."""

    def __init__(self, task: Task) -> None:
        file = Path(task.home) / f"{STREAM}.yaml"
        file.write_text(stream_file(task), encoding="utf-8")
        self.settings, self.stream = deployment(task), load_stream(file)
        self.platform = self.opened()
        self.tables = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + number // BUCKETS, number % BUCKETS) for number in range(DAYS * BUCKETS)]
        self.arrived = datetime.now(UTC) - timedelta(days=1)
        self.sources = 0

    def opened(self) -> Platform:
        return Platform(self.settings, {STREAM: self.stream}, _no_spark)

    def measured(self) -> Iterator[tuple[str, float]]:
        """Names and numbers: bytes unless they say otherwise."""
        for start in range(0, len(self.cells), CELLS_A_COMMIT):
            self.ingest(self.cells[start : start + CELLS_A_COMMIT])
        yield "plan of every cell, peak memory", _peak(lambda: self.platform.plan(STREAM))
        self.repair()
        yield "manifests of the built stream", self.size("*.avro")
        yield "receipts of the built stream", self.size("receipts/*")
        yield "control database", (self.settings.home / "control.db").stat().st_size
        newest = self.cells[-BUCKETS:]
        before, receipts = self.size("*"), self.size("receipts/*")
        for number in range(1, INGESTS + 1):
            self.ingest(newest)
            if number % INGESTS_A_REPAIR == 0:
                self.repair()
        repairs = INGESTS // INGESTS_A_REPAIR
        yield "metadata file of raw_events", self.metadata_file(tables.RAW_EVENTS)
        yield "metadata file of sessions", self.metadata_file(tables.SESSIONS)
        yield f"all written by {INGESTS} ingests and {repairs} repairs", self.size("*") - before
        yield f"receipts of {INGESTS} ingests and {repairs} repairs", self.size("receipts/*") - receipts
        receipts = self.size("receipts/*")
        checkpoints = Checkpoints(self.platform.lake, self.platform.ledger)
        checkpoints.commit_positions(self.stream)
        for table in tables.DERIVED:
            checkpoints.write_parts(self.stream, table)
        yield "checkpoints of all tables", self.size("receipts/*") - receipts
        yield "plan of nothing stale, peak memory", _peak(lambda: self.platform.plan(STREAM))
        yield "plan of nothing stale, milliseconds", _milliseconds(lambda: self.platform.plan(STREAM))
        (self.settings.home / "control.db").unlink()
        yield "fold from nothing, milliseconds", _milliseconds(lambda: self.opened().ledger.sync(STREAM))
        (self.settings.home / "control.db").unlink()
        yield "fold from nothing, peak memory", _peak(lambda: self.opened().ledger.sync(STREAM))

    def ingest(self, cells: Sequence[Cell]) -> None:
        """An ingest of one file of the source, whose records all arrived after those of the one before."""
        self.arrived += timedelta(seconds=1)
        self.sources += 1
        self.tables.ingest(cells, self.arrived, [f"2026/01/01/events-{self.sources:06}.json.gz"])

    def repair(self) -> None:
        for table in tables.DERIVED:
            self.tables.build(table, self.arrived)

    def size(self, pattern: str) -> int:
        """The bytes of the warehouse's files of this pattern. No data file is there."""
        return sum(file.stat().st_size for file in Path(self.settings.warehouse).rglob(pattern) if file.is_file())

    def metadata_file(self, table: str) -> int:
        loaded = self.platform.lake.catalog.load_table(STREAM, table)
        return Path(loaded.metadata_location.removeprefix("file:")).stat().st_size


def _peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _milliseconds(work: Callable[[], object]) -> int:
    started = time.perf_counter()
    work()
    return round((time.perf_counter() - started) * 1000)


def _no_spark() -> SparkSession:
    raise AssertionError("metadata needs no Spark")
