"""Rule 4 within one partition, over a cell in memory: the sessions of a partition seen alone."""

from hashlib import sha256

import polars as pl

from dedup_platform.rules.sums import exact_sums
from dedup_platform.stream import Aggregate, Stream
from dedup_platform.tables import ARRIVAL_ORDER, SESSION_FRAGMENTS, aggregate_type, column_names, large_sums

_ORDERED = ("first", "last")


def columns_read(stream: Stream) -> list[str]:
    """The columns of `deduplicated_events` that fragments are made of."""
    attributes = [aggregate.attribute for aggregate in stream.aggregates.values()]
    return list(dict.fromkeys(("entity_id", "event_time", *ARRIVAL_ORDER, *stream.deduplicate.key, *attributes)))


def fragment(events: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """The fragments of a whole cell's events (`columns_read`); events without an entity are in none.

    A gap longer than the timeout splits, an equal one does not.
    """
    aggregates, large = stream.aggregates, large_sums(stream)
    is_ordered = any(aggregate.function in _ORDERED for aggregate in aggregates.values())
    order = ["entity_id", "event_time", *(ARRIVAL_ORDER if is_ordered else ())]
    in_order = events.filter(pl.col("entity_id").is_not_null()).sort(order)
    is_new = pl.col("entity_id") != pl.col("entity_id").shift()
    splits = pl.col("event_time") - pl.col("event_time").shift() > stream.session_timeout
    numbered = in_order.with_columns(_number=(is_new | splits).fill_null(value=True).cum_sum())
    fragments = numbered.group_by("_number", maintain_order=True).agg(
        pl.first("entity_id"),
        pl.first("event_time").alias("first_event_time"),
        pl.last("event_time").alias("last_event_time"),
        pl.len().cast(pl.Int64).alias("event_count"),
        *(_aggregate(stream, each).alias(name) for name, each in aggregates.items() if name not in large),
    )
    sums = (
        exact_sums(numbered[aggregates[name].attribute], numbered["_number"], largest).alias(name)
        for name, largest in large.items()
    )
    return fragments.with_columns(_first_arrived(numbered, stream), *sums).select(
        column_names(stream, SESSION_FRAGMENTS)
    )


def _aggregate(stream: Stream, aggregate: Aggregate) -> pl.Expr:
    value = pl.col(aggregate.attribute)
    is_double = stream.attributes[aggregate.attribute].type == "double"
    match aggregate.function:
        case "count":
            return value.count().cast(pl.Int64)
        case "sum":
            scale = int(aggregate_type(stream, aggregate).removesuffix(")").rpartition(",")[2])
            total = value.cast(pl.Decimal(38, scale)).sum()
            return pl.when(value.count() > 0).then(total)
        case "min":
            return value.min()
        case "max":
            return value.nan_max() if is_double else value.max()  # as in SQL, NaN sorts last
        case "first":
            return value.first()
        case "last":
            return value.last()
    raise ValueError(f"no aggregate is called {aggregate.function!r}")


def _first_arrived(numbered: pl.DataFrame, stream: Stream) -> pl.Series:
    """The arrival and the time of each fragment's first-arrived event, and the id that its session bears (rule 5)."""
    earliest = pl.col("arrival_time") == pl.col("arrival_time").min().over("_number")
    first = (
        numbered.filter(earliest).sort("_number", *ARRIVAL_ORDER).unique("_number", keep="first", maintain_order=True)
    )
    identity = ["entity_id", "arrival_time", "event_time", *stream.deduplicate.key]
    texts = first.select(pl.concat_str(_unambiguous(name, first.schema[name]) for name in identity)).to_series()
    ids = [sha256(text.encode()).hexdigest()[:32] for text in texts]
    with_id = first.select(*ARRIVAL_ORDER, pl.Series("session_id", ids, pl.String), "event_time")
    return with_id.to_struct("first_arrived")


def _unambiguous(name: str, kind: pl.DataType) -> pl.Expr:
    """A value as text that no other list of values can imitate: its length stands in front; null is a bare dash."""
    value = pl.col(name).dt.epoch("us") if kind == pl.Datetime else pl.col(name)
    text = value.cast(pl.String)
    return pl.concat_str(text.str.len_chars(), pl.lit(":"), text).fill_null("-")
