"""Rule 3: a record is a duplicate if another one of its key, at most `window` away in event time, arrived before it.

The work is "find, then resolve": most keys occur once, so only the few records whose key occurs more often are ordered
and compared.
"""

from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform.stages.cells import microseconds, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, DEDUPLICATED_EVENTS, column_names

VERSION = 1
"""Raised whenever the same settings would give other rows: every cell built by an older version is then stale."""


class Deduplicated(NamedTuple):
    """The two halves of a set of records; together they hold each record once."""

    events: DataFrame
    duplicates: DataFrame


def deduplicate(records: DataFrame, stream: Stream) -> Deduplicated:
    """Split accepted records (columns of `raw_events`) into those that nothing beats and those that something does."""
    verdicts = judge(records, stream)
    return Deduplicated(kept(verdicts, stream), beaten(verdicts))


def judge(records: DataFrame, stream: Stream) -> DataFrame:
    """The same records with the columns of `duplicate_events`; `kind` and `winner_*` are null where nothing beats them.

    For each record whose verdict matters, `records` must hold every record within the window of it.
    """
    place = [*stream.deduplicate.key, "event_time"]
    judged = _null_safe_join(records, _winners(records, stream), place, "left")
    is_beaten = F.col("_winner").isNotNull() & (_arrival_order() != F.struct(*(f"_winner.{c}" for c in ARRIVAL_ORDER)))
    same = _typed(stream).eqNullSafe(F.col("_winner._typed"))
    return judged.select(
        *column_names(stream, DEDUPLICATED_EVENTS),
        F.when(is_beaten, F.when(same, "copy").otherwise("conflict")).alias("kind"),
        *(F.when(is_beaten, F.col(f"_winner.{name}")).alias(f"winner_{name}") for name in COORDINATES),
    )


def kept(verdicts: DataFrame, stream: Stream) -> DataFrame:
    """The events among judged records, with the columns of `deduplicated_events`."""
    return verdicts.where("kind is null").select(column_names(stream, DEDUPLICATED_EVENTS))


def beaten(verdicts: DataFrame) -> DataFrame:
    """The duplicates among judged records."""
    return verdicts.where("kind is not null")


def linked_partitions(records: DataFrame, stream: Stream) -> DataFrame:
    """The pairs of partitions, within a bucket, that hold records of one key within the window of each other.

    `records` has the columns of `raw_events` and `_bucket`. Returns `bucket`, `earlier`, `later` (ordinals), distinct.
    Pairs that follow one another in time suffice: whatever lies between two records within the window is within it too.
    """
    by_key = Window.partitionBy("_bucket", *stream.deduplicate.key).orderBy("event_time")
    times = _repeated(records, stream).select("_bucket", *stream.deduplicate.key, "event_time").distinct()
    pairs = times.withColumn("_before", F.lag("event_time").over(by_key))
    length = stream.partitions.length
    near = F.unix_micros("event_time") - F.unix_micros("_before") <= microseconds(stream.deduplicate.window)
    return (
        pairs.where(near)
        .select(
            F.col("_bucket").alias("bucket"),
            partition_ordinal(F.col("_before"), length).alias("earlier"),
            partition_ordinal(F.col("event_time"), length).alias("later"),
        )
        .where("earlier < later")
        .distinct()
    )


def _winners(records: DataFrame, stream: Stream) -> DataFrame:
    """For each key that occurs more than once and each of its event times: the earliest arrival within the window."""
    key = stream.deduplicate.key
    first = F.min(F.struct(*ARRIVAL_ORDER, _typed(stream).alias("_typed"))).alias("_first")
    # Copies mostly share their event time, so the window slides over times, not over copies.
    times = _repeated(records, stream).groupBy(*key, "event_time").agg(first)
    reach = microseconds(stream.deduplicate.window)
    around = Window.partitionBy(*key).orderBy(F.unix_micros("event_time")).rangeBetween(-reach, reach)
    return times.select(*key, "event_time", F.min("_first").over(around).alias("_winner"))


def _repeated(records: DataFrame, stream: Stream) -> DataFrame:
    """The records whose key occurs more than once, at whatever distance."""
    key = list(stream.deduplicate.key)
    repeated = records.groupBy(*key).agg(F.count("*").alias("_occurrences")).where("_occurrences > 1").select(*key)
    return _null_safe_join(records, repeated, key, "left_semi")


def _arrival_order() -> Column:
    return F.struct(*ARRIVAL_ORDER)


def _typed(stream: Stream) -> Column:
    """What makes two records of one key the same: all that they say, not how they came."""
    return F.struct("entity_id", "event_id", "event_time", *stream.attributes)


def _null_safe_join(left: DataFrame, right: DataFrame, columns: list[str], how: str) -> DataFrame:
    renamed = right.withColumnsRenamed({name: f"_right_{name}" for name in columns})
    condition = reduce(and_, (left[name].eqNullSafe(renamed[f"_right_{name}"]) for name in columns))
    joined = left.join(renamed, condition, how)
    return joined if how == "left_semi" else joined.drop(*(f"_right_{name}" for name in columns))
