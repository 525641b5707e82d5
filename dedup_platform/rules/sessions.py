"""Rules 4 and 5 across partitions, over the fragments of one bucket in memory: chains of fragments become sessions."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

import polars as pl

from dedup_platform.planning.moments import in_microseconds
from dedup_platform.rules.sums import merged_sums, sum_or_null
from dedup_platform.stream import Aggregate, Stream
from dedup_platform.tables import ARRIVAL_ORDER, SESSIONS, column_names, large_sums


class Stitched(NamedTuple):
    """What one slice of fragments brought: whole sessions, and the fragments of chains that may go on in the next."""

    sessions: pl.DataFrame
    unfinished: pl.DataFrame


def stitch(fragments: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """The sessions (columns of `sessions`) that these fragments (columns of `session_fragments`) form.

    Two fragments of an entity that follow one another belong together if the gap between them is at most the timeout,
    whatever empty partitions lie between. A session is whole only if all fragments of its chain are given.
    """
    # A fragment that keeps further from both edges of its partition than the timeout reaches no other: it is a session.
    is_near = _is_near_an_edge(stream)
    alone = fragments.filter(~is_near).rename({"first_event_time": "started_at", "last_event_time": "ended_at"})
    sessions = pl.concat([alone, _join(fragments.filter(is_near), stream)], how="diagonal_relaxed")
    return sessions.with_columns(
        pl.col("first_arrived").struct.field("session_id").alias("session_id"),
        pl.col("first_arrived").struct.field("arrival_time").alias("first_arrived_at"),
        pl.col("first_arrived").struct.field("event_time").alias("first_arrived_event_time"),
        *(sum_or_null(name, largest) for name, largest in large_sums(stream).items()),
    ).select(column_names(stream, SESSIONS))


def stitch_slices(slices: Iterable[tuple[pl.DataFrame, datetime | None]], stream: Stream) -> Iterator[Stitched]:
    """The same, of fragments that come slice by slice in order of time, each with the moment when the next one begins.

    None ends them. Nothing but the chains that may go on stays in memory from one slice to the next.
    """
    kept: pl.DataFrame | None = None
    for fragments, next_begins in slices:
        seen = fragments if kept is None else pl.concat([kept, fragments])
        is_open = _may_go_on(seen, next_begins, stream)
        kept = seen.filter(is_open)
        yield Stitched(stitch(seen.filter(~is_open), stream), kept)


def chained(fragments: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """The fragments in order, with the `_number` of the chain that each belongs to."""
    in_order = fragments.sort("entity_id", "first_event_time")
    is_new = pl.col("entity_id") != pl.col("entity_id").shift()
    splits = pl.col("first_event_time") - pl.col("last_event_time").shift() > stream.session_timeout
    return in_order.with_columns(_number=(is_new | splits).fill_null(value=True).cum_sum())


def near_edges(fragments: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    """Those fragments that may belong to a session of more than one."""
    return fragments.filter(_is_near_an_edge(stream))


def _may_go_on(fragments: pl.DataFrame, next_begins: datetime | None, stream: Stream) -> pl.Series:
    """Whether each fragment belongs to a chain that what begins at that moment can still join."""
    if next_begins is None:
        return pl.repeat(False, fragments.height, eager=True)
    chains = chained(fragments.with_row_index("_row"), stream)
    reaches = pl.lit(next_begins) - pl.max("last_event_time").over("_number") <= stream.session_timeout
    return chains.select("_row", reaches.alias("_open")).sort("_row")["_open"]


def _join(fragments: pl.DataFrame, stream: Stream) -> pl.DataFrame:
    numbered = chained(fragments, stream)
    order = [pl.col("first_arrived").struct.field(name) for name in ARRIVAL_ORDER]
    aggregates, large = stream.aggregates, large_sums(stream)
    joined = numbered.group_by("_number", maintain_order=True).agg(
        pl.first("entity_id"),
        pl.first("first_event_time").alias("started_at"),
        pl.last("last_event_time").alias("ended_at"),
        pl.sum("event_count"),
        pl.col("first_arrived").sort_by(order).first(),
        *(_merge(stream, name, aggregate) for name, aggregate in aggregates.items() if name not in large),
    )
    sums = (merged_sums(numbered[name], numbered["_number"], largest) for name, largest in large.items())
    return joined.with_columns(*sums).drop("_number")


def _merge(stream: Stream, name: str, aggregate: Aggregate) -> pl.Expr:
    """An aggregate of fragments that follow one another, from theirs."""
    value = pl.col(name)
    match aggregate.function:
        case "count":
            return value.sum()
        case "sum":
            return pl.when(value.count() > 0).then(value.sum()).alias(name)
        case "min":
            return value.min()
        case "max":
            # As in SQL, NaN sorts last.
            return value.nan_max() if stream.attributes[aggregate.attribute].type == "double" else value.max()
        case "first":
            return value.first()
        case "last":
            return value.last()
    raise ValueError(f"no aggregate is called {aggregate.function!r}")


def _is_near_an_edge(stream: Stream) -> pl.Expr:
    """Whether a fragment is at most the timeout away from the start or the end of its partition."""
    length, timeout = in_microseconds(stream.partitions.length), in_microseconds(stream.session_timeout)
    after_start = pl.col("first_event_time").dt.epoch("us") % length
    before_end = length - pl.col("last_event_time").dt.epoch("us") % length
    return (after_start <= timeout) | (before_end <= timeout)
