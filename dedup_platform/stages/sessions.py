"""Rules 4 and 5 across partitions: chains of fragments become whole sessions, in the partition where they start."""

from pyspark.sql import DataFrame, Window, functions as F

from dedup_platform.stages.aggregates import over_fragments
from dedup_platform.stages.cells import microseconds, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSIONS, column_names

VERSION = 1


def stitch(fragments: DataFrame, stream: Stream) -> DataFrame:
    """The sessions (columns of `sessions`) that these fragments (columns of `session_fragments`) form.

    Two fragments of an entity that follow one another belong together if the gap between them is at most the timeout,
    whatever empty partitions lie between. A session is whole only if all fragments of its chain are given.
    """
    in_order = Window.partitionBy("entity_id").orderBy("first_event_time")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    gap = F.unix_micros("first_event_time") - F.lag(F.unix_micros("last_event_time")).over(in_order)
    splits = F.coalesce(gap > microseconds(stream.sessions.timeout), F.lit(False)).cast("int")
    chained = fragments.withColumn("_splits", splits).withColumn("_number", F.sum("_splits").over(so_far))
    return (
        chained.groupBy("entity_id", "_number")
        .agg(
            F.min("first_event_time").alias("started_at"),
            F.max("last_event_time").alias("ended_at"),
            F.sum("event_count").alias("event_count"),
            F.min("first_arrived").alias("first_arrived"),
            *over_fragments(stream, F.col("first_event_time")),
        )
        .withColumn("session_id", F.col("first_arrived.session_id"))
        .withColumn("first_arrived_at", F.col("first_arrived.arrival_time"))
        .select(column_names(stream, SESSIONS))
    )


def spans(sessions: DataFrame, stream: Stream) -> DataFrame:
    """The partitions from `first` to `last` (ordinals) that sessions of more than one partition span, distinct.

    `sessions` has the columns `started_at`, `ended_at` and `_bucket`; the result has `bucket`, `first` and `last`.
    """
    length = stream.partitions.length
    return (
        sessions.select(
            F.col("_bucket").alias("bucket"),
            partition_ordinal(F.col("started_at"), length).alias("first"),
            partition_ordinal(F.col("ended_at"), length).alias("last"),
        )
        .where("first < last")
        .distinct()
    )
