"""Parquet: each row is a record whose payload is exact, canonical JSON."""

import gzip
import io
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from dedup_platform.sources.compression import Packed
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.parquet_records import parquet_batches, parquet_records
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES, Record
from dedup_platform.sources.text.json_records import Number, canonical
from dedup_platform_tests.sources.texts_in_columns import is_true, told

T = datetime(2024, 3, 1, 12, 30, 45, 123456)  # noqa: DTZ001 - a column without a time zone


def written(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def read(content: bytes, name: str = "events.parquet") -> list[Record]:
    """The records of a file; its columns are seen to say the same as they do."""
    for payloads, contents, contexts in parquet_batches(Packed(io.BytesIO(content), name)):
        assert len(payloads) == len(contents) == len(list(contexts))
        fields = [content if isinstance(content, dict) else {} for content in contents]
        for each in {"no such column", *(each for some in fields for each in some)}:
            texts = told(field_reader((each,), "parquet"), contents)
            assert all(is_true(text, some.get(each)) for text, some in zip(texts, fields, strict=True))
    return list(parquet_records(Packed(io.BytesIO(content), name)))


def payloads(columns: Mapping[str, pa.Array]) -> list[str]:
    return [payload.decode() for payload, _, _ in read(written(pa.table(columns)))]


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array(["x", 'a"b\n', "é", ""]), ['"x"', '"a\\"b\\n"', '"é"', '""']),
        (pa.array([2**63 - 1, -1]), ["9223372036854775807", "-1"]),
        (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
        (pa.array([0.1, 1e300, 100.0, float("nan"), float("-inf")]), ["0.1", "1e+300", "100", '"nan"', '"-inf"']),
        (pa.array([0.1], pa.float32()), ["0.1"]),
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([Decimal("1.50"), Decimal("-0.01")], pa.decimal128(38, 2)), ["1.50", "-0.01"]),
        (pa.array([T], pa.timestamp("us")), ['"2024-03-01 12:30:45.123456"']),
        (pa.array([T], pa.timestamp("us", "UTC")), ['"2024-03-01 12:30:45.123456Z"']),
        (pa.array([T.replace(tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo")), ['"2024-03-01 12:30:45.123456Z"']),
        (pa.array([1_709_296_245_123_456_789], pa.timestamp("ns")), ['"2024-03-01 12:30:45.123456789"']),
        (pa.array([2**62], pa.timestamp("us")), ['"<value out of range: 4611686018427387904>"']),
        (pa.array([2**62], pa.timestamp("us", "UTC")), ['"<value out of range: 4611686018427387904>Z"']),
        (pa.array(["x", 'a"b'], pa.string_view()), ['"x"', '"a\\"b"']),
        (pa.array([date(2024, 3, 1)]), ['"2024-03-01"']),
        (pa.array([time(1, 2, 3, 4)]), ['"01:02:03.000004"']),
        (pa.array([b"\xff\0"]), ['"/wA="']),
        (pa.array([b"\xff\0", b"text"], pa.binary_view()), ['"/wA="', '"dGV4dA=="']),
        (pa.array([[1, None], []]), ["[1,null]", "[]"]),
        (pa.array([{"b": 1, "a": "x"}]), ['{"a":"x","b":1}']),
        (
            pa.array([{"t": [T]}], pa.struct([("t", pa.list_(pa.timestamp("us", "UTC")))])),
            ['{"t":["2024-03-01 12:30:45.123456Z"]}'],
        ),
        (pa.array([[("k", 1), ("l", None)]], pa.map_(pa.string(), pa.int32())), ['[["k",1],["l",null]]']),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_exact_texts(array: pa.Array, texts: list[str]) -> None:
    with_null = pa.concat_arrays([pa.nulls(1, array.type), array])
    assert payloads({"a": with_null}) == [f'{{"a":{text}}}' for text in ["null", *texts]]


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "text": st.none() | st.text(),
                "long": st.none() | st.integers(-(2**63), 2**63 - 1),
                "flag": st.none() | st.booleans(),
                "parts": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
                "inner": st.none() | st.fixed_dictionaries({"b": st.none() | st.text(), "a": st.none() | st.text()}),
            }
        ),
        min_size=1,
        max_size=5,
    ),
    st.sets(st.sampled_from(["text", "long", "flag", "parts", "inner"]), min_size=1),
)
@settings(max_examples=200, deadline=None)
def test_any_values(rows: list[dict[str, Any]], chosen: set[str]) -> None:
    texts = pa.struct([("b", pa.string()), ("a", pa.string())])
    types = {
        "text": pa.string(),
        "long": pa.int64(),
        "flag": pa.bool_(),
        "parts": pa.list_(pa.string()),
        "inner": texts,
    }
    columns = {name: pa.array([row[name] for row in rows], types[name]) for name in sorted(chosen)}
    assert payloads(columns) == [canonical({name: as_json(row[name]) for name in chosen}) for row in rows]


