"""A home that tests spoil and put back.

Iceberg's metadata holds absolute paths, so a home cannot be copied to another place; what was kept is put back to the
same one.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyiceberg.table.refs import SnapshotRefType
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.snapshots import files_by_cell
from dedup_platform.lake.staged import Staged
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, temporary_platform
from dedup_platform.testing.comparison import published_rows


@dataclass(frozen=True)
class Home:
    """The home of one stream's tables, in a folder of its own."""

    folder: Path
    stream: Stream
    spark: SparkSession
    clock: HeldClock

    @property
    def path(self) -> Path:
        return self.folder / "home"

    def platform(self) -> Platform:
        """A platform that remembers nothing from before; what is not work on cells has the test's own Spark."""
        return temporary_platform(self.path, self.stream, self.spark, self.clock, in_process=True)

    def run(self) -> Platform:
        """Take in and repair all that waits; returns the platform that did it."""
        platform = self.platform()
        platform.ingest(self.stream.name)
        platform.repair(self.stream.name)
        return platform

    def keep(self, name: str = "kept") -> None:
        """Let this be the state of this name that `put_back` goes back to."""
        shutil.copytree(self.path, self.folder / name)

    def put_back(self, name: str = "kept") -> None:
        self.clear()
        shutil.copytree(self.folder / name, self.path)

    def clear(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def all_rows(platform: Platform) -> dict[str, list[str]]:
    """Table -> all its rows, as text and in order."""
    [stream] = platform.streams
    return {table: sorted(map(repr, rows)) for table, rows in published_rows(platform, stream).items()}


def stage_cells_again(platform: Platform, table: str, base: int, cells: Iterable[Cell]) -> Staged:
    """What a writer would publish that gives these cells the rows that they have, in other files."""
    [stream] = platform.streams.values()
    old = platform.lake.files(stream, table, base, cells)
    files, names = platform.lake.table_files(stream, table), tables.column_names(stream, table)
    new = [files.write(cell, files.read(found, names)) for cell, found in old.items()]
    return platform.lake.stage_files(stream, table, base, chain(*old.values()), new, {})


def stage_all_again(platform: Platform, table: str) -> Staged:
    """What a writer would publish that puts all rows of a table beside themselves, in other files."""
    [stream] = platform.streams.values()
    base = references(platform, table)["main"]
    old = files_by_cell(platform.lake.catalog.load_table(stream.name, table), base)
    files, names = platform.lake.table_files(stream, table), tables.column_names(stream, table)
    new = [files.write(cell, files.read(found, names)) for cell, found in old.items()]
    return platform.lake.stage_append(stream, table, base, new, {})


def references(platform: Platform, table: str) -> dict[str, int]:
    """Where `main` and the staged branches of a table are: at which snapshots. Empty if there is no such table."""
    [stream] = platform.streams
    loaded = platform.lake.catalog.load(stream, table)
    refs = loaded.refs() if loaded else {}
    return {name: at.snapshot_id for name, at in refs.items() if at.snapshot_ref_type == SnapshotRefType.BRANCH}


def stale(platform: Platform) -> list[object]:
    """All stale cells of all tables."""
    [stream] = platform.streams
    return [cell for plan in platform.plan(stream) for cell in plan.stale]
