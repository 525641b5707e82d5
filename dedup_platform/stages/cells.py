"""Which cell a row belongs to, as Spark columns."""

from datetime import timedelta

from pyspark.sql import Column, functions as F

from dedup_platform.lateness import NO_ENTITY


def partition_ordinal(time: Column, length: timedelta) -> Column:
    """The ordinal (days or hours since 1970) of the partition that a time falls into; null for a null time."""
    # Whole-number division: as doubles, times beyond the year 2255 would be rounded across a partition's edge.
    return F.call_function("div", F.unix_micros(time), F.lit(microseconds(length))).cast("int")


def bucket(buckets: int, catalog: str) -> Column:
    """The bucket of `entity_id` by Iceberg's own transform; `NO_ENTITY` for rows without an entity."""
    return F.coalesce(F.expr(f"{catalog}.system.bucket({buckets}, entity_id)"), F.lit(NO_ENTITY))


def microseconds(duration: timedelta) -> int:
    """A duration in whole microseconds, exact."""
    return duration // timedelta(microseconds=1)
