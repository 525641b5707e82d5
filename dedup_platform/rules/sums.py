"""Sums of decimals so large that their own type may not hold them."""

from decimal import Decimal
from typing import TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

_TWICE_THE_DIGITS = 76

Number = TypeVar("Number", pl.Expr, pl.Series)


def sum_or_null(name: str, largest: Decimal) -> pl.Expr:
    """A sum as sessions have it: null where it overflowed its type."""
    value = pl.col(name)
    return pl.when(_fits(value, largest)).then(value).alias(name)


def merged_sums(values: pl.Series, groups: pl.Series, largest: Decimal) -> pl.Series:
    """As `exact_sums`, of sums: where one of them overflowed, so has their sum, whatever the others are."""
    sums = exact_sums(values, groups, largest)
    overflowed = groups.filter(~_fits(values, largest).fill_null(value=True))
    numbers = groups.unique().sort()
    return sums.zip_with(~numbers.is_in(overflowed.implode()), pl.Series([largest], dtype=sums.dtype)).alias(
        values.name
    )


def exact_sums(values: pl.Series, groups: pl.Series, largest: Decimal) -> pl.Series:
    """The sum of the decimals of each group, in the order of the groups' numbers; null where all are null.

    Exact in whatever order, whatever is reached on the way. A sum beyond `largest`, or below its negative, is that
    number.
    """
    scale = -int(largest.as_tuple().exponent)
    wide = pa.decimal256(_TWICE_THE_DIGITS, scale)
    grouped = pa.table({"group": groups.to_arrow(), "value": values.to_arrow().cast(wide)}).group_by("group")
    sums = grouped.aggregate([("value", "sum")]).sort_by("group")["value_sum"]
    for limit, is_beyond in ((largest, pc.greater), (largest.copy_negate(), pc.less)):
        sums = pc.if_else(is_beyond(sums, pa.scalar(limit, wide)), pa.scalar(limit, wide), sums)
    found = pl.from_arrow(sums.cast(pa.decimal128(len(largest.as_tuple().digits), scale)))
    assert isinstance(found, pl.Series)
    return found


def _fits(value: Number, largest: Decimal) -> Number:
    return (value < largest) & (value > largest.copy_negate())
