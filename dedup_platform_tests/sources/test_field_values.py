"""Which value of a record a field of a stream file is: alone, and in columns."""

import json
from typing import Any

import pytest

from dedup_platform.sources.contents import ColumnContents, JoinedContents, ListedContents
from dedup_platform.sources.field_values import ABSENT, field_reader
from dedup_platform.sources.records import AMBIGUOUS
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.stream.paths import FieldSpelling

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
    assert reader.find(NESTED) == expected
    value = None if expected is ABSENT else expected
    assert reader.value(NESTED) == value
    assert list(reader.values(ListedContents([NESTED, {}, "malformed_record"]))) == [value, None, None]


@pytest.mark.parametrize(("key", "json_value", "parquet_value"), [("k", ABSENT, "2"), ("only", ABSENT, ABSENT)])
def test_maps_of_parquet_are_lists_of_pairs(key: str, json_value: Any, parquet_value: Any) -> None:
    assert field_reader(f"pairs.{key}", "json").find(NESTED) is json_value
    assert field_reader(f"pairs.{key}", "parquet").find(NESTED) == parquet_value


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
    assert list(reader.values(contents)) == [reader.value(record) for record in (*records, NESTED)]


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
