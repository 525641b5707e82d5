"""Upkeep as Spark's procedures do it, without Spark: the same commits of the same kinds, on tables of few files."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta

from pyiceberg.table.snapshots import Operation

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import files_by_cell, head, live_files
from dedup_platform.stream import Stream
from dedup_platform.tables import FOLLOWED, column_names

SMALL_FILES = 2


def compact_files(
    lake: Lakehouse,
    stream: Stream,
    table: str,
    partitions: Sequence[int],
    rejected: bool = False,  # noqa: ARG001
    sorted_by: Sequence[str] = (),
) -> int:
    """Put the files of each cell of these partitions together; returns how many there were."""
    if table in FOLLOWED:
        return _compact_feed(lake, stream, table, sorted_by)
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


def _compact_feed(lake: Lakehouse, stream: Stream, feed: str, sorted_by: Sequence[str]) -> int:
    """A feed lies in days, whatever day is asked for: all of them are over."""
    loaded = lake.catalog.load_table(stream.name, feed)
    by_day = defaultdict(list)
    for file in live_files(loaded, head(loaded)):
        by_day[file.partition[0]].append(file)
    many = {day: files for day, files in by_day.items() if len(files) >= SMALL_FILES}
    if many:
        of = lake.table_files(stream, feed)
        names = column_names(stream, feed)
        order = [(name, "ascending") for name in sorted_by]
        added = [of.write_at((day,), of.read(files, names).sort_by(order)) for day, files in many.items()]
        removed = [file for files in many.values() for file in files]
        lake.replace_files(stream, feed, "main", removed, added, {}, Operation.REPLACE)
    return sum(map(len, many.values()))


def rewrite_manifests(lake: Lakehouse, stream: Stream, table: str) -> None:
    """Tables of few files have few manifests."""


def expire_snapshots(lake: Lakehouse, stream: Stream, table: str, snapshot_ids: Iterable[int]) -> None:
    """Forget these snapshots."""
    lake.catalog.load_table(stream.name, table).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def remove_orphans(lake: Lakehouse, stream: Stream, table: str, older_than: timedelta) -> int:  # noqa: ARG001
    """None is old enough."""
    return 0
