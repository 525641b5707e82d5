"""The partition that a time lies in."""

from datetime import timedelta

import polars as pl

from dedup_platform.planning.moments import in_microseconds


def partition_ordinal(time: pl.Expr, length: timedelta) -> pl.Expr:
    """Ordinal of the partition (of this length) that each time lies in, null for none."""
    return time.dt.epoch("us") // in_microseconds(length)
