"""Cells as conditions over rows, in a form that Iceberg answers from partition values alone."""

from collections.abc import Iterable

from pyspark.sql import Column, functions as F

from dedup_platform.lateness import NO_ENTITY, Cell, contiguous, rectangles
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME


def within(stream: Stream, table: str, cells: Iterable[Cell], buckets: int) -> Column:
    """The condition that a row of this table lies in these cells of `buckets` buckets a partition."""
    column = F.col(PARTITION_TIME[table])
    condition = F.lit(False)
    for partitions, in_buckets in rectangles(cells):
        times = F.lit(False)
        for ordinals in contiguous(partitions):
            start, end = stream.partitions.start_of(ordinals[0]), stream.partitions.start_of(ordinals[-1] + 1)
            times = times | ((column >= F.lit(start)) & (column < F.lit(end)))
        condition = condition | (times & _in_buckets(in_buckets, buckets))
    return condition


def _in_buckets(chosen: tuple[int, ...], buckets: int) -> Column:
    if len(chosen) == buckets + 1:
        return F.lit(True)
    condition = F.col("entity_id").isNull() if NO_ENTITY in chosen else F.lit(False)
    for bucket in chosen:
        if bucket != NO_ENTITY:
            condition = condition | (F.expr(f"{CATALOG}.system.bucket({buckets}, entity_id)") == bucket)
    return condition
