"""Aliases of one entity's sessions, literal changes in and literal ends out; and random ones, against plain Python."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from pyiceberg.io.pyarrow import schema_to_pyarrow

from dedup_platform.lake.aliases import Place
from dedup_platform.lake.table_files import frame_of
from dedup_platform.planning.moments import EPOCH
from dedup_platform.rules.aliases import folded
from dedup_platform.schemas import iceberg_schema
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_ALIASES, columns
from dedup_platform.testing import make_stream
from dedup_platform_tests.lives.aliases import expected

Told = tuple[str, str | None] | str
"""A session that is retired, and into which one; or one that is inserted."""
_SCHEMA: dict[str, Any] = {
    "_change_type": pl.String,
    "session_id": pl.String,
    "entity_id": pl.String,
    "merged_into": pl.String,
    "reason": pl.String,
    "_commit_version": pl.Int64,
    "_change_ordinal": pl.Int64,
    "_commit_timestamp": pl.Datetime("us", "UTC"),
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stream"))


def changes_of(told: Sequence[Told], reason: str = "erased") -> list[dict[str, Any]]:
    """Each a version of its own."""
    rows = []
    for version, each in enumerate(told, 1):
        session, into = each if isinstance(each, tuple) else (each, None)
        kind = "delete" if isinstance(each, tuple) else "insert"
        row = (kind, session, "e", into, "merged" if into else reason, version, 0, EPOCH + timedelta(days=version))
        rows.append(dict(zip(_SCHEMA, row, strict=True)))
    return rows


def fold(stream: Stream, changes: Sequence[dict[str, Any]], at_once: int = 100) -> pl.DataFrame:
    schema = schema_to_pyarrow(iceberg_schema(columns(stream, SESSION_ALIASES)), include_field_ids=False)
    found = frame_of(schema.empty_table())
    for first in range(0, len(changes), at_once):
        found = folded(found, pl.DataFrame(list(changes[first : first + at_once]), schema=_SCHEMA), stream)
    return found


def ends(stream: Stream, *told: Told, reason: str = "erased") -> dict[str, tuple[Any, ...]]:
    found = fold(stream, changes_of(told, reason))
    return {row[0]: row[1:] for row in found.select("session_id", "current_id", "outcome", "last_id", "merges").rows()}


def test_an_alias_follows_all_merges(stream: Stream) -> None:
    found = ends(stream, ("a", "b"), ("b", "c"), ("d", "c"), ("c", "e"))
    assert found == {
        "a": ("e", "merged", "e", 3),
        "b": ("e", "merged", "e", 2),
        "c": ("e", "merged", "e", 1),
        "d": ("e", "merged", "e", 2),
    }


@pytest.mark.parametrize("reason", ["erased", "split"])
def test_what_ends_without_an_heir_says_so(stream: Stream, reason: str) -> None:
    found = ends(stream, ("a", "b"), ("b", None), reason=reason)
    assert found == {"a": (None, reason, "b", 1), "b": (None, reason, "b", 0)}


def test_an_id_that_is_there_again_has_no_alias_and_is_where_others_end(stream: Stream) -> None:
    assert ends(stream, ("a", "b"), ("b", "c"), "b") == {"a": ("b", "merged", "b", 1)}
    assert ends(stream, ("a", "b"), ("b", None), "b") == {"a": ("b", "merged", "b", 1)}
    assert ends(stream, ("a", "b"), ("b", "c"), "b", ("b", "d")) == {
        "a": ("d", "merged", "d", 2),
        "b": ("d", "merged", "d", 1),
    }


def test_two_that_go_into_each_other_in_turn_end(stream: Stream) -> None:
    assert ends(stream, ("a", "b"), "a", ("b", "a")) == {"b": ("a", "merged", "a", 1)}
    assert ends(stream, ("a", "b"), "a", ("b", "a"), "b", ("a", "b")) == {"a": ("b", "merged", "b", 1)}


@pytest.mark.parametrize("told", [[("a", "a")], [("a", "b"), ("b", "a")], [("a", "b"), ("b", "c"), ("c", "b")]])
def test_merges_in_a_circle_have_no_end(stream: Stream, told: list[Told]) -> None:
    assert set(ends(stream, *told, ("x", "a")).values()) == {(None, None, None, None)}


def test_when_and_why_are_those_of_the_retirement_itself(stream: Stream) -> None:
    found = fold(stream, changes_of([("a", "b"), ("b", None)], "split"))
    told = found.select("session_id", "entity_id", "merged_into", "reason", "retired_at", "retired_by_version").rows()
    day = datetime(1970, 1, 2, tzinfo=UTC)
    assert told == [
        ("a", "e", "b", "merged", day, 1),
        ("b", "e", None, "split", day + timedelta(days=1), 2),
    ]


def test_a_long_chain_is_followed_to_its_end(stream: Stream) -> None:
    number = 3000
    found = fold(stream, changes_of([(f"{each:04}", f"{each + 1:04}") for each in range(number)]), number)
    assert set(found["current_id"]) == {f"{number:04}"}
    assert found["merges"].to_list() == list(range(number, 0, -1))


IDS = st.sampled_from("abcdef")
TOLD: st.SearchStrategy[list[Told]] = st.lists(IDS | st.tuples(IDS, IDS | st.none()), max_size=20)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(TOLD, st.integers(1, 5))
def test_a_fold_is_the_same_in_any_portions(stream: Stream, told: list[Told], at_once: int) -> None:
    """Also of changes that no table makes: who is merged into one that is gone, or into itself."""
    changes = changes_of(told)
    found = fold(stream, changes, at_once).to_dicts()
    assert {row["session_id"]: row for row in found} == expected(changes, Place("feed", len(changes)))
    assert [row["session_id"] for row in found] == sorted(row["session_id"] for row in found)


def test_rows_are_in_the_order_of_entities(stream: Stream) -> None:
    changes = [change | {"entity_id": entity} for entity, change in zip("cab", changes_of(["x"] * 3), strict=True)]
    gone = [change | {"_change_type": "delete", "session_id": f"{n}"} for n, change in enumerate(changes)]
    assert fold(stream, gone)["entity_id"].to_list() == ["a", "b", "c"]
