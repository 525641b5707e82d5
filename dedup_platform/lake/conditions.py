"""Cells as conditions over rows, in a form that Iceberg answers from partition values alone."""

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, functions as F

from dedup_platform.planning.cells import NO_ENTITY, Cell, contiguous, rectangles
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME


def within(stream: Stream, table: str, cells: Iterable[Cell], buckets: int) -> Column:
    """The condition that a row of this table lies in these cells of `buckets` buckets a partition."""
    column = F.col(PARTITION_TIME[table])
    return any_of(
        [
            in_partitions(stream, column, partitions) & _in_buckets(in_buckets, buckets)
            for partitions, in_buckets in rectangles(cells)
        ]
    )


def in_partitions(stream: Stream, time: Column, partitions: Iterable[int]) -> Column:
    """The condition that a time lies in one of these partitions."""
    bounds = [stream.partitions.bounds(ordinals[0], ordinals[-1]) for ordinals in contiguous(partitions)]
    return any_of(
        [time >= F.lit(start) if end is None else (time >= F.lit(start)) & (time < F.lit(end)) for start, end in bounds]
    )


def any_of(conditions: Sequence[Column]) -> Column:
    """Whether one of the conditions holds at least, as a balanced tree.

    One after the other they would be nested as deep as they are many, and Spark Connect reads a plan of 1,024 levels.
    """
    if len(conditions) < 2:
        return conditions[0] if conditions else F.lit(False)
    half = len(conditions) // 2
    return any_of(conditions[:half]) | any_of(conditions[half:])


def _in_buckets(chosen: tuple[int, ...], buckets: int) -> Column:
    if len(chosen) == buckets + 1:
        return F.lit(True)
    own = F.expr(f"{CATALOG}.system.bucket({buckets}, entity_id)")
    return any_of([F.col("entity_id").isNull() if bucket == NO_ENTITY else own == bucket for bucket in chosen])
