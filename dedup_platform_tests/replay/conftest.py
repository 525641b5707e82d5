"""A stream whose file can be wrong and put right, and what was delivered to it, as the oracle knows it."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.snapshots import files_by_cell, head, rejected_files
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import (
    HeldClock,
    Record,
    SessionIds,
    differences,
    lay_out,
    make_stream,
    temporary_platform,
    utc,
    write_batch,
)
from dedup_platform.testing.judge import wrong_rows

NOW = utc("2024-06-01")
ARRIVED = utc("2024-05-01")
"""When files of lines were modified."""
WRONG = "{field: happened, format: '%d/%m/%Y %H:%M:%S'}"
"""An `event_time` that reads none of the records, in place of `happened`."""

Snapshots = Mapping[str, int]
Files = Mapping[str, Mapping[Cell | None, frozenset[str]]]


@dataclass
class Deployment:
    """One stream and its platform."""

    platform: Platform
    stream: Stream
    right: str
    """The stream file as it should be."""

    @property
    def name(self) -> str:
        return self.stream.name

    def say(self, text: str) -> None:
        """Put this into the stream file, and read it."""
        self.stream.origin.write_text(text)
        self.stream = load_stream(self.stream.origin)
        self.platform.streams[self.name] = self.stream

    def spoil(self, key: str = "event_time: happened", wrong: str = f"event_time: {WRONG}") -> None:
        """Let the stream file be wrong about one field."""
        assert key in self.right
        self.say(self.right.replace(key, wrong))

    def put_right(self) -> None:
        self.say(self.right)

    def deliver(self, *records: Record, file: str) -> list[Record]:
        """Take these in, as one file, but repair nothing."""
        laid = lay_out(records, file)
        self.write(laid)
        self.platform.ingest(self.name)
        return laid

    def write(self, records: Iterable[Record]) -> None:
        """Write records that have their places in files."""
        write_batch(self.stream, records)

    def deliver_lines(self, *lines: bytes, file: str) -> None:
        """Take in a file that holds what no writer of records would write."""
        path = self.stream.files.root / file
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        os.utime(path, (ARRIVED.timestamp(), ARRIVED.timestamp()))
        self.platform.ingest(self.name)

    def run(self) -> None:
        self.platform.ingest(self.name)
        self.platform.repair(self.name)

    def heads(self) -> Snapshots:
        """The newest snapshot of each table."""
        loaded = {table: self.platform.lake.catalog.load(self.name, table) for table in tables.ALL}
        return {table: head(found).snapshot_id for table, found in loaded.items() if found}

    def files(self) -> Files:
        """Table -> cell -> the paths of its data files; rejected records are in the cell None."""
        found: dict[str, dict[Cell | None, frozenset[str]]] = {}
        for table, snapshot in self.heads().items():
            loaded = self.platform.lake.catalog.load_table(self.name, table)
            by_cell = files_by_cell(loaded, snapshot)
            found[table] = {cell: frozenset(file.file_path for file in files) for cell, files in by_cell.items()}
            if table == tables.RAW_EVENTS:
                found[table][None] = frozenset(file.file_path for file in rejected_files(loaded, snapshot))
        return found

    def coordinates(self) -> list[tuple[object, ...]]:
        """The coordinates of all rows of raw, sorted: a record that is there twice shows twice."""
        rows = self.platform.read(self.name, tables.RAW_EVENTS).select(*tables.COORDINATES)
        return sorted(tuple(row) for row in rows.collect())

    def stale(self) -> set[Cell]:
        return {stale.cell for plan in self.platform.plan(self.name) for stale in plan.stale}

    def check(self, records: Iterable[Record]) -> None:
        """The tables are what the oracle makes of these records, and what a full recomputation makes of raw."""
        assert self.stale() == set()
        assert differences(self.platform, self.stream, list(records), SessionIds()) == []
        assert wrong_rows(self.platform, self.name) == []


def touched(before: Files, after: Files) -> dict[str, set[Cell | None]]:
    """Table -> the cells whose files are others."""
    return {
        table: {
            cell
            for cell in before[table].keys() | after[table].keys()
            if before[table].get(cell, frozenset()) != after[table].get(cell, frozenset())
        }
        for table in before
    }


def deployment(folder: Path, spark: SparkSession, **said: object) -> Deployment:
    stream = make_stream(folder, **({"buckets": 2, "timeout": "2h"} | said))  # type: ignore[arg-type]
    platform = temporary_platform(folder / "home", stream, spark, HeldClock(NOW), in_process=True)
    return Deployment(platform, stream, stream.origin.read_text())


@pytest.fixture
def deploy(tmp_path: Path, spark: SparkSession) -> Deployment:
    """A stream of two buckets a day and sessions of two hours."""
    return deployment(tmp_path, spark)
