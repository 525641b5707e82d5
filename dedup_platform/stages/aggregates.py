"""The aggregates of sessions: computed once over events, and once more over fragments."""

from pyspark.sql import Column, functions as F

from dedup_platform.stream import Stream
from dedup_platform.tables import aggregate_type


def over_events(stream: Stream, order: Column) -> list[Column]:
    """The aggregates of a group of events; `order` decides which event is first and last."""
    return [
        _aggregate(aggregate.function, F.col(aggregate.attribute), order, aggregate_type(stream, aggregate)).alias(name)
        for name, aggregate in stream.sessions.aggregates.items()
    ]


def over_fragments(stream: Stream, order: Column) -> list[Column]:
    """The same aggregates from those of fragments, which do not overlap in time."""
    return [
        _aggregate(
            "sum" if aggregate.function == "count" else aggregate.function,
            F.col(name),
            order,
            aggregate_type(stream, aggregate),
        ).alias(name)
        for name, aggregate in stream.sessions.aggregates.items()
    ]


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
