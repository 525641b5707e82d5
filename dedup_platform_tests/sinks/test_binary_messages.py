"""Messages of Avro and Protobuf, read by other libraries, against rows as they are."""

import json
import math
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.sinks import Target
from dedup_platform.sinks.binary_messages import CODECS, Binary
from dedup_platform.sinks.messages import messages
from dedup_platform.sinks.shapes import Envelope
from dedup_platform.stream.schemas import registered_messages
from dedup_platform.tables import COORDINATES, Column
from dedup_platform_tests.sinks.reading import READERS, avro_reader
from dedup_platform_tests.sinks.test_messages import CHANGES, COMMITTED, SCHEMA, TARGET, as_json, plainly, rows_of

FORMATS = ["avro", "protobuf"]
NUMBERS = {column.name: number for number, column in enumerate(TARGET.columns, 1)}


def binary(format_: str, envelope: Envelope = "debezium", target: Target = TARGET, prefix: bytes = b"") -> Binary:
    return Binary(target, envelope, CODECS[format_], prefix)


def read(encoding: Binary, format_: str, rows: pl.DataFrame, begins: bool = False) -> list[tuple[str, Any]]:
    reader = READERS[format_](encoding.schema)
    return [(key, None if value is None else reader(value)) for key, value in messages(rows, encoding, begins)]  # type: ignore[arg-type]


def expected(rows: pl.DataFrame, format_: str, begins: bool) -> list[tuple[str, Any]]:
    """The envelopes of JSON, with their rows as the format has them."""
    told = list(plainly(rows, begins))
    images = {json.dumps(_as_json(row)): typed(row, format_) for row in rows.iter_rows(named=True)}
    for _, value in told:
        for image in ("before", "after"):
            if value and value[image]:
                value[image] = images[json.dumps(value[image])]
        if value and format_ == "protobuf":
            value["source"]["changed_columns"] = value["source"]["changed_columns"] or []
    return told


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    return {name: as_json(row[name]) for name in SCHEMA}


def typed(row: dict[str, Any], format_: str) -> dict[str, Any]:
    if format_ == "avro":
        return {name: row[name] for name in SCHEMA}
    return {name: str(row[name]) if isinstance(row[name], Decimal) else row[name] for name in SCHEMA} | {
        "day": row["day"] and str(row["day"])
    }


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=60)
@given(changes=CHANGES, begins=st.booleans())
def test_envelopes_are_what_they_are_row_by_row(format_: str, changes: list[Any], begins: bool) -> None:
    rows = rows_of(changes)
    assert read(binary(format_), format_, rows, begins) == expected(rows, format_, begins)


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=60)
@given(changes=CHANGES)
def test_plain_rows_are_what_is_after_each_change(format_: str, changes: list[Any]) -> None:
    rows = rows_of(changes)
    after = [
        (key, value and {**value["after"], "_commit_version": 7})
        for key, value in expected(rows, format_, False)
        if value is None or value["after"]
    ]
    assert read(binary(format_, "row"), format_, rows) == after


def insert(**values: Any) -> pl.DataFrame:
    return rows_of([("insert", {"started_at": COMMITTED} | values, {}, None)] * 2)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "values",
    [
        {"count": -(2**63), "share": -math.inf, "revenue": Decimal("-9999999999.99"), "day": date(1, 1, 1)},
        {"count": 2**63 - 1, "share": math.inf, "revenue": Decimal("9999999999.99"), "day": date(9999, 12, 31)},
        {"count": 0, "share": 0.0, "revenue": Decimal("0.00"), "page": "", "is_new": False},
        {"started_at": datetime(1, 1, 1, tzinfo=COMMITTED.tzinfo), "page": "\0 ünï 🎈" * 100},
        {"started_at": datetime(9999, 12, 31, 23, 59, 59, 999_999, COMMITTED.tzinfo)},
    ],
)
def test_values_at_the_ends_of_their_types(format_: str, values: dict[str, Any]) -> None:
    rows = insert(**values)
    found = read(binary(format_, "row"), format_, rows)
    assert [value for _, value in found] == [
        typed(row, format_) | {"_commit_version": 7} for row in rows.iter_rows(named=True)
    ]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_double_may_be_no_number(format_: str) -> None:
    [(_, value), _] = read(binary(format_, "row"), format_, insert(share=math.nan))
    assert math.isnan(value["share"])


@pytest.mark.parametrize("precision", [1, 2, 3, 18, 38])
def test_decimals_of_every_precision(precision: int) -> None:
    largest, lowest = Decimal("9" * precision), Decimal("-" + "9" * precision)
    target = replace(TARGET, columns=(Column("session_id", "string"), Column("sum", f"decimal({precision},0)")))
    numbers = pl.Series("sum", [largest, lowest, None, Decimal(0)], pl.Decimal(precision, 0))
    rows = rows_of([("insert", {"started_at": COMMITTED}, {}, None)] * 4).with_columns(numbers)
    found = read(binary("avro", "row", target), "avro", rows)
    assert [value["sum"] for _, value in found] == [largest, lowest, None, 0]
    assert [value["sum"] for _, value in read(binary("protobuf", "row", target), "protobuf", rows)] == [
        str(largest), str(lowest), None, "0"
    ]  # fmt: skip


