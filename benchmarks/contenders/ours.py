"""This platform through its public door."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession

from benchmarks.contender import TIMEOUT_MINUTES, Contender, Output, Task
from benchmarks.contenders.event_log import EventLog, recording
from benchmarks.data import START
from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import Stream, load_stream

STREAM = "bench"
DERIVED = (tables.DUPLICATE_EVENTS, *tables.DERIVED)

_STREAM_FILE = """\
name: {name}
source: {{kind: files, path: "{sources}/*.parquet", format: parquet, settle: 0s}}
fields:
  entity_id: entity_id
  event_id: event_id
  event_time: event_time
  arrival_time: arrival_time
  attributes: {{page: page, amount: {{field: amount, type: "decimal(12,2)"}}, details: details}}
partitions: {{granularity: day, start: {start:%Y-%m-%d}}}
buckets: {buckets}
deduplicate: {{window: 1d}}
sessions: {{timeout: {timeout}m, aggregates: {{revenue: {{sum: amount}}, pages: {{count: page}}}}}}
late: {{settle: 0s}}
"""


class Ours(Contender):
    """Ingests once; a rebuild makes every derived table anew from `raw_events`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.settings = deployment(task)
        self._log: EventLog | None = None
        self._platform: Platform | None = None
        self._read_by_work = 0

    @property
    def stream(self) -> Stream:
        """The stream of the source files, from a stream file as a user would write it."""
        file = Path(self.task.home) / f"{STREAM}.yaml"
        if not file.exists():
            file.write_text(stream_file(self.task), encoding="utf-8")
        return load_stream(file)

    @property
    def platform(self) -> Platform:
        """The platform, opened at first use; `clear` forgets it, and with it all that it remembers."""
        if self._platform is None:
            self._platform = Platform(self.settings, {STREAM: self.stream}, self._spark)
        return self._platform

    def prepare(self) -> None:
        self._spark().range(1).count()

    def ingest(self) -> dict[str, Any]:
        """Take in all source files."""
        return {"records": sum(commit.rows_written for commit in self.platform.ingest(STREAM))}

    def clear_all(self) -> None:
        """Empty tables, raw_events among them, and neither catalog nor control database from before."""
        self._platform = None
        for name in ("control.db", "catalog.db"):
            (self.settings.home / name).unlink(missing_ok=True)
        shutil.rmtree(self.settings.warehouse, ignore_errors=True)
        self._create_tables()

    def clear(self) -> None:
        """Empty derived tables and no control database: what is left is `raw_events`, as the source would be."""
        catalog = Catalog(self.settings)
        for table in DERIVED:
            try:
                catalog.iceberg.drop_table((STREAM, table))
            except NoSuchTableError:
                continue
            shutil.rmtree(Path(self.settings.warehouse) / STREAM / table)
        (self.settings.home / "control.db").unlink(missing_ok=True)
        self._platform = None
        self._create_tables()

    def rebuild(self) -> dict[str, Any]:
        platform = self.platform
        platform.ledger.sync(STREAM)
        partitions = {cell.partition for cell in platform.ledger.sizes(STREAM, tables.RAW_EVENTS)}
        return self._told([platform.recompute(STREAM, table, partitions) for table in tables.DERIVED])

    def update(self) -> dict[str, Any]:
        commits = [*self.platform.ingest(STREAM), *self.platform.repair(STREAM)]
        return self._told(commits) | {"cells_rewritten": sum(len(commit.cells_rewritten) for commit in commits)}

    def maintain(self) -> dict[str, Any]:
        """Look after all tables, as if a month had gone by: what is too young for it is old then."""
        month = timedelta(days=30)
        later = Platform(self.settings, {STREAM: self.stream}, self._spark, lambda: datetime.now(UTC) + month)
        return {each.table: each.files_compacted for each in later.maintain(STREAM)}

    def read_all(self) -> dict[str, Any]:
        """Read every record once, through Spark."""
        row = self.platform.read(STREAM, tables.RAW_EVENTS).agg({"payload": "max", "event_time": "max"}).collect()[0]
        return {"newest": str(row[1])}

    def output(self) -> Output:
        events, sessions = (self._data_files(table) for table in (tables.DEDUPLICATED_EVENTS, tables.SESSIONS))
        return Output(events, sessions)

    def table_sizes(self) -> dict[str, dict[str, int]]:
        """Rows, files and bytes of each table."""
        found = self.platform.status(STREAM).tables
        return {table.table: {"rows": table.rows, "files": table.files, "bytes": table.bytes} for table in found}

    def bytes_read(self) -> int | None:
        return self._read_by_work + (self._log.bytes_read() if self._log else 0)

    def _create_tables(self) -> None:
        Lakehouse(Catalog(self.settings), self._spark).create(self.stream, self.task.buckets)

    def _told(self, commits: list[Commit]) -> dict[str, Any]:
        """Note what commits say they read; returns what they came to."""
        self._read_by_work += sum(commit.bytes_read for commit in commits)
        rows = self.platform.rows
        return {
            "events": rows(STREAM, tables.DEDUPLICATED_EVENTS),
            "sessions": rows(STREAM, tables.SESSIONS),
            "steps": _seconds(commits),
        }

    def _data_files(self, table: str) -> list[str]:
        files = Catalog(self.settings).load_table(STREAM, table).inspect.data_files()
        return [path.removeprefix("file:") for path in files["file_path"].to_pylist()]

    def _spark(self) -> SparkSession:
        spark = spark_session(self.settings)
        self._log = self._log or EventLog(Path(self.task.logs), spark.sparkContext.applicationId)
        return spark


def deployment(task: Task) -> Settings:
    """The settings of a home of benchmarks."""
    # Settings of whoever runs this would lead elsewhere; all that decides where is said here.
    home = Path(task.home)
    return Settings(
        home=home,
        warehouse=str(home / "warehouse"),
        catalog_uri=f"sqlite:///{home / 'catalog.db'}",
        control_uri=f"sqlite:///{home / 'control.db'}",
        streams=None,
        spark_master="local[*]",
        spark_remote=None,
        driver_memory=task.memory,
        spark_conf=recording(Path(task.logs)),
    )


def stream_file(task: Task) -> str:
    """The stream file of a task."""
    return _STREAM_FILE.format(
        name=STREAM, sources=task.sources, start=START, buckets=task.buckets, timeout=TIMEOUT_MINUTES
    )


def _seconds(commits: list[Commit]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for commit in commits:
        seconds[commit.table] = seconds.get(commit.table, 0) + commit.seconds
    return seconds
