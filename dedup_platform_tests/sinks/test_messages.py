"""Messages of changes against the plainest way to make them: row by row, with Python's own json."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.planning.moments import EPOCH
from dedup_platform.sinks import Target
from dedup_platform.sinks.messages import Json, Message, messages, portions, tombstones
from dedup_platform.tables import COORDINATES, SESSIONS, Column

TARGET = Target(
    "clicks",
    "topic",
    SESSIONS,
    (
        Column("session_id", "string"),
        Column("started_at", "timestamp"),
        Column("page", "string"),
        Column("count", "long"),
        Column("share", "double"),
        Column("revenue", "decimal(12,2)"),
        Column("day", "date"),
        Column("is_new", "boolean"),
    ),
    ("session_id",),
)
SCHEMA: dict[str, Any] = {
    "session_id": pl.String,
    "started_at": pl.Datetime("us", "UTC"),
    "page": pl.String,
    "count": pl.Int64,
    "share": pl.Float64,
    "revenue": pl.Decimal(12, 2),
    "day": pl.Date,
    "is_new": pl.Boolean,
}
FEED: dict[str, Any] = {
    "_change_type": pl.String,
    "_commit_version": pl.Int64,
    "_change_ordinal": pl.Int64,
    "_commit_timestamp": pl.Datetime("us", "UTC"),
    "_commit_snapshot_id": pl.Int64,
    "reason": pl.String,
    "merged_into": pl.String,
    "split_from": pl.String,
    "changed_columns": pl.List(pl.String),
}
COMMITTED = datetime(2024, 3, 1, 10, 0, 0, 123_456, tzinfo=UTC)
MICROSECONDS = 253_402_300_799_999_999
"""From 1970 to the end of 9999."""
TIMES = st.integers(0, MICROSECONDS).map(lambda time: EPOCH + timedelta(microseconds=time))
VALUES = st.fixed_dictionaries(
    {
        "started_at": TIMES,
        "page": st.none() | st.text(),
        "count": st.none() | st.integers(-(2**63), 2**63 - 1),
        "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "revenue": st.none() | st.decimals("-9999999999", "9999999999", places=2),
        "day": st.none() | st.dates(date(1970, 1, 1)),
        "is_new": st.none() | st.booleans(),
    }
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["insert", "update", "delete"]), VALUES, VALUES, st.none() | st.lists(st.just("page"))),
    min_size=1,
    max_size=12,
)


def rows_of(changes: list[tuple[str, Any, Any, list[str] | None]]) -> pl.DataFrame:
    """Rows of a feed: of an update both images."""
    rows: list[dict[str, Any]] = []
    for key, (kind, one, other, changed) in enumerate(changes):
        images = [("update_preimage", one), ("update_postimage", other)] if kind == "update" else [(kind, one)]
        for type_, values in images:
            told = {"reason": "grown", "merged_into": "m" if kind == "delete" else None, "changed_columns": changed}
            commit = {"_commit_version": 7, "_commit_timestamp": COMMITTED, "_commit_snapshot_id": 70}
            place = {"_change_type": type_, "_change_ordinal": len(rows), "session_id": f"s{key}"}
            rows.append({**place, **commit, **told, **values})
    return pl.DataFrame(rows, schema={**FEED, **SCHEMA})


def plainly(rows: pl.DataFrame, begins: bool) -> Iterator[tuple[str, Any]]:
    """The same messages in Debezium's envelope, made row by row."""
    before: dict[str, Any] | None = None
    for row in rows.iter_rows(named=True):
        kind, image = row["_change_type"], {name: as_json(row[name]) for name in SCHEMA}
        if kind == "update_preimage":
            before = image
            continue
        gone = kind == "delete"
        source = {
            "connector": "dedup_platform",
            "name": "clicks",
            "table": "sessions",
            "snapshot": "true" if begins else "false",
            "ts_ms": 1709287200123,
            "version": 7,
            "ordinal": row["_change_ordinal"],
            "snapshot_id": 70,
            **{name: row[name] for name in ("reason", "merged_into", "split_from", "changed_columns")},
        }
        yield (
            row["session_id"],
            {
                "op": {"insert": "r" if begins else "c", "update_postimage": "u", "delete": "d"}[kind],
                "before": image if gone else before if kind == "update_postimage" else None,
                "after": None if gone else image,
                "source": source,
                "ts_ms": 1709287200123,
                "transaction": {"id": "7", "total_order": row["_change_ordinal"]},
            },
        )
        if gone:
            yield row["session_id"], None


