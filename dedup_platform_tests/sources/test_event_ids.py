"""Event ids: which records have one, and that different fields never share one."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.event_ids import event_id_reader
from dedup_platform.sources.records import AMBIGUOUS, MALFORMED_RECORD, MISSING_EVENT_ID, RejectedError
from dedup_platform.sources.text.json_records import Number
from dedup_platform.stream import FieldHash, FieldId, FieldList

A, AB = FieldId(field="a"), FieldList(fields=("a", "b"))
ALL, HASH_AB = FieldHash(hash="*"), FieldHash(hash=("b", "a"))
EventId = FieldId | FieldList | FieldHash


def sha(*pairs: tuple[str, str | None]) -> str:
    text = json.dumps([list(pair) for pair in pairs], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@pytest.mark.parametrize(
    ("event_id", "fields", "expected"),
    [
        (A, {"a": "x"}, "x"),
        (A, {"a": "x" * 10_000}, "x" * 10_000),
        (A, {"a": Number("1.0")}, "1.0"),
        (A, {"a": True}, "true"),
        (A, {"a": {"c": [Number("1")], "b": None}}, '{"b":null,"c":[1]}'),
        (AB, {"a": "x", "b": "y", "c": "z"}, '["x","y"]'),
        (AB, {"a": 'x","y', "b": "z"}, '["x\\",\\"y","z"]'),
        (ALL, {"b": "2", "a": "é%s"}, sha(("a", "é%s"), ("b", "2"))),
        (ALL, {"b": Number("2"), "a": None}, sha(("a", None), ("b", "2"))),
        (ALL, {"100%": "x", "a\n": ""}, sha(("100%", "x"), ("a\n", ""))),
        (HASH_AB, {"a": "1", "b": "", "c": "3"}, sha(("a", "1"), ("b", ""))),
        (HASH_AB, {"a": "1", "b": None}, sha(("a", "1"), ("b", None))),
    ],
)
def test_ids(event_id: EventId, fields: dict[str, Any], expected: str) -> None:
    assert event_id_reader(event_id, "json")(fields, "") == expected


@pytest.mark.parametrize(
    ("event_id", "fields", "reason"),
    [
        (A, {}, MISSING_EVENT_ID),
        (A, {"a": ""}, MISSING_EVENT_ID),
        (A, {"a": None}, MISSING_EVENT_ID),
        (AB, {"a": "x"}, MISSING_EVENT_ID),
        (AB, {"a": "x", "b": ""}, MISSING_EVENT_ID),
        (ALL, {}, MISSING_EVENT_ID),
        (HASH_AB, {"a": "x"}, MISSING_EVENT_ID),
        (A, {"a": AMBIGUOUS}, MALFORMED_RECORD),
        (AB, {"a": "x", "b": AMBIGUOUS}, MALFORMED_RECORD),
        (ALL, {"a": "x", "b": AMBIGUOUS}, MALFORMED_RECORD),
    ],
)
def test_records_without_an_id(event_id: EventId, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(RejectedError) as rejected:
        event_id_reader(event_id, "json")(fields, "")
    assert rejected.value.reason == reason


def test_the_hash_does_not_depend_on_the_order_of_fields() -> None:
    read = event_id_reader(ALL, "json")
    assert read({"a": "1", "b": "2"}, "") == read({"b": "2", "a": "1"}, "") != read({"a": "2", "b": "1"}, "")


names = st.text('ab"[],:\\%', min_size=1, max_size=3)
records = st.dictionaries(names, st.none() | st.text('ab"[],:\\%', max_size=3), min_size=1, max_size=3)


@given(records, records)
def test_different_records_have_different_hashes(one: dict[str, Any], other: dict[str, Any]) -> None:
    read = event_id_reader(ALL, "json")
    assert (read(one, "") == read(other, "")) == (one == other)
    assert read(one, "") == sha(*sorted(one.items()))
