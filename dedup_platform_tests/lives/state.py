"""What readers see at one moment: the rows of every table by cell, read without Spark."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile

from dedup_platform import tables
from dedup_platform.lake.snapshots import bucket_count, files_by_cell, head, live_files, rejected_files
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing.judge import as_record
from dedup_platform.testing.records import Record

Row = Mapping[str, Any]
Rows = dict[Cell, list[Row]]


@dataclass(frozen=True)
class State:
    """The tables as they are published; duplicates and events are the pair that belongs together."""

    rows: Mapping[str, Rows]
    rejected: list[Row]
    buckets: frozenset[int]
    """Numbers of buckets that the tables have; more than one while a change of it is under way."""

    def all(self, table: str) -> list[Row]:
        """All rows of a table; of raw those that are events."""
        return [row for rows in self.rows[table].values() for row in rows]

    @property
    def records(self) -> list[Record]:
        """The accepted records of raw."""
        return [as_record(row) for row in self.all(RAW_EVENTS)]


class Reader:
    """Reads state after state; each data file once, since none ever changes."""

    def __init__(self) -> None:
        self._known: dict[str, list[Row]] = {}

    def read(self, platform: Platform, stream: Stream) -> State | None:
        """The tables as they are; None before there are any."""
        lake = platform.lake
        loaded = {name: lake.catalog.load(stream.name, name) for name in tables.all_of(stream)}
        rows: dict[str, Rows] = {}
        for name, table in loaded.items():
            if table is None:
                return None
            found = files_by_cell(table, lake.current(stream, name))
            rows[name] = {cell: self.rows(files) for cell, files in found.items()}
        raw = lake.catalog.load_table(stream.name, RAW_EVENTS)
        rejected = self.rows(rejected_files(raw, head(raw).snapshot_id))
        return State(rows, rejected, frozenset(bucket_count(table) for table in loaded.values() if table))

    def feed(self, platform: Platform, stream: Stream, feed: str) -> list[Row]:
        """All rows of a feed; none before it has begun."""
        table = platform.lake.catalog.load(stream.name, feed)
        return self.rows(live_files(table, head(table))) if table else []

    def rows(self, files: list[DataFile]) -> list[Row]:
        """The rows of some data files, in their order."""
        for path in (file.file_path for file in files):
            if path not in self._known:
                self._known[path] = pq.ParquetFile(path.removeprefix("file://")).read(use_threads=False).to_pylist()
        return [row for file in files for row in self._known[file.file_path]]
