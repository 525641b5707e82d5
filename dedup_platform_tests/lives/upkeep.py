"""Upkeep as Spark's procedures do it, without Spark: the same commits of the same kinds, on tables of few files."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from pyiceberg.table.snapshots import Operation

from dedup_platform.lake import Lakehouse
from dedup_platform.lake.snapshots import files_by_cell, head
from dedup_platform.stream import Stream
from dedup_platform.tables import column_names

SMALL_FILES = 2


def compact_files(
    lake: Lakehouse,
    stream: Stream,
    table: str,
    partitions: Sequence[int],
    rejected: bool = False,  # noqa: ARG001
) -> int:
    """Put the files of each cell of these partitions together; returns how many there were."""
    loaded = lake.catalog.load_table(stream.name, table)
    found = files_by_cell(loaded, head(loaded).snapshot_id)
    many = {cell: files for cell, files in found.items() if cell.partition in partitions and len(files) >= SMALL_FILES}
    if many:
        of = lake.table_files(stream, table)
        names = column_names(stream, table)
        added = [of.write(cell, of.read(files, names)) for cell, files in many.items()]
        removed = [file for files in many.values() for file in files]
        lake.replace_files(stream, table, "main", removed, added, {}, Operation.REPLACE)
    return sum(map(len, many.values()))


def rewrite_manifests(lake: Lakehouse, stream: Stream, table: str) -> None:
    """Tables of few files have few manifests."""


def expire_snapshots(lake: Lakehouse, stream: Stream, table: str, snapshot_ids: Iterable[int]) -> None:
    """Forget these snapshots."""
    lake.catalog.load_table(stream.name, table).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def remove_orphans(lake: Lakehouse, stream: Stream, table: str, older_than: timedelta) -> int:  # noqa: ARG001
    """None is old enough."""
    return 0
