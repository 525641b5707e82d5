"""Which value of a record a field of a stream file is: alone, and in columns."""

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from dedup_platform.sources.contents import ColumnContents, JoinedContents, ListedContents
from dedup_platform.sources.field_values import field_reader, time_field_reader
from dedup_platform.sources.records import AMBIGUOUS
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.texts import ABSENT
from dedup_platform.stream import TimeField
from dedup_platform.stream.definitions import Definition
from dedup_platform.stream.paths import FieldSpelling
from dedup_platform_tests.sources.texts_in_columns import IN_DOUBT, is_true, told

NESTED = {
    "actor": {"id": "7", "name": None, "user.name": "dotted"},
    "items": [{"sku": "A"}, {"sku": "B"}],
    "tags": ["x", ["y"]],
    "pairs": [["k", "1"], ["k", "2"], "odd", ["only"]],
    "a.b": "of one name",
    "a": {"b": "of two"},
    "items[0]": None,
    "text": "actor",
    "twice": AMBIGUOUS,
}
PATH = "region=eu/a.json"
FOUND: list[tuple[FieldSpelling, Any]] = [
    ("text", "actor"),
    ("none", ABSENT),
    ("actor.id", "7"),
    ("actor.name", None),
    ("actor.name.first", None),
    ("actor.none", ABSENT),
    ("actor['user.name']", "dotted"),
    ("actor.user.name", ABSENT),
    ("items[1].sku", "B"),
    (("items", 0, "sku"), "A"),
    ("items[2].sku", ABSENT),
    ("items.sku", ABSENT),
    ("items[0]", None),
    (("items", 0), {"sku": "A"}),
    ("tags[1][0]", "y"),
    ("tags[0].x", ABSENT),
    ("text.id", ABSENT),
    ("text[0]", ABSENT),
    ("actor[0]", ABSENT),
    ("a.b", "of one name"),
    (("a", "b"), "of two"),
    (("a.b",), "of one name"),
    ("['a.b']", "of one name"),
    ("a..b", ABSENT),
    ("twice", AMBIGUOUS),
    ("twice.id", AMBIGUOUS),
]


@pytest.mark.parametrize(("field", "expected"), FOUND)
def test_values(field: FieldSpelling, expected: Any) -> None:
    reader = field_reader(field, "json")
    assert reader.find(NESTED, "") == expected
    value = None if expected is ABSENT else expected
    assert reader.value(NESTED, "") == value
    first, *others = told(reader, ListedContents([NESTED, {}, "malformed_record"]))
    assert is_true(first, value)
    assert others == [None, None]


@pytest.mark.parametrize(("key", "json_value", "parquet_value"), [("k", ABSENT, "2"), ("only", ABSENT, ABSENT)])
def test_maps_of_parquet_are_lists_of_pairs(key: str, json_value: Any, parquet_value: Any) -> None:
    assert field_reader(f"pairs.{key}", "json").find(NESTED, "") is json_value
    assert field_reader(f"pairs.{key}", "parquet").find(NESTED, "") == parquet_value


@pytest.mark.parametrize("field", [field for field, _ in FOUND])
def test_columns_give_the_same(field: FieldSpelling) -> None:
    """Of what is known by columns, and of several parts one behind the other."""
    records: list[dict[str, Any]] = [{"a.b": "1", "actor": "x"}, {"a.b": None, "actor": None}]
    payloads = [json.dumps(record).encode() for record in records]
    columns = ColumnContents(
        ["a.b", "actor"], lambda name: [record[name] for record in records], payloads, json_content
    )
    contents = JoinedContents([columns, ListedContents([NESTED])])
    reader = field_reader(field, "json")
    for text, record in zip(told(reader, contents), (*records, NESTED), strict=True):
        assert is_true(text, reader.value(record, ""))


