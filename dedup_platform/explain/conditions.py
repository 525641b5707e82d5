"""Conditions over rows as PyIceberg takes them, from which partitions and bounds in manifests leave out files."""

from collections.abc import Iterable, Mapping
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
    IsNull,
    LessThan,
    LessThanOrEqual,
    Or,
)

from dedup_platform.planning.cells import contiguous
from dedup_platform.stream import Stream


def equal(values: Mapping[str, Any]) -> BooleanExpression:
    """That each of these columns has its value, null among them."""
    return all_of(*(IsNull(name) if value is None else EqualTo(name, value) for name, value in values.items()))


def all_of(*conditions: BooleanExpression) -> BooleanExpression:
    """That all of these hold."""
    return reduce(And, conditions, AlwaysTrue())


def any_of(*conditions: BooleanExpression) -> BooleanExpression:
    """That one of these holds at least."""
    return reduce(Or, conditions, AlwaysFalse())


def between(column: str, first: datetime, last: datetime) -> BooleanExpression:
    """That a time is neither before the first nor after the last."""
    return And(GreaterThanOrEqual(column, first), LessThanOrEqual(column, last))


def in_partitions(stream: Stream, column: str, partitions: Iterable[int]) -> BooleanExpression:
    """That a time lies in one of these partitions."""
    bounds = (stream.partitions.bounds(run[0], run[-1]) for run in contiguous(partitions))
    return any_of(
        *(
            GreaterThanOrEqual(column, start)
            if end is None
            else And(GreaterThanOrEqual(column, start), LessThan(column, end))
            for start, end in bounds
        )
    )
