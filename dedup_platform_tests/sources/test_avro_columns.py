"""Columns of Avro tell of each datum what its reader tells of it alone, and are in doubt of little."""

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

from dedup_platform.sources.avro import walks
from dedup_platform.sources.avro.contents import AvroContents, Resolution, SchemaReader
from dedup_platform.sources.contents import SeparateContents
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.text.canonical_text import (
    date_text,
    decimal_text,
    double_text,
    float_text,
    time_text,
    timestamp_text,
)
from dedup_platform.sources.text.json_records import canonical
from dedup_platform.sources.text.typed_texts import (
    date_texts,
    decimal_texts,
    float_texts,
    moments_of,
    time_texts,
    timestamp_texts,
)
from dedup_platform.sources.texts import text_of
from dedup_platform.sources.times import time_reader
from dedup_platform.stream.schemas import avro_record
from dedup_platform_tests.sources.hostile_avro import DIGITS, FLOATS, LONGS, MOMENTS, Data, click_schema, paths_in
from dedup_platform_tests.sources.test_avro import CLICK, TREE, datum, record


def reader_of(schema: Any, resolution: Resolution | None = None) -> SchemaReader:
    return SchemaReader(avro_record(json.dumps(schema).encode()), resolution)


def doubts_of(reader: SchemaReader, data: list[bytes]) -> list[bool]:
    assert reader.columns
    _, in_doubt = reader.columns.texts(pl.Series(data, dtype=pl.Binary), [])
    return [False] * len(data) if in_doubt is None else in_doubt.to_list()


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "_FEW", 1)


@pytest.mark.parametrize("share_of_odd", [0, 0.01, 0.05])
def test_texts_are_those_of_single_data(share_of_odd: float, thorough: bool) -> None:
    read_time = time_reader(None, "UTC")
    sure = 0
    for seed in range(700 if thorough else 12):
        random = Random(seed)
        schema = click_schema(random)
        reader, data = reader_of(schema), Data(random, schema, share_of_odd).some(100)
        contents = reader.contents(pl.Series(data))
        fields = [field_reader(path, "avro").named[0] for path in map(tuple, paths_in(schema, wholes=False))]
        alone = [reader.content(each) for each in data]
        for field, told in zip(fields, contents.texts(fields), strict=True):
            doubts = [False] * len(data) if told.in_doubt is None else told.in_doubt.to_list()
            for doubt, content, text in zip(doubts, alone, told.values, strict=True):
                assert doubt or not isinstance(content, str)
                assert doubt or isinstance(content, str) or text == text_of(field.value(content, ""))
            if told.moments is not None:
                known = zip(doubts, told.values, told.moments, strict=True)
                assert all(doubt or moment is None or moment == read_time(text) for doubt, text, moment in known)
        doubts = doubts_of(reader, data)
        sure += doubts.count(False)
        if not share_of_odd:
            assert doubts.count(True) < 25, schema
    assert sure > (seed + 1) * 40


@pytest.mark.parametrize("share_of_odd", [0, 0.2])
def test_json_is_that_of_single_data(share_of_odd: float, thorough: bool) -> None:
    sure = 0
    for seed in range(700 if thorough else 30):
        random = Random(seed)
        schema = click_schema(random, deepest=-1)
        reader, data = reader_of(schema), Data(random, schema, share_of_odd).some(50)
        names = [field["name"] for field in schema["fields"]]
        assert reader.columns
        fields, in_doubt = reader.columns.written(pl.Series(data), names)
        doubts = [False] * len(data) if in_doubt is None else in_doubt.to_list()
        for name, (texts, written) in zip(names, fields, strict=True):
            for doubt, each, text, json_text in zip(doubts, data, texts.values, written, strict=True):
                content = reader.content(each)
                assert doubt or isinstance(content, dict)
                assert doubt or (text, json_text) == (text_of(content[name]), canonical(content[name]))
        sure += doubts.count(False)
    assert sure > (seed + 1) * 10


def test_a_datum_ends_where_its_message_ends() -> None:
    value = datum(record(*CLICK), {"user": "u", "id": "e", "at": "t"})
    data = [value, value[:-1], value + b"\0", value, value * 2, b"", value]
    assert doubts_of(reader_of(record(*CLICK)), data) == [False, True, True, False, True, True, False]


def test_records_inside_themselves_are_in_doubt_only_where_there_is_one() -> None:
    assert doubts_of(reader_of(TREE), [b"\2a\0", b"\2a\2\2b\0", b"\2a\0"]) == [False, True, False]
    branches = ["boolean", "int", "null", "pkg.Click"]
    alike = record({"name": "inner", "type": branches}, {"name": "rest", "type": "bytes"})
    # Without the inner record, its two bytes and what follows could be bytes behind their size.
    assert doubts_of(reader_of(alike), [b"\6\4\0\0", b"\4\0"]) == [True, False]


def test_moments_are_known_where_there_are_some() -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    [contents] = contents_of(reader_of(record({"name": "at", "type": ["null", at]})), [b"\2\2", b"\0", b"\2\4"])
    [told] = contents.texts([field_reader("at", "avro").named[0]])
    assert told.values.to_list() == ["1970-01-01T00:00:00.001Z", None, "1970-01-01T00:00:00.002Z"]
    assert told.moments is not None
    assert told.moments.to_list() == [1000, None, 2000]