def as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z".rjust(27, "0")
    if isinstance(value, Decimal | date):
        return str(value)
    return value


def read(found: Iterable[Message]) -> list[tuple[str, Any]]:
    return [(key, None if value is None else json.loads(value)) for key, value in found]


@given(CHANGES, st.booleans())
def test_envelopes_are_what_they_are_row_by_row(changes: list[Any], begins: bool) -> None:
    rows = rows_of(changes)
    assert read(messages(rows, Json(TARGET, "debezium"), begins)) == list(plainly(rows, begins))


@given(CHANGES)
def test_plain_rows_are_what_is_after_each_change(changes: list[Any]) -> None:
    rows = rows_of(changes)
    expected = [
        (key, None if value is None else {**value["after"], "_commit_version": 7})
        for key, value in plainly(rows, False)
        if value is None or value["after"]
    ]
    assert read(messages(rows, Json(TARGET, "row"), False)) == expected


@pytest.mark.parametrize("share", [float("nan"), float("inf"), float("-inf")])
def test_a_double_that_is_no_number_is_null(share: float) -> None:
    rows = rows_of([("insert", {"started_at": COMMITTED, "share": share}, {}, None)])
    [(_, value)] = read(messages(rows, Json(TARGET, "debezium"), False))
    assert value["after"]["share"] is None


def test_the_key_of_an_event_is_its_coordinates() -> None:
    types = {"source": "string", "source_partition": "integer", "source_offset": "long", "source_index": "integer"}
    columns = tuple(Column(name, type_) for name, type_ in types.items())
    target = Target("clicks", "topic", "deduplicated_events", columns, COORDINATES)
    place = {"source": 'a "b"', "source_partition": 1, "source_offset": 2**40, "source_index": 0}
    rows = rows_of([("insert", {"started_at": COMMITTED}, {}, None)])
    rows = rows.with_columns(pl.lit(value).alias(name) for name, value in place.items())
    [(key, _)] = messages(rows, Json(target, "debezium"), False)
    assert json.loads(key) == place


def test_where_a_stream_has_a_column_of_our_name_ours_has_an_underscore() -> None:
    rows = rows_of([("insert", {"started_at": COMMITTED}, {}, None)])
    theirs = rows.rename({"reason": "_reason"}).with_columns(reason=pl.lit("theirs"))
    target = replace(TARGET, columns=(*TARGET.columns, Column("reason", "string")))
    [(_, value)] = read(messages(theirs, Json(target, "debezium"), False))
    assert (value["source"]["reason"], value["after"]["reason"]) == ("grown", "theirs")


@pytest.mark.parametrize("text", ['x","op":"d', '"', "{}"])
def test_an_attribute_of_a_name_that_only_sessions_feeds_have_is_only_a_value(text: str) -> None:
    target = replace(TARGET, columns=(*TARGET.columns, Column("split_from", "string")))
    rows = rows_of([("insert", {"started_at": COMMITTED}, {}, None)]).with_columns(
        _split_from=None, split_from=pl.lit(text)
    )
    [(_, value)] = read(messages(rows.drop("_split_from"), Json(target, "debezium"), False))
    assert (value["op"], value["source"]["split_from"], value["after"]["split_from"]) == ("c", None, text)


@settings(deadline=None)  # a machine may be busy
@given(CHANGES, st.integers(1, 5))
def test_portions_are_all_changes_and_part_no_images(changes: list[Any], rows: int) -> None:
    whole = rows_of(changes)
    parts = list(portions(whole, rows))
    assert pl.concat([whole.clear(), *parts]).equals(whole)
    assert all(0 < len(each) <= rows + 1 for each in parts)
    told = [message for each in parts for message in messages(each, Json(TARGET, "debezium"), False)]
    assert told == messages(whole, Json(TARGET, "debezium"), False)


def test_tombstones_have_no_value() -> None:
    assert list(tombstones(["a", "b"])) == [("a", None), ("b", None)]
