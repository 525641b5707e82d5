"""What every sink must do, tried on a real one: for sinks of one's own, too."""

from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import polars as pl

from dedup_platform.errors import SinkTakenError
from dedup_platform.sinks import Batch, Looks, Position, Refusal, Sink, Target
from dedup_platform.tables import SESSIONS, Column

__all__ = ["TARGET", "check_sink", "some_changes"]

TARGET = Target(
    stream="conformance",
    sink="tried",
    table=SESSIONS,
    columns=(
        Column("session_id", "string"),
        Column("started_at", "timestamp"),
        Column("event_count", "long"),
        Column("page", "string"),
        Column("revenue", "decimal(38,2)"),
    ),
    key=("session_id",),
)
"""What the sink that is tried is to hold."""

_AT = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
_FEED, _OTHER_FEED = "a feed", "another feed"
_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "_change_type": pl.String,
    "_commit_version": pl.Int64,
    "_change_ordinal": pl.Int64,
    "_commit_timestamp": pl.Datetime("us", "UTC"),
    "_commit_snapshot_id": pl.Int64,
    "session_id": pl.String,
    "started_at": pl.Datetime("us", "UTC"),
    "event_count": pl.Int64,
    "page": pl.String,
    "revenue": pl.Decimal(38, 2),
    "reason": pl.String,
    "merged_into": pl.String,
    "split_from": pl.String,
    "changed_columns": pl.List(pl.String),
    "is_db_update": pl.Boolean,
    "is_downstream": pl.Boolean,
}

Counts = Mapping[str, int]
"""`session_id` -> `event_count`: enough to tell which row is there."""


