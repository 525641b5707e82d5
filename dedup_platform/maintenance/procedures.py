"""Upkeep of a table by Iceberg's own procedures: fewer files, manifests and snapshots, and the same rows.

They commit to main themselves and need no branch: a rewrite of files that another writer took away meanwhile is
refused, and files that were added meanwhile are left alone.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

from pyspark.sql import Row

from dedup_platform.errors import ClockBehindError, ConflictError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import committed_at, head
from dedup_platform.planning.cells import contiguous
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME

SMALL_FILES = 5
"""So many small files of one cell are worth a rewrite."""

# The last of them: somebody tagged a snapshot that was to expire.
_CONFLICTS = (
    "CommitFailedException",
    "conflicted with another concurrent Iceberg operation",
    "Still referenced by refs",
)
_BEHIND = ("Expected sorted snapshot log entries", "Expected sorted previous metadata log", "Invalid update timestamp")


def compact_files(
    lake: Lakehouse,
    stream: Stream,
    table: str,
    partitions: Sequence[int],
    rejected: bool = False,
    sorted_by: Sequence[str] = (),
) -> int:
    """Put the small files of each cell of these partitions (and of rejected records) together; returns how many.

    Their rows are as they come, or sorted by some columns over all files that are put together.

    Raises ConflictError if another writer replaced one of them meanwhile.
    """
    # New files bear the sequence number of the snapshot that was read: a file that is appended meanwhile is newer.
    options = {"min-input-files": str(SMALL_FILES), "use-starting-sequence-number": "true"}
    listed = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    where = f'"{_where(stream, table, partitions, rejected)}"'
    order = ", ".join(f"{column} ASC NULLS LAST" for column in sorted_by)
    how = {"strategy": "'sort'", "sort_order": f"'{order}'"} if sorted_by else {"strategy": "'binpack'"}
    [done] = _call(lake, stream, table, "rewrite_data_files", options=f"map({listed})", where=where, **how)
    return int(done.rewritten_data_files_count)


def rewrite_manifests(lake: Lakehouse, stream: Stream, table: str) -> None:
    """Write the table's manifests anew: few of them, ordered by partition."""
    _call(lake, stream, table, "rewrite_manifests", use_caching="false")


def expire_snapshots(lake: Lakehouse, stream: Stream, table: str, snapshot_ids: Iterable[int]) -> None:
    """Forget exactly these snapshots, and delete the files that no other one needs."""
    listed = ", ".join(f"{snapshot_id}L" for snapshot_id in snapshot_ids)
    # Without it Iceberg would add whatever is older than the table's own property says.
    never = _timestamp(datetime(1970, 1, 1, tzinfo=UTC))
    _call(lake, stream, table, "expire_snapshots", older_than=never, snapshot_ids=f"array({listed})")


def remove_orphans(lake: Lakehouse, stream: Stream, table: str, older_than: timedelta) -> int:
    """Delete the files in the table's folder that no snapshot refers to and that are so old; returns how many.

    A writer that is at work has files that nothing refers to yet: `older_than` must be longer than any run takes.
    """
    # Files bear the time of the machine, whatever clock the platform goes by.
    before = datetime.now(UTC) - older_than
    # Else Iceberg lists files with Hadoop's own file systems, and there is none for S3.
    by_prefix = str(lake.catalog.settings.is_on_s3).lower()
    removed = _call(lake, stream, table, "remove_orphan_files", older_than=_timestamp(before), prefix_listing=by_prefix)
    return len(removed) + _remove_lone_checksums(lake, stream, table, before)


def _remove_lone_checksums(lake: Lakehouse, stream: Stream, table: str, before: datetime) -> int:
    """Delete `.NAME.crc` where NAME is gone: Hadoop writes them on local disks, and not everybody takes them along."""
    stored = lake.catalog.stored_files(stream.name, table)
    known = {file.path for file in stored}
    lone = [
        file.path
        for file in stored
        if file.mtime < before and (name := _checked_file(PurePosixPath(file.path))) and name not in known
    ]
    for path in lone:
        lake.catalog.files.delete(path)
    return len(lone)


def _checked_file(path: PurePosixPath) -> str | None:
    """The file that a checksum file is about; None for any other file."""
    return str(path.with_name(path.stem[1:])) if path.suffix == ".crc" and path.name.startswith(".") else None


def _where(stream: Stream, table: str, partitions: Sequence[int], rejected: bool) -> str:
    column = PARTITION_TIME[table]
    bounds = [stream.partitions.bounds(range_[0], range_[-1]) for range_ in contiguous(partitions)]
    ranges = [
        f"({column} >= {_timestamp(start)}" + (f" AND {column} < {_timestamp(end)})" if end else ")")
        for start, end in bounds
    ]
    return " OR ".join([*ranges, *([f"{column} IS NULL"] if rejected else [])])


def _timestamp(time: datetime) -> str:
    return f"TIMESTAMP '{time.astimezone(UTC).isoformat(sep=' ')}'"


def _call(lake: Lakehouse, stream: Stream, table: str, procedure: str, **arguments: str) -> list[Row]:
    listed = ", ".join(f"{name} => {value}" for name, value in arguments.items())
    try:
        return (
            lake.spark().sql(f"CALL {CATALOG}.system.{procedure}(table => '{stream.name}.{table}', {listed})").collect()
        )
    except Exception as error:
        if any(sign in str(error) for sign in _CONFLICTS):
            raise ConflictError(
                f"{stream.name}.{table}: another writer committed during {procedure}; nothing was changed. Run again."
            ) from error
        if any(sign in str(error) for sign in _BEHIND):
            newest = committed_at(head(lake.catalog.load_table(stream.name, table)))
            raise ClockBehindError(
                f"{stream.name}.{table}: {procedure} cannot commit before {newest.isoformat()}, the time of the "
                "newest commit, and the clock of Spark's machine is behind it; nothing was changed. Set the clock "
                "right, or run again after that time."
            ) from error
        raise
