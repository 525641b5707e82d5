"""Which cell a row belongs to, as Spark columns."""

from datetime import timedelta

from pyspark.sql import Column, functions as F

from dedup_platform.planning.moments import in_microseconds


def partition_ordinal(time: Column, length: timedelta) -> Column:
    """The ordinal (days or hours since 1970) of the partition that a time falls into; null for a null time."""
    # Whole-number division: as doubles, times beyond the year 2255 would be rounded across a partition's edge.
    return F.call_function("div", F.unix_micros(time), F.lit(in_microseconds(length))).cast("int")
