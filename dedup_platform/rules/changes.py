"""What one commit changed: the net difference of the rows that it took away and of those that it added.

Rows are the same by their key (`tables.ROW_KEY`), wherever they lie: a session whose start moves to another day is an
update. What was taken away and added again as it was is no change.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import FEED_OF, PARTITION_TIME, ROW_KEY, SESSIONS, column_names, told_names

DELETE, PREIMAGE, POSTIMAGE, INSERT = "delete", "update_preimage", "update_postimage", "insert"


class Difference(NamedTuple):
    """Changes of three kinds, in the order in which they are to be applied.

    Columns: `_change_type`, those of the table, and what is told of a change (`tables.told_names`). Of an update the
    row as it was comes right before the row as it is.
    """

    deletes: pl.DataFrame
    updates: pl.DataFrame
    inserts: pl.DataFrame


class _AllTold(NamedTuple):
    """What is told of each row that is gone, that was updated or that is new."""

    gone: pl.DataFrame
    updated: pl.DataFrame
    new: pl.DataFrame


class _Matched(NamedTuple):
    """Rows that are gone, rows as they were and as they are, and new ones, each in the order of their keys."""

    gone: pl.DataFrame
    old: pl.DataFrame
    now: pl.DataFrame
    new: pl.DataFrame
    changed: pl.Series
    """Of each of `old` and `now`, the names of the columns that differ."""


def difference(before: pl.DataFrame, after: pl.DataFrame, stream: Stream, table: str) -> Difference:
    """What became of some rows (columns of the table) that a commit took away, and of those that it added.

    All of these rows that have one key, and of sessions all of an entity, must be given together.
    """
    names = column_names(stream, table)
    rows = _matched(before.select(names), after.select(names), table)
    tell = _told_of_sessions if table == SESSIONS else _told_of_events
    gone, updated, new = tell(rows, before, after, stream)
    matters = rows.changed.list.set_intersection(list(stream.publish.downstream)).list.len() > 0
    updated = updated.with_columns(rows.changed.alias("changed_columns"), matters.alias("is_downstream"))
    images = [
        _changes(rows.old, updated, PREIMAGE, stream, table),
        _changes(rows.now, updated, POSTIMAGE, stream, table),
    ]
    place = pl.int_range(len(updated), eager=True).alias("_place")
    in_turns = pl.concat([image.with_columns(place) for image in images]).sort("_place", maintain_order=True)
    return Difference(
        _changes(rows.gone, gone, DELETE, stream, table),
        in_turns.drop("_place"),
        _changes(rows.new, new, INSERT, stream, table),
    )


def insertion(rows: pl.DataFrame, stream: Stream, table: str) -> pl.DataFrame:
    """All of these rows as new ones, in their order."""
    return _changes(rows.select(column_names(stream, table)), _new(len(rows)), INSERT, stream, table)


def told_of_insertion(stream: Stream, table: str) -> dict[str, Any]:
    """What a feed tells of a new row besides its columns, and in whichever commit: the same of each."""
    return _changes(pl.DataFrame(), _new(1), INSERT, stream, table).row(0, named=True)


def _changes(rows: pl.DataFrame, told: pl.DataFrame, kind: str, stream: Stream, table: str) -> pl.DataFrame:
    kinds = pl.repeat(kind, len(told), dtype=pl.String, eager=True).alias("_change_type")
    # The stream may have columns of these names: then ours begin with an underscore.
    named = told_names(stream, FEED_OF[table])
    return pl.concat([kinds.to_frame(), rows, told.select(*named).rename(named)], how="horizontal")


def _new(rows: int) -> pl.DataFrame:
    return _told(pl.repeat("new", rows, dtype=pl.String, eager=True))


def _told(reason: pl.Series, **others: pl.Series) -> pl.DataFrame:
    """What is told of some changes. What is not given is null, and they matter to everybody."""
    defaults = {
        "merged_into": pl.lit(None, pl.String),
        "split_from": pl.lit(None, pl.String),
        "changed_columns": pl.lit(None, pl.List(pl.String)),
        "is_db_update": pl.lit(value=True),
        "is_downstream": pl.lit(value=True),
    }
    return reason.alias("reason").to_frame().with_columns(**(defaults | others))


def _matched(before: pl.DataFrame, after: pl.DataFrame, table: str) -> _Matched:
    key = list(ROW_KEY[table])
    one, other = _keys(before, key, "_before"), _keys(after, key, "_after")
    pairs = one.join(other, on=[*key, "_copy"], how="full", nulls_equal=True, coalesce=True).sort(key)
    gone = before[pairs.filter(pl.col("_after").is_null())["_before"]]
    new = after[pairs.filter(pl.col("_before").is_null())["_after"]]
    both = pairs.drop_nulls(["_before", "_after"])
    old, now = before[both["_before"]], after[both["_after"]]
    others = [name for name in before.columns if name not in key]
    differs = pl.DataFrame({name: old[name].ne_missing(now[name]) for name in others})
    names = (pl.when(pl.col(name)).then(pl.lit(name)) for name in others)
    changed = differs.select(pl.concat_list(names).list.drop_nulls().alias("changed")).to_series()
    is_changed = changed.list.len() > 0
    return _Matched(gone, old.filter(is_changed), now.filter(is_changed), new, changed.filter(is_changed))


def _keys(rows: pl.DataFrame, key: Sequence[str], number: str) -> pl.DataFrame:
    """The keys of some rows with their numbers. `_copy` tells rows apart that somebody wrote twice."""
    keys = rows.select(key).with_row_index(number)
    if not rows.select(key).is_duplicated().any():
        return keys.with_columns(_copy=pl.lit(0, pl.UInt32))
    return keys.with_columns(_copy=pl.int_range(pl.len(), dtype=pl.UInt32).over(key))


def _told_of_events(rows: _Matched, before: pl.DataFrame, after: pl.DataFrame, stream: Stream) -> _AllTold:  # noqa: ARG001
    """A copy that arrived earlier takes over: its key goes with one record and comes with another."""
    gone, new = (_shares_key(one, other, stream) for one, other in ((rows.gone, rows.new), (rows.new, rows.gone)))
    moved = _moves(rows, stream, "event_time")
    return _AllTold(
        _told(_first_true({"corrected": gone}, "erased")),
        _told(_first_true({"moved": moved}, "corrected")),
        _told(_first_true({"corrected": new}, "new")),
    )


def _told_of_sessions(rows: _Matched, before: pl.DataFrame, after: pl.DataFrame, stream: Stream) -> _AllTold:
    """Where a retired session's events went, and where a new session's come from.

    The first-arrived event of a retired session is now in one that spans its time and has an event that arrived before
    it: else that would bear the old id.
    """
    heirs = _overlapping(_where_first_arrived(rows.gone), after, arrived_by_then=True)
    remains = _overlapping(rows.gone, after)
    origins = _overlapping(rows.new, before)
    is_heir = [each["session_id"].is_in(heirs.drop_nulls().implode()) for each in (rows.now, rows.new)]
    new = _first_true({"merged": is_heir[1], "split": origins.is_not_null()}, "new")
    split_from = pl.DataFrame({"new": new, "origin": origins}).select(
        pl.when(pl.col("new") == "split").then(pl.col("origin"))
    )
    growth = rows.now["event_count"] - rows.old["event_count"]
    updated = {
        "merged": is_heir[0],
        "split": rows.now["session_id"].is_in(split_from.to_series().drop_nulls().implode()),
        "moved": _moves(rows, stream, PARTITION_TIME[SESSIONS]),
        "grown": growth > 0,
        "shrunk": growth < 0,
    }
    gone = _first_true({"merged": heirs.is_not_null(), "split": remains.is_not_null()}, "erased")
    return _AllTold(
        _told(gone, merged_into=heirs),
        _told(_first_true(updated, "corrected")),
        _told(new, split_from=split_from.to_series()),
    )


def _where_first_arrived(sessions: pl.DataFrame) -> pl.DataFrame:
    """Sessions with the moment of their first-arrived event in place of their span, where it is known."""
    moment = pl.col("first_arrived_event_time")
    return sessions.with_columns(pl.coalesce(moment, each).alias(each) for each in ("started_at", "ended_at"))


def _first_true(reasons: Mapping[str, pl.Series], otherwise: str) -> pl.Series:
    """Of each row the first of these reasons that holds."""
    found = pl.coalesce(*(pl.when(pl.col(reason)).then(pl.lit(reason)) for reason in reasons), pl.lit(otherwise))
    return pl.DataFrame(reasons).select(found.alias("reason")).to_series()


def _moves(rows: _Matched, stream: Stream, column: str) -> pl.Series:
    ordinal = partition_ordinal(pl.col(column), stream.partitions.length)
    old, now = (each.select(ordinal).to_series() for each in (rows.old, rows.now))
    return old != now


def _shares_key(rows: pl.DataFrame, others: pl.DataFrame, stream: Stream) -> pl.Series:
    """Whether each row has the key of an event that is among the others."""
    key = list(stream.deduplicate.key)
    found = others.select(key).unique().with_columns(_found=pl.lit(value=True))
    joined = rows.select(key).join(found, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined["_found"].is_not_null()


def _overlapping(sessions: pl.DataFrame, others: pl.DataFrame, *, arrived_by_then: bool = False) -> pl.Series:
    """For each session the id of the first one of its entity among the others whose time overlaps its own, or null.

    Sessions of an entity overlap none among themselves, on either side: so those that one overlaps follow one another,
    and there are no more pairs than sessions. With `arrived_by_then` only those count whose first event arrived no
    later.
    """
    right = others.sort("entity_id", "started_at").select(
        "entity_id", "started_at", "ended_at", id="session_id", arrived="first_arrived_at"
    )
    right = right.with_row_index("at")
    begins = right.select("entity_id", pl.col("ended_at").alias("_time"), first="at").sort("_time")
    ends = right.select("entity_id", pl.col("started_at").alias("_time"), last="at").sort("_time")
    left = sessions.select("entity_id", "started_at", "ended_at", "first_arrived_at").with_row_index("number")
    left = left.sort("started_at").join_asof(
        begins, left_on="started_at", right_on="_time", by="entity_id", strategy="forward", check_sortedness=False
    )
    left = left.sort("ended_at").join_asof(
        ends, left_on="ended_at", right_on="_time", by="entity_id", strategy="backward", check_sortedness=False
    )
    overlaps = left.filter(pl.col("first") <= pl.col("last"))
    pairs = overlaps.select(
        "number", "first_arrived_at", at=pl.int_ranges("first", pl.col("last").cast(pl.Int64) + 1)
    ).explode("at")
    found = pairs.join(right.select(pl.col("at").cast(pl.Int64), "id", "arrived"), on="at")
    if arrived_by_then:
        found = found.filter(pl.col("arrived") <= pl.col("first_arrived_at"))
    first = found.sort("at").unique("number", keep="first", maintain_order=True)
    numbers = pl.int_range(len(sessions), dtype=pl.UInt32, eager=True).alias("number").to_frame()
    return numbers.join(first, on="number", how="left", maintain_order="left")["id"]