def check_sink(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    """Try a sink of `TARGET` whose store is empty: `make` opens none yet, `read` asks the store what is there.

    Raises AssertionError, which says what is not as it must be.
    """
    _begins_in_parts(make, read)
    _follows(make, read)
    _is_taken_over(make, read)
    _keeps_refusals(make, read)
    _writes_again(make, read)
    _is_looked_at(make)
    _begins_anew(make, read)


def _begins_in_parts(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    half, whole = Position(_FEED, 7, 0, 70), Position(_FEED, 7)
    with closing(make()) as sink:
        assert sink.open().position is None, "a new sink has a position"
        sink.write(Batch(None, half, some_changes(("insert", 7, 0, "a", 1)), begins=True))
    with closing(make()) as sink:
        assert sink.open().position == half, "a sink forgets how far it has come"
        sink.write(Batch(half, whole, some_changes(("insert", 7, 1, "b", 1)), completes=True))
    assert read() == {"a": 1, "b": 1}, f"after a beginning in two parts there is {read()}"


def _follows(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    before, after = Position(_FEED, 7), Position(_FEED, 9)
    changes = some_changes(
        ("delete", 8, 0, "b", 1),
        ("update_preimage", 8, 1, "a", 1),
        ("update_postimage", 8, 2, "a", 2),
        ("insert", 8, 3, "c", 1),
        ("delete", 9, 0, "c", 1),
        ("insert", 9, 1, "b", 3),
    )
    with closing(make()) as sink:
        assert sink.open().position == before
        sink.write(Batch(before, after, changes))
        assert read() == {"a": 2, "b": 3}, f"two versions at once lead to {read()}"
        sink.write(Batch(after, Position(_FEED, 10), changes.clear()))
    with closing(make()) as sink:
        assert sink.open().position == Position(_FEED, 10), "a batch without rows moves no position"


def _is_taken_over(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    at = Position(_FEED, 10)
    with closing(make()) as sleeper, closing(make()) as owner:
        sleeper.open()
        owner.open()
        late = Batch(at, Position(_FEED, 11), some_changes(("insert", 11, 0, "late", 1)))
        _refuses(sleeper, late, "one that was taken over")
        owner.write(late)
        _refuses(owner, late, "one that is somewhere else")
        _refuses(sleeper, Batch(late.after, Position(_FEED, 12), late.changes), "one that was taken over")
        assert read() == {"a": 2, "b": 3, "late": 1}, f"of one write by two there is {read()}"


def _refuses(sink: Sink, batch: Batch, who: str) -> None:
    try:
        sink.write(batch)
    except SinkTakenError:
        return
    raise AssertionError(f"a sink takes a batch from {who}")


def _keeps_refusals(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    at, then, last = (Position(_FEED, version) for version in (11, 12, 13))
    refusal = Refusal('["d"]', 12, 0, "too long")
    with closing(make()) as sink:
        sink.open()
        sink.write(Batch(at, then, some_changes().clear(), refused=[refusal]))
    with closing(make()) as sink:
        state = sink.open()
        assert state.position == then
        assert dict(state.refused) == {refusal.key: refusal}, f"of a refusal the sink keeps {state.refused}"
        sink.write(Batch(then, last, some_changes(("insert", 13, 0, "d", 1)), healed=[refusal.key]))
    with closing(make()) as sink:
        assert not sink.open().refused, "a row that was healed is still refused"
    assert read()["d"] == 1


def _writes_again(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    """Rows that somebody wants again, which are of no newer version than what is there."""
    at = Position(_FEED, 13)
    with closing(make()) as sink:
        sink.open()
        forced = some_changes(("delete", 13, 0, "b", 3), ("insert", 13, 1, "d", 5), ("insert", 13, 2, "c", 7))
        sink.write(Batch(at, at, forced, forced=True))
        assert read() == {"a": 2, "c": 7, "d": 5, "late": 1}, f"rows that are forced lead to {read()}"
        back = some_changes(("insert", 12, 0, "d", 1), ("insert", 12, 1, "b", 3), ("delete", 12, 2, "c", 7))
        sink.write(Batch(at, at, back, forced=True))
        assert read() == {"a": 2, "b": 3, "d": 1, "late": 1}, f"older rows that are forced lead to {read()}"
    with closing(make()) as sink:
        assert sink.open().position == at, "a forced batch moves the position"


def _is_looked_at(make: Callable[[], Sink]) -> None:
    """One that can be asked without being taken over."""
    at = Position(_FEED, 13)
    with closing(make()) as owner, closing(make()) as other:
        before = owner.open()
        if isinstance(other, Looks):
            found = other.look()
            assert (found.position, found.refused) == (before.position, before.refused), f"a look tells {found}"
            owner.write(Batch(at, at, some_changes()))


def _begins_anew(make: Callable[[], Sink], read: Callable[[], Counts]) -> None:
    """With another feed, whose versions are smaller."""
    at, half, whole = Position(_FEED, 13), Position(_OTHER_FEED, 2, 0, 20), Position(_OTHER_FEED, 2)
    with closing(make()) as sink:
        sink.open()
        sink.write(Batch(at, half, some_changes(("insert", 2, 0, "a", 9)), begins=True))
        sink.write(Batch(half, whole, some_changes(("insert", 2, 1, "e", 1)), completes=True))
        assert read() == {"a": 9, "e": 1}, f"a beginning anew leaves {read()}"
        sink.write(Batch(whole, Position(_OTHER_FEED, 3), some_changes(("delete", 3, 0, "a", 9))))
    assert read() == {"e": 1}
    at, back = Position(_OTHER_FEED, 3), Position(_OTHER_FEED, 1)
    with closing(make()) as sink:
        sink.open()
        sink.write(Batch(at, back, some_changes(("insert", 1, 0, "f", 2)), begins=True, completes=True))
    assert read() == {"f": 2}, f"a beginning anew in one batch, with an older version, leaves {read()}"


def some_changes(*changes: tuple[str, int, int, str, int]) -> pl.DataFrame:
    """Rows of a feed of `TARGET`: each its type, version, ordinal, `session_id` and `event_count`."""
    rows: list[dict[str, Any]] = [
        {
            "_change_type": kind,
            "_commit_version": version,
            "_change_ordinal": ordinal,
            "_commit_timestamp": _AT,
            "_commit_snapshot_id": version * 10,
            "session_id": key,
            "started_at": _AT,
            "event_count": count,
            "is_db_update": True,
            "is_downstream": True,
        }
        for kind, version, ordinal, key, count in changes
    ]
    return pl.DataFrame(rows, schema=_SCHEMA)
