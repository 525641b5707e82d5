"""Rules 4 and 5 across partitions: chains of fragments become whole sessions, in the partition where they start."""

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSIONS, column_names
from dedup_platform.verification.aggregates import over_fragments, sums_or_null


def stitch(fragments: DataFrame, stream: Stream) -> DataFrame:
    """The sessions (columns of `sessions`) that these fragments (columns of `session_fragments`) form.

    Two fragments of an entity that follow one another belong together if the gap between them is at most the timeout,
    whatever empty partitions lie between. A session is whole only if all fragments of its chain are given.
    """
    # A fragment that keeps further from both edges of its partition than the timeout reaches no other: it is a session.
    alone = fragments.where(~_near_an_edge(stream)).withColumns(
        {"started_at": F.col("first_event_time"), "ended_at": F.col("last_event_time")}
    )
    return _as_sessions(alone, stream).unionByName(stitch_edges(fragments, stream))


def stitch_edges(fragments: DataFrame, stream: Stream) -> DataFrame:
    """Those sessions alone that come near an edge of a partition; only they can be of more than one fragment."""
    in_order = Window.partitionBy("entity_id").orderBy("first_event_time")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    gap = F.unix_micros("first_event_time") - F.lag(F.unix_micros("last_event_time")).over(in_order)
    splits = F.coalesce(gap > in_microseconds(stream.session_timeout), F.lit(False)).cast("int")
    chained = (
        fragments.where(_near_an_edge(stream))
        .withColumn("_splits", splits)
        .withColumn("_number", F.sum("_splits").over(so_far))
    )
    joined = chained.groupBy("entity_id", "_number").agg(
        F.min("first_event_time").alias("started_at"),
        F.max("last_event_time").alias("ended_at"),
        F.sum("event_count").alias("event_count"),
        F.min("first_arrived").alias("first_arrived"),
        *over_fragments(stream, F.col("first_event_time")),
    )
    return _as_sessions(joined, stream)


def _as_sessions(joined: DataFrame, stream: Stream) -> DataFrame:
    first = {
        "session_id": "first_arrived.session_id",
        "first_arrived_at": "first_arrived.arrival_time",
        "first_arrived_event_time": "first_arrived.event_time",
    }
    columns = {name: F.col(place) for name, place in first.items()} | sums_or_null(stream)
    return joined.withColumns(columns).select(column_names(stream, SESSIONS))


def _near_an_edge(stream: Stream) -> Column:
    """Whether a fragment is at most the timeout away from the start or the end of its partition."""
    length, timeout = in_microseconds(stream.partitions.length), in_microseconds(stream.session_timeout)
    after_start = F.unix_micros("first_event_time") % length
    before_end = length - F.unix_micros("last_event_time") % length
    return (after_start <= timeout) | (before_end <= timeout)