@pytest.mark.parametrize("format_", FORMATS)
def test_events_are_messages_too(format_: str) -> None:
    types = {"source": "string", "source_partition": "integer", "source_offset": "long", "source_index": "integer"}
    place = {"source": 'a "b"', "source_partition": 1, "source_offset": 2**40, "source_index": 0}
    columns = tuple(Column(name, type_) for name, type_ in types.items())
    target = Target("clicks", "topic", "deduplicated_events", columns, COORDINATES)
    rows = insert().with_columns(pl.lit(value).alias(name) for name, value in place.items())
    rows = rows.cast({"source_partition": pl.Int32, "source_index": pl.Int32})
    [(key, value), _] = read(binary(format_, target=target), format_, rows)
    assert (json.loads(key), value["after"]) == (place, place)


@pytest.mark.parametrize("format_", FORMATS)
def test_all_values_are_behind_the_prefix(format_: str) -> None:
    rows = rows_of([("insert", {"started_at": COMMITTED}, {}, None), ("delete", {"started_at": COMMITTED}, {}, None)])
    for envelope in ("debezium", "row"):
        plain = messages(rows, binary(format_, envelope), False)
        found = messages(rows, binary(format_, envelope, prefix=b"\0id"), False)
        assert list(found) == [(key, b"\0id" + value if value else None) for key, value in plain]  # type: ignore[operator]


def test_where_a_stream_has_a_column_of_our_name_ours_has_an_underscore() -> None:
    theirs = insert().rename({"reason": "_reason"}).with_columns(reason=pl.lit("theirs"))
    target = replace(TARGET, columns=(*TARGET.columns, Column("reason", "string")))
    for format_ in FORMATS:
        [(_, value), _] = read(binary(format_, target=target), format_, theirs)
        assert (value["source"]["reason"], value["after"]["reason"]) == ("grown", "theirs")


class TestEvolution:
    """A table gets another column, in the middle of those of the stream file, at the end of those of the table."""

    before = replace(TARGET, numbers=NUMBERS)
    columns = (*TARGET.columns[:2], Column("colour", "string"), *TARGET.columns[2:])
    after = replace(TARGET, columns=columns, numbers=NUMBERS | {"colour": 20})

    @pytest.mark.parametrize("envelope", ["debezium", "row"])
    def test_avro_resolves_old_messages_and_new_ones(self, envelope: Envelope) -> None:
        rows = insert(page="p")
        old, new = (binary("avro", envelope, target) for target in (self.before, self.after))
        more = rows.with_columns(colour=pl.lit("red"))
        [(_, first), *_], [(_, then), *_] = messages(rows, old, False), messages(more, new, False)
        assert isinstance(first, bytes)
        assert isinstance(then, bytes)
        found = [avro_reader(old.schema, new.schema)(first), avro_reader(new.schema)(then)]
        assert [(row["page"], row["colour"]) for row in map(self.row, found)] == [("p", None), ("p", "red")]
        assert "colour" not in self.row(avro_reader(new.schema, old.schema)(then))

    @pytest.mark.parametrize("envelope", ["debezium", "row"])
    def test_protobuf_reads_both_by_either(self, envelope: Envelope) -> None:
        rows = insert(page="p")
        old, new = (binary("protobuf", envelope, target) for target in (self.before, self.after))
        [(_, first), *_] = messages(rows, old, False)
        [(_, then), *_] = messages(rows.with_columns(colour=pl.lit("red")), new, False)
        readers = [READERS["protobuf"](each.schema) for each in (old, new)]
        found = [[self.row(read(each)) for each in (first, then)] for read in readers]  # type: ignore[arg-type]
        assert [[(row["page"], row.get("colour")) for row in rows] for rows in found] == [
            [("p", None), ("p", None)],
            [("p", None), ("p", "red")],
        ]

    def row(self, value: dict[str, Any]) -> dict[str, Any]:
        return value.get("after", value)

    def test_what_is_not_in_the_table_yet_is_not_told(self) -> None:
        target = replace(self.after, numbers=NUMBERS)
        for format_ in FORMATS:
            assert binary(format_, target=target).schema == binary(format_, target=self.before).schema


def test_names_that_protobuf_takes_for_the_same_have_their_number_behind_them() -> None:
    names = ["session_id", "a_1", "a1", "a1_3", "sessionid", "name", "na_me"]
    target = replace(TARGET, columns=tuple(Column(name, "string") for name in names))
    encoding = binary("protobuf", target=target)
    envelope, value, source, _ = registered_messages(encoding.schema, ())
    assert [field.name for field in value.fields] == [
        "session_id", "a_1", "a1_3", "a1_3_4", "sessionid_5", "name", "na_me_7"
    ]  # fmt: skip
    assert "name" in source.fields_by_name
    assert envelope.name == "Envelope"


@pytest.mark.parametrize("name", ["message", "optional", "string", "google", "true", "map", "reserved", "op", "value"])
def test_names_that_are_words_of_the_formats_are_names(name: str) -> None:
    target = replace(TARGET, stream=name, columns=(*TARGET.columns, Column(name, "string")))
    rows = insert().with_columns(pl.lit("x").alias(name))
    for format_ in FORMATS:
        [(_, value), _] = read(binary(format_, target=target), format_, rows)
        assert value["after"][name] == "x"
