"""The difference of two sets of rows as a property: against plain Python, whatever the rows are."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dedup_platform.rules.changes import Difference, difference, insertion
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, SESSIONS, columns
from dedup_platform.testing import make_stream, utc

NOON = utc("2024-03-02T12:00")
MINUTE = timedelta(minutes=1)
MIDNIGHT = 720
"""Minutes after noon."""
TYPES: dict[str, pl.DataType] = {
    "string": pl.String(),
    "long": pl.Int64(),
    "integer": pl.Int32(),
    "timestamp": pl.Datetime("us", "UTC"),
    "double": pl.Float64(),
}
quick = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    attributes, aggregates = {"reason": "string", "score": "double"}, {"best": ("max", "score")}
    return make_stream(tmp_path_factory.mktemp("changes"), attributes=attributes, aggregates=aggregates)


def frame(stream: Stream, table: str, rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    schema = {column.name: TYPES[str(column.type)] for column in columns(stream, table)}
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema, orient="row")


def session(
    name: str, begins: int, ends: int, arrived: int, entity: str = "e", first: int | None = None, **others: Any
) -> dict[str, Any]:
    """`first`: when its first-arrived event happened; None in rows of a version that did not know that."""
    return {
        "session_id": name,
        "entity_id": entity,
        "started_at": NOON + begins * MINUTE,
        "ended_at": NOON + ends * MINUTE,
        "event_count": ends - begins + 1,
        "first_arrived_at": NOON + arrived * MINUTE,
        "first_arrived_event_time": None if first is None else NOON + first * MINUTE,
        **others,
    }


def event(offset: int, name: str = "a", entity: str | None = "e", at: int = 0, **others: Any) -> dict[str, Any]:
    place = {"source": "f", "source_partition": 0, "source_offset": offset, "source_index": 0}
    times = {"event_time": NOON + at * MINUTE, "arrival_time": NOON + offset * MINUTE}
    return {"entity_id": entity, "event_id": name, **times, **place, **others}


def of(stream: Stream, before: list[dict[str, Any]], after: list[dict[str, Any]], table: str = SESSIONS) -> Difference:
    return difference(frame(stream, table, before), frame(stream, table, after), stream, table)


def told(rows: pl.DataFrame, *names: str) -> list[Any]:
    return [row if len(names) > 1 else row[0] for row in rows.select(names).rows()]


# By name


def test_a_merge_is_the_delete_of_the_loser_and_an_update_of_the_survivor(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 5, 2), session("b", 40, 50, 1)], [session("b", 0, 50, 1)])
    assert told(found.deletes, "session_id", "reason", "merged_into") == [("a", "merged", "b")]
    assert told(found.updates, "_change_type", "session_id", "reason") == [
        ("update_preimage", "b", "merged"),
        ("update_postimage", "b", "merged"),
    ]
    assert told(found.inserts, "session_id") == []


def test_a_record_that_arrived_earlier_renames(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 5, 2)], [session("b", 0, 6, 1)])
    assert told(found.deletes, "session_id", "reason", "merged_into") == [("a", "merged", "b")]
    assert told(found.inserts, "session_id", "reason", "split_from") == [("b", "merged", None)]


def test_a_split_tells_where_the_new_one_comes_from(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 50, 1)], [session("a", 0, 5, 1), session("b", 40, 50, 2)])
    assert told(found.inserts, "session_id", "reason", "split_from") == [("b", "split", "a")]
    assert set(told(found.updates, "reason")) == {"split"}


def test_a_session_whose_first_event_is_gone_is_merged_into_none(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 5, 1)], [session("b", 1, 5, 2)])
    assert told(found.deletes, "session_id", "reason", "merged_into") == [("a", "split", None)]
    found = of(stream, [session("a", 0, 5, 1)], [session("b", 6, 7, 1)])
    assert told(found.deletes, "session_id", "reason", "merged_into") == [("a", "erased", None)]
    assert told(found.inserts, "reason") == ["new"]


@pytest.mark.parametrize(("first", "heir"), [(0, "b"), (20, "b"), (25, None), (30, "c"), (50, "c"), (None, "b")])
def test_of_two_halves_with_earlier_arrivals_that_is_the_heir_which_holds_the_first_event(
    first: int | None, heir: str | None, stream: Stream
) -> None:
    halves = [session("b", 0, 20, 2, first=1), session("c", 30, 50, 1, first=31)]
    found = of(stream, [session("a", 0, 50, 3, first=first)], halves)
    assert told(found.deletes, "reason", "merged_into") == [("merged" if heir else "split", heir)]
    assert told(found.inserts, "session_id", "reason", "split_from") == [
        (each, "merged", None) if each == heir else (each, "split", "a") for each in "bc"
    ]


def test_an_event_that_is_gone_is_in_no_session_that_arrived_later(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 50, 3, first=40)], [session("b", 0, 20, 1), session("c", 30, 50, 4)])
    assert told(found.deletes, "reason", "merged_into") == [("split", None)]
    assert set(told(found.inserts, "reason")) == {"split"}


def test_a_half_that_was_there_before_tells_what_it_is(stream: Stream) -> None:
    """The retired one falls apart: one half is in a session that grew, its first event in another one that did."""
    before = [session("x", 0, 1, 1), session("a", 20, 50, 3, first=45), session("y", 60, 61, 2)]
    found = of(stream, before, [session("x", 0, 30, 1), session("y", 40, 61, 2)])
    assert told(found.deletes, "session_id", "reason", "merged_into") == [("a", "merged", "y")]
    assert told(found.updates, "session_id", "reason")[::2] == [("x", "grown"), ("y", "merged")]


@pytest.mark.parametrize(
    ("begins", "ends", "others", "reason"),
    [
        (MIDNIGHT - 1, MIDNIGHT + 9, {}, "moved"),
        (MIDNIGHT, MIDNIGHT + 11, {}, "grown"),
        (MIDNIGHT, MIDNIGHT + 9, {}, "shrunk"),
        (MIDNIGHT, MIDNIGHT + 10, {"best": 1.5}, "corrected"),
    ],
)
def test_an_update_tells_why(begins: int, ends: int, others: dict[str, Any], reason: str, stream: Stream) -> None:
    found = of(stream, [session("a", MIDNIGHT, MIDNIGHT + 10, 1)], [session("a", begins, ends, 1, **others)])
    assert told(found.updates, "reason") == [reason, reason]
    assert set(told(found.updates, "is_downstream")) == {reason != "corrected"}


def test_another_entitys_session_is_not_near(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 5, 2)], [session("b", 0, 5, 1, entity="f")])
    assert told(found.deletes, "reason", "merged_into") == [("erased", None)]


def test_a_copy_that_arrived_earlier_takes_over(stream: Stream) -> None:
    found = of(stream, [event(2, "x"), event(4, "y")], [event(1, "x"), event(3, "z")], DEDUPLICATED_EVENTS)
    reasons = [told(rows, "event_id", "_reason") for rows in (found.deletes, found.inserts)]
    assert reasons == [[("x", "corrected"), ("y", "erased")], [("x", "corrected"), ("z", "new")]]


def test_a_column_of_the_stream_keeps_its_name(stream: Stream) -> None:
    found = of(stream, [], [event(1, reason="bored")], DEDUPLICATED_EVENTS)
    assert told(found.inserts, "reason", "_reason") == [("bored", "new")]


def test_no_number_is_no_change_and_nothing_is_none(stream: Stream) -> None:
    rows = [event(1, entity=None, score=float("nan")), event(2, entity=None, reason=None)]
    assert [len(part) for part in of(stream, rows, rows[::-1], DEDUPLICATED_EVENTS)] == [0, 0, 0]


def test_rows_that_somebody_wrote_twice_go_one_by_one(stream: Stream) -> None:
    found = of(stream, [session("a", 0, 5, 1)] * 2, [session("a", 0, 5, 1)])
    assert [len(part) for part in found] == [1, 0, 0]


def test_all_pieces_have_the_same_columns(stream: Stream) -> None:
    for table in (SESSIONS, DEDUPLICATED_EVENTS):
        nothing = frame(stream, table, [])
        schemas = [part.schema for part in difference(nothing, nothing, stream, table)]
        assert {tuple(each.items()) for each in (*schemas, insertion(nothing, stream, table).schema)} == {
            tuple(schemas[0].items())
        }


# As a property

lines = st.lists(st.integers(0, 40), unique=True, max_size=8).map(sorted)
"""Moments of which two that follow one another begin and end a session."""
ids = st.permutations("abcdefgh")


@st.composite
def sessions(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Of two entities; those of one do not overlap. Who arrived first is in the name, as in an id."""
    names = draw(ids)
    found: list[dict[str, Any]] = []
    for entity in "ef":
        at = draw(lines)
        for begins, ends in zip(at[::2], at[1::2], strict=False):
            name = names[len(found)] + entity
            first, best = draw(st.none() | st.integers(begins, ends)), draw(st.sampled_from((None, 1.0)))
            found.append(session(name, begins, ends, ord(name[0]), entity, first, best=best))
    return found


