"""Rule 4 within one partition: the sessions of a partition seen alone, so that each depends on that partition only."""

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform.stages.aggregates import over_events
from dedup_platform.stages.cells import microseconds, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, SESSION_FRAGMENTS, column_names

VERSION = 1


def fragment(events: DataFrame, stream: Stream) -> DataFrame:
    """The fragments (columns of `session_fragments`) of deduplicated events; events without an entity are in none.

    A gap longer than the timeout splits, an equal one does not. Whole partitions in, whole partitions out.
    """
    place = ("_partition", "entity_id")
    in_order = Window.partitionBy(*place).orderBy("event_time", *ARRIVAL_ORDER)
    # The sum over a frame that ends at this row numbers the fragments of an entity in a partition.
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    gap = F.unix_micros("event_time") - F.lag(F.unix_micros("event_time")).over(in_order)
    splits = F.coalesce(gap > microseconds(stream.sessions.timeout), F.lit(False)).cast("int")
    numbered = (
        events.where("entity_id is not null")
        .withColumn("_partition", partition_ordinal(F.col("event_time"), stream.partitions.length))
        .withColumn("_splits", splits)
        .withColumn("_number", F.sum("_splits").over(so_far))
    )
    return (
        numbered.groupBy(*place, "_number")
        .agg(
            F.min("event_time").alias("first_event_time"),
            F.max("event_time").alias("last_event_time"),
            F.count("*").alias("event_count"),
            F.min(_first_arrived(stream)).alias("first_arrived"),
            *over_events(stream, F.struct("event_time", *ARRIVAL_ORDER)),
        )
        .select(column_names(stream, SESSION_FRAGMENTS))
    )


def _first_arrived(stream: Stream) -> Column:
    """The arrival of an event and the id that a session bears if this event is its first-arrived one (rule 5)."""
    identity = ["entity_id", "arrival_time", "event_time", *stream.deduplicate.key]
    session_id = F.substring(F.sha2(F.concat(*(_unambiguous(name) for name in identity)), 256), 1, 32)
    return F.struct("arrival_time", *COORDINATES, session_id.alias("session_id"))


def _unambiguous(name: str) -> Column:
    """A value as text that no other list of values can imitate: its length stands in front; null is a bare dash."""
    column = F.unix_micros(name) if name in ("arrival_time", "event_time") else F.col(name)
    text = column.cast("string")
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("-"))
