"""Conditions over rows as PyIceberg takes them, from which partitions and bounds in manifests leave out files."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    Or,
)

from dedup_platform.planning.cells import contiguous
from dedup_platform.stream import Stream

_ALL: BooleanExpression = AlwaysTrue()
_NONE: BooleanExpression = AlwaysFalse()


def equal(values: Mapping[str, Any]) -> BooleanExpression:
    """That each of these columns has its value, null among them."""
    return all_of(*map(_is, values.keys(), values.values()))


def unequal(column: str, value: Any) -> BooleanExpression:
    """That a column has another value."""
    return NotEqualTo(term=column, value=value)


def one_of(column: str, values: Collection[Any]) -> BooleanExpression:
    """That a column has one of these values."""
    return In(term=column, literals=values)


def all_of(*conditions: BooleanExpression) -> BooleanExpression:
    """That all of these hold."""
    return reduce(And, conditions, _ALL)


def between(column: str, first: datetime, last: datetime) -> BooleanExpression:
    """That a time is neither before the first nor after the last."""
    return And(_from(column, first), _to(column, last))


def spans(first: str, last: str, time: datetime) -> BooleanExpression:
    """That a time is neither before the one column nor after the other."""
    return And(_to(first, time), _from(last, time))


def in_partitions(stream: Stream, column: str, partitions: Iterable[int]) -> BooleanExpression:
    """That a time lies in one of these partitions."""
    bounds = (stream.partitions.bounds(run[0], run[-1]) for run in contiguous(partitions))
    ranges = (
        _from(column, start) if end is None else And(_from(column, start), LessThan(term=column, value=end))
        for start, end in bounds
    )
    return reduce(Or, ranges, _NONE)


def _is(column: str, value: Any) -> BooleanExpression:
    return IsNull(term=column) if value is None else EqualTo(term=column, value=value)


def _from(column: str, first: datetime) -> BooleanExpression:
    return GreaterThanOrEqual(term=column, value=first)


def _to(column: str, last: datetime) -> BooleanExpression:
    return LessThanOrEqual(term=column, value=last)