def test_long_lists_and_those_that_few_have_are_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record({"name": "many", "type": {"type": "array", "items": "null"}})
    data = [b"\0", b"\2\0", b"\4\0", b"\4\0", b"\x80\4\0", b"\x82\4\0", b"\x80\4\2\0"]
    assert doubts_of(reader_of(schema), data) == [False] * 5 + [True] * 2
    monkeypatch.setattr(walks, "_FEW", 3)
    assert doubts_of(reader_of(schema), data[:4]) == [False, False, True, True]


def test_schemas_that_columns_do_not_read_are_read_one_by_one() -> None:
    kind: Any = "int"
    for _ in range(60):
        kind = {"type": "array", "items": kind}
    reader = reader_of(record({"name": "deep", "type": kind}))
    assert reader.columns is None
    contents = reader.contents(pl.Series([b"\0", b"\1"]))
    assert isinstance(contents, SeparateContents)
    assert [isinstance(content, str) for content in contents] == [False, True]


def test_names_are_those_of_all_fields_without_parts() -> None:
    resolution = Resolution({"who": "user"}, {"more": "1"})
    [contents] = contents_of(reader_of(record(*CLICK), resolution), [b"\2u\2e\2t"])
    assert contents.names == ["who", "more"]
    paths = [("who",), ("more",), ("user",), ("more", "x")]
    told = contents.texts([field_reader(path, "avro").named[0] for path in paths])
    assert [each.values.to_list() for each in told] == [["u"], ["1"], [None], [None]]
    assert contents[0] == {"who": "u", "more": "1"}
    parts = reader_of(record({"name": "place", "type": record(*CLICK) | {"name": "in"}}))
    assert [each.names for each in contents_of(parts, [b"\0\0\0"])] == [None]


def contents_of(reader: SchemaReader, data: list[bytes]) -> Iterator[AvroContents]:
    contents = reader.contents(pl.Series(data))
    assert isinstance(contents, AvroContents)
    yield contents


def floats(random: Random, count: int) -> Iterator[float]:
    yield from FLOATS
    for _ in range(count):
        yield random.choice([random.random(), random.randrange(10**9) / 100]) * 10.0 ** random.randint(-8, 18)


def test_floats_are_written_as_python_writes_them(thorough: bool) -> None:
    count = 1_000_000 if thorough else 20_000
    values = np.array(list(floats(Random(1), count)))
    assert float_texts(values).to_list() == [str(double_text(value)) for value in values.tolist()]
    bits = np.random.default_rng(1).integers(0, 2**32, count, np.uint32).view(np.float32)
    short = np.concatenate([bits, np.nan_to_num(values, posinf=0, neginf=0).astype(np.float32)])
    assert float_texts(short).to_list() == [str(float_text(value)) for value in short.tolist()]


TICKS = [*LONGS, *(each * per + 7 for each in MOMENTS for per in (1, 10**3, 10**6) if abs(each * per) < 2**62)]


@pytest.mark.parametrize("per_second", [10**3, 10**6, 10**9])
@pytest.mark.parametrize("zone", ["Z", ""])
def test_times_are_written_as_they_are_alone(per_second: int, zone: str, thorough: bool) -> None:
    random = Random(per_second)
    ticks = TICKS + [random.randrange(-(10**15), 10**16) for _ in range(200_000 if thorough else 2_000)]
    ticks += [each * per_second for each in MOMENTS if abs(each * per_second) < 2**63]
    ticks += [each - each % per_second for each in ticks if each > -(2**62)]
    numbers = np.array(ticks)
    expected = [str(timestamp_text(each, per_second, zone)) for each in ticks]
    assert timestamp_texts(numbers, per_second, zone).to_list() == expected
    within_days = numbers % (86_400 * per_second + 5) - 2
    assert time_texts(within_days, per_second).to_list() == [
        str(time_text(each, per_second)) for each in within_days.tolist()
    ]
    read = time_reader(None, "UTC")
    moments = moments_of(numbers, per_second)
    assert moments.null_count() < len(moments)
    for text, moment in zip(timestamp_texts(numbers, per_second, "Z"), moments, strict=True):
        assert moment is None or moment == read(text)


def test_dates_are_written_as_they_are_alone() -> None:
    days = [*LONGS, *range(-719_170, -719_150), *range(-5, 40_000, 7), *range(2_932_890, 2_932_900)]
    assert date_texts(np.array(days)).to_list() == [str(date_text(day)) for day in days]


@pytest.mark.parametrize("scale", [0, 1, 2, 10, 30])
@pytest.mark.parametrize("longest", [8, 12])
def test_decimals_are_written_as_they_are_alone(scale: int, longest: int) -> None:
    random = Random(scale)
    values = [each for each in DIGITS if len(each) <= longest]
    values += [random.randbytes(random.randint(0, longest)) for _ in range(500)]
    one: Callable[[bytes], str] = lambda value: str(decimal_text(int.from_bytes(value, signed=True), scale))  # noqa: E731
    assert decimal_texts(pl.Series(values), scale).to_list() == [one(value) for value in values]
