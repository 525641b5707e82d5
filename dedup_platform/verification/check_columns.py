"""What `check_queries` asks of Spark, asked of columns in this process: for few rows Spark takes seconds to begin."""

from collections.abc import Collection
from datetime import timedelta
from itertools import product

import polars as pl

from dedup_platform import tables
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.table_files import frame_of
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.verification.check_queries import near_partitions

FEW_ROWS = 200_000
"""As many are a few hundred megabytes at most, and are read in less time than Spark takes to plan a query."""
_PARTITION = "_partition_ordinal"
_COLUMNS = {
    tables.SESSION_FRAGMENTS: ("entity_id", "last_event_time"),
    tables.SESSIONS: ("entity_id", "ended_at", "session_id"),
}


def count_violations_of_few(
    lake: Lakehouse, stream: Stream, table: str, snapshot_id: int, partitions: Collection[int]
) -> dict[int, dict[str, int]] | None:
    """Like `count_violations`, for one snapshot; None if more than `FEW_ROWS` rows would have to be read. No Spark."""
    buckets = (*range(lake.buckets(stream)), NO_ENTITY)
    near = near_partitions(stream, table, partitions)
    files = lake.files(stream, table, snapshot_id, (Cell(*place) for place in product(near, buckets)))
    if sum(file.record_count for each in files.values() for file in each) > FEW_ROWS:
        return None
    table_files, names = lake.table_files(stream, table), _names(stream, table)
    frames = [
        frame_of(table_files.read(each, names)).with_columns(pl.lit(cell.partition).alias(_PARTITION))
        for cell, each in files.items()
    ]
    if not frames:
        return {}
    broken = _broken(stream, table)
    counted = (
        pl.concat(frames)
        .select(_PARTITION, **broken)
        .filter(pl.col(_PARTITION).is_in(list(partitions)))
        .group_by(_PARTITION)
        .agg(pl.col(*broken).sum())
    )
    return {row.pop(_PARTITION): row for row in counted.iter_rows(named=True)}


def _names(stream: Stream, table: str) -> list[str]:
    columns = stream.deduplicate.key if table == tables.DEDUPLICATED_EVENTS else _COLUMNS[table]
    return list(dict.fromkeys((*columns, tables.PARTITION_TIME[table])))


def _broken(stream: Stream, table: str) -> dict[str, pl.Expr]:
    """Check -> whether a row breaks it."""
    time = pl.col(tables.PARTITION_TIME[table])
    place = partition_ordinal(time, stream.partitions.length)
    broken = {"inside": place.ne_missing(pl.col(_PARTITION))}
    if table == tables.DEDUPLICATED_EVENTS:
        key = [pl.col(name) for name in stream.deduplicate.key]
        broken["uniqueness"] = _follows(key, time, time, stream.deduplicate.window)
    elif table == tables.SESSION_FRAGMENTS:
        # Fragments of neighbouring partitions may be as near as they like: stitching joins them.
        entity_there = [pl.col("entity_id"), place]
        broken["gaps"] = _follows(entity_there, time, pl.col("last_event_time"), stream.session_timeout)
    else:
        broken["gaps"] = _follows([pl.col("entity_id")], time, pl.col("ended_at"), stream.session_timeout)
        broken["uniqueness"] = pl.len().over("session_id") > 1
    return broken


def _follows(key: list[pl.Expr], start: pl.Expr, end: pl.Expr, within: timedelta) -> pl.Expr:
    """Whether a row starts at most `within` after the row of the same key before it ended."""
    before = end.shift(1).over(key, order_by=start)
    return (start.dt.epoch("us") - before.dt.epoch("us") <= in_microseconds(within)).fill_null(False)
