"""How many rows break what a table promises, by partition: what asset checks ask of the rows that were written."""

from collections.abc import Collection
from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform import tables
from dedup_platform.lake.conditions import in_partitions
from dedup_platform.planning.cells import reach
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.verification.cells import partition_ordinal


def count_violations(
    rows: DataFrame, stream: Stream, table: str, partitions: Collection[int]
) -> dict[int, dict[str, int]]:
    """Ordinal -> check -> number of wrong rows, for those of the partitions that have any of these rows.

    `rows` are those of a derived table with Iceberg's column `_partition`. Read are narrow columns of these partitions
    and of those near enough to hold a neighbour of their rows.
    """
    broken = _broken(stream, table)
    near = _near(rows, stream, table, partitions)
    counted = (
        near.select(_stored_in(stream, table).alias("partition"), *(each.alias(name) for name, each in broken.items()))
        .where(F.col("partition").isin(sorted(partitions)))
        .groupBy("partition")
        .agg(*(F.count_if(name).alias(name) for name in broken))
    )
    return {row.partition: {name: row[name] for name in broken} for row in counted.collect()}


def _broken(stream: Stream, table: str) -> dict[str, Column]:
    """Check -> whether a row breaks it."""
    time = F.col(tables.PARTITION_TIME[table])
    place = partition_ordinal(time, stream.partitions.length)
    broken = {"inside": place != _stored_in(stream, table)}
    if table == tables.DEDUPLICATED_EVENTS:
        broken["uniqueness"] = _follows(
            [F.col(name) for name in stream.deduplicate.key], time, time, stream.deduplicate.window
        )
    elif table == tables.SESSION_FRAGMENTS:
        # Fragments of neighbouring partitions may be as near as they like: stitching joins them.
        broken["gaps"] = _follows([F.col("entity_id"), place], time, F.col("last_event_time"), stream.session_timeout)
    else:
        broken["gaps"] = _follows([F.col("entity_id")], time, F.col("ended_at"), stream.session_timeout)
        broken["uniqueness"] = F.count("*").over(Window.partitionBy("session_id")) > 1
    return broken


def _follows(key: list[Column], start: Column, end: Column, within: timedelta) -> Column:
    """Whether a row starts at most `within` after the row of the same key before it ended."""
    before = F.lag(end).over(Window.partitionBy(*key).orderBy(start))
    return F.coalesce(F.unix_micros(start) - F.unix_micros(before) <= F.lit(in_microseconds(within)), F.lit(False))


def _near(rows: DataFrame, stream: Stream, table: str, partitions: Collection[int]) -> DataFrame:
    near = near_partitions(stream, table, partitions)
    return rows.where(in_partitions(stream, F.col(tables.PARTITION_TIME[table]), near))


def near_partitions(stream: Stream, table: str, partitions: Collection[int]) -> set[int]:
    """The partitions and, before each, those that can hold the row that comes before one of theirs."""
    before = reach(_distance(stream, table), stream.partitions.length)
    return {place for partition in partitions for place in range(partition - before, partition + 1)}


def _distance(stream: Stream, table: str) -> timedelta:
    """How far from a row another one can be that must not be there."""
    if table == tables.DEDUPLICATED_EVENTS:
        return stream.deduplicate.window
    return stream.session_timeout if table == tables.SESSIONS else timedelta(0)


def _stored_in(stream: Stream, table: str) -> Column:
    """The ordinal of the partition that a row is stored in, as Iceberg tells it."""
    stored = F.col(f"_partition.{tables.PARTITION_TIME[table]}_{stream.partitions.granularity}")
    return F.unix_date(stored) if stream.partitions.granularity == "day" else stored