PAIR = {"first_of": ["actor.none", "empty", "actor.id", "text"]}
DEFINED: list[tuple[Any, Any]] = [
    (PAIR, "7"),
    ({"first_of": ["none", "empty", "actor.name"]}, None),
    ({"first_of": ["twice", "text"]}, AMBIGUOUS),
    ({"first_of": ["no", "text"]}, False),
    ({"join": ["actor.id", "text"], "with": " at "}, "7 at actor"),
    ({"join": ["actor.id", "none"], "with": "-"}, None),
    ({"join": ["actor.id", "empty"], "with": "-"}, None),
    ({"join": ["actor.id", "twice"], "with": "-"}, AMBIGUOUS),
    ({"join": ["no", ["items", 1]], "with": ""}, 'false{"sku":"B"}'),
    ({"pattern": "^(act)or$", "field": "text"}, "act"),
    ({"pattern": "(x)?or", "field": "text"}, None),
    ({"pattern": "(q)", "field": "text"}, None),
    ({"pattern": "(.*)", "field": "none"}, None),
    ({"pattern": "(.*)", "field": "empty"}, ""),
    ({"pattern": '"sku":"([^"]*)"', "field": ["items", 1]}, "B"),
    ({"pattern": "(a)", "field": "twice"}, AMBIGUOUS),
    ({"constant": "web"}, "web"),
    ({"constant": 7.5}, "7.5"),
    ({"constant": True}, "true"),
    ({"path": "region=([^/]+)"}, "eu"),
    ({"path": "day=([^/]+)"}, None),
    ({"first_of": [{"path": "day=([^/]+)"}, {"join": [{"constant": "c"}, PAIR], "with": "/"}]}, "c/7"),
]


@pytest.mark.parametrize(("definition", "expected"), DEFINED)
def test_definitions(definition: Any, expected: Any) -> None:
    field = TypeAdapter(Definition).validate_python(definition)
    assert TypeAdapter(Definition).validate_json(TypeAdapter(Definition).dump_json(field)) == field
    record = NESTED | {"empty": "", "no": False}
    reader = field_reader(field, "json")
    assert reader.value(record, PATH) == expected
    contents = ListedContents([record, {}, record])
    texts = told(reader, contents, PATH)
    assert texts[1] == reader.value({}, PATH)
    parts = [part.value(record, PATH) for part in reader.named]
    assert texts[::2] == ([expected] * 2 if all(isinstance(part, str | None) for part in parts) else [IN_DOUBT] * 2)


def test_a_pattern_that_backtracking_would_never_end_is_read_at_once() -> None:
    field = TypeAdapter(Definition).validate_python({"pattern": "^(a+)+$|(?:b)", "field": "a"})
    assert field_reader(field, "json").value({"a": "a" * 100_000 + "c"}, "") is None


@pytest.mark.parametrize(
    ("definition", "lacking"),
    [
        ({"first_of": ["a", "b"]}, None),
        ({"first_of": ["c", "d.e"]}, "c"),
        ({"join": ["a", "d.e", "c"], "with": ""}, "d.e"),
        ({"pattern": "(x)", "field": "c"}, "c"),
        ({"first_of": ["c", {"constant": "x"}]}, None),
        ({"path": "(x)"}, None),
    ],
)
def test_what_a_definition_lacks(definition: Any, lacking: str | None) -> None:
    field = TypeAdapter(Definition).validate_python(definition)
    assert field_reader(field, "csv").missing({"a": "1", "b": "2"}) == lacking


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Tokyo", "t\0Asia/Tokyo"),
        (None, "t\0"),
        (AMBIGUOUS, AMBIGUOUS),
        ({"a": None}, 't\0{"a":null}'),
        ("a\0UTC", "t\0a UTC"),
    ],
)
def test_a_time_with_the_zone_of_a_field(zone: Any, expected: Any) -> None:
    time = TimeField.model_validate({"field": "at", "timezone": {"field": "zone"}})
    reader = time_field_reader(time, "json")
    records = [{"at": "t", "zone": zone}, {"zone": zone}, {"at": "", "zone": zone}]
    is_plain = isinstance(zone, str | None)
    assert told(reader, ListedContents(records)) == ([expected, None, ""] if is_plain else [IN_DOUBT] * 3)
    assert [reader.value(record, "") for record in records] == [expected, None, ""]
    assert (reader.missing({"at": ""}), reader.missing({"zone": ""})) == (None, "at")


@pytest.mark.parametrize(
    ("field", "fields", "lacking"),
    [
        ("a", {"a": None}, None),
        ("a", {"b": ""}, "a"),
        ("a.b", {"a": None}, None),
        ("a.b", {"a.b": None}, None),
        ("a.b", {"b": None}, "a.b"),
        (("a", "b"), {"a.b": None}, "a.b"),
        ("items[0].sku", {}, "items[0].sku"),
    ],
)
def test_what_a_row_of_columns_lacks(field: FieldSpelling, fields: dict[str, Any], lacking: str | None) -> None:
    assert field_reader(field, "csv").missing(fields) == lacking
