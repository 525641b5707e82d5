"""The aggregates of sessions: computed once over events, and once more over fragments."""

from collections.abc import Callable
from decimal import Decimal, localcontext

from pyspark.sql import Column, functions as F

from dedup_platform.stream import Stream
from dedup_platform.tables import aggregate_type, large_sums

_LOWER_DIGITS = 20
"""The digits of the lower half of a decimal: the other 18 of its 38 fit a long."""


def over_events(stream: Stream, order: Column) -> list[Column]:
    """The aggregates of a group of events; `order` decides which event is first and last."""
    large = large_sums(stream)
    return [
        _exact_sum(F.col(aggregate.attribute), large[name]).alias(name)
        if name in large
        else _aggregate(aggregate.function, F.col(aggregate.attribute), order, aggregate_type(stream, aggregate)).alias(
            name
        )
        for name, aggregate in stream.aggregates.items()
    ]


def over_fragments(stream: Stream, order: Column) -> list[Column]:
    """The same aggregates from those of fragments, which do not overlap in time."""
    large = large_sums(stream)
    return [
        _merged_sum(F.col(name), large[name]).alias(name)
        if name in large
        else _aggregate(
            "sum" if aggregate.function == "count" else aggregate.function,
            F.col(name),
            order,
            aggregate_type(stream, aggregate),
        ).alias(name)
        for name, aggregate in stream.aggregates.items()
    ]


def sums_or_null(stream: Stream) -> dict[str, Column]:
    """The sums that can overflow their type, as sessions have them: then null."""
    return {name: F.when(_fits(F.col(name), largest), F.col(name)) for name, largest in large_sums(stream).items()}


def _merged_sum(value: Column, largest: Decimal) -> Column:
    """Of sums: where one of them overflowed, so has their sum, whatever the others are."""
    fits = F.min(_fits(value, largest))
    return F.when(~fits, _literal(largest)).otherwise(_exact_sum(value, largest))


def _fits(value: Column, largest: Decimal) -> Column:
    # Not by abs: Spark's rounds to 34 digits.
    return (value < _literal(largest)) & (value > _literal(largest.copy_negate()))


def _exact_sum(value: Column, largest: Decimal) -> Column:
    """The sum of decimals, clamped to `largest` and its negative: exact, whatever is reached on the way.

    Spark's own raises where a sum on the way needs more digits than a decimal has; so it sums halves of the digits.
    """
    kind, scale = _type(largest), _scale(largest)
    whole, unit = value.cast(kind), _literal(Decimal((0, (1,), _LOWER_DIGITS - scale))).cast(kind)
    higher = F.sum(F.call_function("div", whole, unit).cast("decimal(38,0)"))
    return F.udf(_joined(largest), kind, useArrow=False)(higher, F.sum(whole % unit))


def _joined(largest: Decimal) -> Callable[[Decimal | None, Decimal | None], Decimal | None]:
    """Of the sums of the higher and of the lower halves: the whole, clamped to `largest` and its negative."""
    place = _LOWER_DIGITS - _scale(largest)

    def joined(higher: Decimal | None, lower: Decimal | None) -> Decimal | None:
        if higher is None or lower is None:
            return None
        with localcontext(prec=80):
            total = higher.scaleb(place) + lower
        return total if total.copy_abs() < largest else largest.copy_sign(total)

    return joined


def _literal(number: Decimal) -> Column:
    return F.lit(f"{number:f}").cast(f"decimal(38,{max(_scale(number), 0)})")


def _type(largest: Decimal) -> str:
    return f"decimal(38,{_scale(largest)})"


def _scale(number: Decimal) -> int:
    return -int(number.as_tuple().exponent)


def _aggregate(function: str, value: Column, order: Column, result: str) -> Column:
    match function:
        case "count":
            return F.count(value)
        case "sum":
            # Cast first: a sum of longs may pass what a long can hold.
            return F.sum(value.cast(result)).cast(result)
        case "min":
            return F.min(value)
        case "max":
            return F.max(value)
        case "first":
            return F.min_by(value, order)
        case "last":
            return F.max_by(value, order)
    raise ValueError(f"no aggregate is called {function!r}")