@quick
@given(before=sessions(), after=sessions())
def test_what_was_and_the_difference_is_what_is(
    before: list[dict[str, Any]], after: list[dict[str, Any]], stream: Stream
) -> None:
    found = of(stream, before, after)
    old, new = ({row["session_id"]: row for row in rows} for rows in (before, after))
    assert set(told(found.deletes, "session_id")) == old.keys() - new.keys()
    assert set(told(found.inserts, "session_id")) == new.keys() - old.keys()
    changed = {name for name in old.keys() & new.keys() if old[name] != new[name]}
    images = found.updates.rows(named=True)
    assert [row["session_id"] for row in images[::2]] == [row["session_id"] for row in images[1::2]] == sorted(changed)
    for kind, rows, known in (("preimage", images[::2], old), ("postimage", images[1::2], new)):
        for row in rows:
            expected = known[row["session_id"]]
            assert row["_change_type"] == f"update_{kind}"
            assert {name: row[name] for name in expected} == expected
            differing = {name for name in expected if old[row["session_id"]][name] != new[row["session_id"]][name]}
            assert set(row["changed_columns"]) == differing
            assert row["is_downstream"] == bool(differing & {"started_at", "ended_at"})
    for row in found.deletes.rows(named=True):
        assert row["merged_into"] == heir(row, after)


def heir(retired: dict[str, Any], after: list[dict[str, Any]]) -> str | None:
    near = (row for row in after if row["entity_id"] == retired["entity_id"])
    first = retired["first_arrived_event_time"]
    begins, ends = (first, first) if first else (retired["started_at"], retired["ended_at"])
    overlapping = [row for row in near if row["started_at"] <= ends and row["ended_at"] >= begins]
    known = [row for row in overlapping if row["first_arrived_at"] <= retired["first_arrived_at"]]
    return min(known, key=lambda row: row["started_at"])["session_id"] if known else None
