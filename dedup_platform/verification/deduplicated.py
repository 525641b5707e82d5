"""Rule 3: a record is a duplicate if another one of its key, at most `window` away in event time, arrived before it.

The work is "find, then resolve": most keys occur once. Finding the others reads the keys alone, and only the few
records that share one are ordered and compared; of all other columns nothing is sorted or moved.
"""

from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, DEDUPLICATED_EVENTS, column_names


class Deduplicated(NamedTuple):
    """The two halves of a set of records; together they hold each record once."""

    events: DataFrame
    duplicates: DataFrame


def deduplicate(records: DataFrame, stream: Stream) -> Deduplicated:
    """Split accepted records (columns of `raw_events`) into those that nothing beats and those that something does."""
    duplicates = beaten(rivals(records, repeated_keys(records, stream), stream), stream)
    return Deduplicated(unbeaten(records, duplicates, stream), duplicates)


def repeated_keys(records: DataFrame, stream: Stream) -> DataFrame:
    """The hashes (`_key`) of the keys that occur more than once, at whatever distance."""
    return records.select(_key_hash(stream)).groupBy("_key").count().where("count > 1").select("_key")


def rivals(records: DataFrame, repeated: DataFrame, stream: Stream) -> DataFrame:
    """The records whose key may occur more than once, as `repeated` says: hashes choose, they do not decide."""
    return records.withColumn("_key", _key_hash(stream)).join(repeated, "_key", "left_semi").drop("_key")


def beaten(records: DataFrame, stream: Stream) -> DataFrame:
    """The records that another of them beats, with the columns of `duplicate_events`.

    For each record whose verdict matters, `records` must hold every record of its key within the window of it.
    """
    place = [*stream.deduplicate.key, "event_time"]
    judged = _null_safe_join(records, _winners(records, stream), place)
    same = _typed(stream).eqNullSafe(F.col("_winner._typed"))
    return judged.where(_arrival_order() != F.struct(*(f"_winner.{name}" for name in ARRIVAL_ORDER))).select(
        *column_names(stream, DEDUPLICATED_EVENTS),
        F.when(same, "copy").otherwise("conflict").alias("kind"),
        *(F.col(f"_winner.{name}").alias(f"winner_{name}") for name in COORDINATES),
    )


def unbeaten(records: DataFrame, duplicates: DataFrame, stream: Stream) -> DataFrame:
    """The records that are not among the duplicates, with the columns of `deduplicated_events`."""
    losers = duplicates.select(*(F.col(name).alias(f"_beaten_{name}") for name in COORDINATES))
    is_beaten = reduce(and_, (F.col(name) == F.col(f"_beaten_{name}") for name in COORDINATES))
    return records.select(column_names(stream, DEDUPLICATED_EVENTS)).join(losers, is_beaten, "left_anti")


def _winners(records: DataFrame, stream: Stream) -> DataFrame:
    """For each key and each of its event times: the earliest arrival within the window."""
    key = stream.deduplicate.key
    first = F.min(F.struct(*ARRIVAL_ORDER, _typed(stream).alias("_typed"))).alias("_first")
    # Copies mostly share their event time, so the window slides over times, not over copies.
    times = records.groupBy(*key, "event_time").agg(first)
    reach = in_microseconds(stream.deduplicate.window)
    around = Window.partitionBy(*key).orderBy(F.unix_micros("event_time")).rangeBetween(-reach, reach)
    return times.select(*key, "event_time", F.min("_first").over(around).alias("_winner"))


def _key_hash(stream: Stream) -> Column:
    return F.xxhash64(*stream.deduplicate.key).alias("_key")


def _arrival_order() -> Column:
    return F.struct(*ARRIVAL_ORDER)


def _typed(stream: Stream) -> Column:
    """What makes two records of one key the same: all that they say, not how they came."""
    return F.struct("entity_id", "event_id", "event_time", *stream.attributes)


def _null_safe_join(left: DataFrame, right: DataFrame, columns: list[str]) -> DataFrame:
    renamed = right.withColumnsRenamed({name: f"_right_{name}" for name in columns})
    condition = reduce(and_, (F.col(name).eqNullSafe(F.col(f"_right_{name}")) for name in columns))
    return left.join(renamed, condition).drop(*(f"_right_{name}" for name in columns))
