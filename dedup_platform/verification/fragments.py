"""Rule 4 within one partition: the sessions of a partition seen alone, so that each depends on that partition only."""

from pyspark.sql import Column, DataFrame, Window, functions as F

from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, SESSION_FRAGMENTS, column_names
from dedup_platform.verification.aggregates import over_events
from dedup_platform.verification.cells import partition_ordinal


def fragment(events: DataFrame, stream: Stream) -> DataFrame:
    """The fragments (columns of `session_fragments`) of deduplicated events; events without an entity are in none.

    A gap longer than the timeout splits, an equal one does not. Whole partitions in, whole partitions out.
    """
    place = ("_partition", "entity_id")
    # Events of one time need no order among them: the gap between them splits nothing.
    in_order = Window.partitionBy(*place).orderBy("_time")
    # The sum over a frame that ends at this row numbers the fragments of an entity in a partition.
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    gap = F.col("_time") - F.lag("_time").over(in_order)
    splits = F.coalesce(gap > in_microseconds(stream.session_timeout), F.lit(False)).cast("int")
    numbered = (
        events.where("entity_id is not null")
        .withColumn("_partition", partition_ordinal(F.col("event_time"), stream.partitions.length))
        .withColumn("_time", F.unix_micros("event_time"))
        .withColumn("_splits", splits)
        .withColumn("_number", F.sum("_splits").over(so_far))
    )
    return (
        numbered.groupBy(*place, "_number")
        .agg(
            F.min("event_time").alias("first_event_time"),
            F.max("event_time").alias("last_event_time"),
            F.count("*").alias("event_count"),
            F.min(F.struct(*_identifying(stream))).alias("_first"),
            *over_events(stream, F.struct("event_time", *ARRIVAL_ORDER)),
        )
        .withColumn("first_arrived", _first_arrived(stream))
        .select(column_names(stream, SESSION_FRAGMENTS))
    )


def _identifying(stream: Stream) -> list[str]:
    """The arrival order, which decides who came first, and what else a session's id is made of (rule 5)."""
    beside = [name for name in ("event_time", *stream.deduplicate.key) if name != "entity_id"]
    return list(dict.fromkeys((*ARRIVAL_ORDER, *beside)))


def _first_arrived(stream: Stream) -> Column:
    """The arrival and the time of the first-arrived event (`_first`), and the id that its session bears."""
    identity = ["arrival_time", "event_time", *stream.deduplicate.key]
    texts = [_unambiguous(name, F.col(name if name == "entity_id" else f"_first.{name}")) for name in identity]
    text = F.concat(_unambiguous("entity_id", F.col("entity_id")), *texts)
    session_id = F.substring(F.sha2(text, 256), 1, 32).alias("session_id")
    return F.struct(*(f"_first.{name}" for name in ARRIVAL_ORDER), session_id, "_first.event_time")


def _unambiguous(name: str, value: Column) -> Column:
    """A value as text that no other list of values can imitate: its length stands in front; null is a bare dash."""
    text = (F.unix_micros(value) if name in ("arrival_time", "event_time") else value).cast("string")
    return F.coalesce(F.concat(F.length(text).cast("string"), F.lit(":"), text), F.lit("-"))
