"""What links the partitions of one bucket, over narrow columns in memory: repeated keys, and sessions that span."""

from functools import reduce
from operator import and_

import polars as pl

from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.rules.sessions import chained
from dedup_platform.stream import Stream

Pair = tuple[int, int]
"""The ordinals of two partitions, the earlier one first."""


def key_columns(stream: Stream) -> list[str]:
    """The columns of `raw_events` that tell which records are copies of each other."""
    return list(dict.fromkeys((*stream.deduplicate.key, "event_time")))


def linked_partitions(records: pl.DataFrame, stream: Stream) -> set[Pair]:
    """The pairs of partitions that hold records (`key_columns`) of one key within the window of each other.

    Pairs that follow one another in time suffice: whatever lies between two records within the window is within it too.
    """
    key, time = list(stream.deduplicate.key), pl.col("event_time")
    repeated = records.filter(records.select(key).hash_rows().is_duplicated()).unique().sort([*key, "event_time"])
    is_same = reduce(and_, (pl.col(name).eq_missing(pl.col(name).shift()) for name in key))
    is_near = time - time.shift() <= stream.deduplicate.window
    partition = partition_ordinal(time, stream.partitions.length)
    pairs = repeated.select(partition.shift().alias("earlier"), partition, is_same & is_near)
    return _apart(pairs.filter(pl.last()).select(pl.nth(0, 1)))


def spans_of_chains(fragments: pl.DataFrame, stream: Stream) -> set[Pair]:
    """First and last partition of the sessions of more than one that fragments form.

    Takes `entity_id`, `first_event_time` and `last_event_time` of `session_fragments`; those that keep away from the
    edges of their partition (`near_edges`) may be left out.
    """
    chains = chained(fragments, stream).group_by("_number").agg(pl.min("first_event_time"), pl.max("last_event_time"))
    return _spans(chains, "first_event_time", "last_event_time", stream)


def spans_of_sessions(sessions: pl.DataFrame, stream: Stream) -> set[Pair]:
    """First and last partition of sessions (`started_at`, `ended_at`) that reach over more than one."""
    return _spans(sessions, "started_at", "ended_at", stream)


def _spans(rows: pl.DataFrame, first: str, last: str, stream: Stream) -> set[Pair]:
    return _apart(rows.select(partition_ordinal(pl.col(name), stream.partitions.length) for name in (first, last)))


def _apart(pairs: pl.DataFrame) -> set[Pair]:
    return set(pairs.filter(pl.nth(0) < pl.nth(1)).unique().iter_rows())