def as_json(value: Any) -> Any:
    return Number(value) if type(value) is int else value


def test_names_that_stand_twice_make_records_malformed() -> None:
    content = written(pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))
    assert [record[:2] for record in read(content)] == [(b'{"a":1,"a":2}', MALFORMED_RECORD)]


def test_names_are_escaped() -> None:
    assert payloads({'"\n': pa.array([1])}) == ['{"\\"\\n":1}']


def test_a_dictionary_column_is_its_values() -> None:
    assert payloads({"a": pa.array(["x", None, "x"]).dictionary_encode()}) == ['{"a":"x"}', '{"a":null}', '{"a":"x"}']


def test_names_are_sorted_and_the_payload_decodes_to_the_content() -> None:
    [(payload, content, context)] = read(written(pa.table({"b": [1], "a": ["x"], "é": [None]})))
    assert payload == '{"a":"x","b":1,"é":null}'.encode()
    assert content == {"a": "x", "b": "1", "é": None}
    assert context == '{"format":"parquet"}'


def test_no_rows_and_no_columns() -> None:
    assert read(written(pa.table({"a": pa.array([], pa.string())}))) == []


def test_invalid_utf_8_survives_in_the_payload_of_a_malformed_record() -> None:
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 1, 2))
    texts = pa.StringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(b"a\xff"))
    first, second = read(written(pa.table({"a": texts})))
    assert first[:2] == (b'{"a":"a"}', {"a": "a"})
    assert second[:2] == (b'{"a":"\xff"}', MALFORMED_RECORD)


@pytest.mark.parametrize(
    ("compress", "ending"),
    [(gzip.compress, ".gz"), (zstandard.compress, ".zst"), (bytes, ""), (bytes, ".gz")],
    ids=["gzip", "zstd", "plain", "plain in spite of its name"],
)
def test_compressed_as_a_whole(compress: Any, ending: str) -> None:
    content = written(pa.table({"a": list(range(5000))}))
    assert len(read(compress(content), f"events.parquet{ending}")) == 5000


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_row_groups_keep_their_order(codec: str) -> None:
    content = written(pa.table({"a": list(range(5000))}), compression=codec, row_group_size=1500)
    assert [json.loads(payload)["a"] for payload, _, _ in read(content)] == list(range(5000))


GOOD = written(
    pa.table({"a": list(range(5000))}),
    row_group_size=1024,
    use_dictionary=False,
    compression="none",
    write_page_checksum=True,
)


@pytest.mark.parametrize(
    ("content", "name", "complete"),
    [
        (b"", "a.parquet", 0),
        (b"hello world", "a.parquet", 0),
        (GOOD[:-1], "a.parquet", 0),
        (GOOD[: len(GOOD) // 2], "a.parquet", 0),
        (gzip.compress(GOOD)[:-9], "a.parquet.gz", 0),
        (GOOD[:20_000] + bytes([GOOD[20_000] ^ 1]) + GOOD[20_001:], "a.parquet", 2048),
    ],
    ids=["empty", "text", "last byte lost", "half", "truncated gzip", "a flipped bit"],
)
def test_damage_is_one_record_after_the_complete_ones(content: bytes, name: str, complete: int) -> None:
    *records, (payload, reason, context) = read(content, name)
    assert len(records) == complete
    assert (payload, reason) == (b"", DAMAGED_FILE)
    assert json.loads(context)["damage"]["reason"]


def test_a_row_that_is_too_long_is_rejected_and_its_beginning_kept() -> None:
    [(payload, content, context)] = read(written(pa.table({"a": ["x" * MAX_RECORD_BYTES]})))
    assert len(payload) == MAX_RECORD_BYTES
    assert (content, context) == (MALFORMED_RECORD, '{"format":"parquet","oversized":true}')
