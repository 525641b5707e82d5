"""Avro: data and files that fastavro writes read back as what JSON would say, and damage costs nothing before it."""

import gzip
import io
import json
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import cramjam
import fastavro
import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from dedup_platform.sources.avro.files import avro_records
from dedup_platform.sources.compression import Packed
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.files import list_files, records_of
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, Record
from dedup_platform.sources.text.json_records import canonical, json_content
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, decode_kept, message_stream
from dedup_platform_tests.sources.schemas import varint
from dedup_platform_tests.sources.test_messages import contents, read

BAD = MALFORMED_RECORD
NOW = datetime(2100, 1, 1, tzinfo=UTC)
CLICK = [{"name": name, "type": "string"} for name in ("user", "id", "at")]
FILE_CONTEXT = '{"format":"avro","encoding":"json"}'


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "pkg.Click", "fields": list(fields)}


def avro_stream(folder: Path, schema: Any, **fields: Any) -> Stream:
    (folder / "click.avsc").write_text(json.dumps(schema))
    return message_stream("avro", folder, fields, avro={"schema": "click.avsc"})


def datum(schema: Any, value: dict[str, Any]) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema, named_schemas={}), value)
    return written.getvalue()


def test_a_message_is_one_datum(tmp_path: Path) -> None:
    schema = record(*CLICK)
    value = datum(schema, {"user": "ü", "id": "e", "at": "t"})
    expected = (value, {"user": "ü", "id": "e", "at": "t"}, '{"format":"avro"}')
    assert read(avro_stream(tmp_path, schema), value) == [expected]


DAY = 20_000
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "null": ("null", None, None),
    "boolean": ("boolean", True, True),
    "int": ("int", -(2**31), str(-(2**31))),
    "the smallest long": ("long", -(2**63), str(-(2**63))),
    "the largest long": ("long", 2**63 - 1, str(2**63 - 1)),
    "float": ("float", 0.1, "0.1"),
    "double": ("double", 0.1, "0.1"),
    "NaN": ("double", float("nan"), "NaN"),
    "bytes": ("bytes", b"\0\xff", "AP8="),
    "fixed": ({"type": "fixed", "name": "two", "size": 2}, b"\0\xff", "AP8="),
    "enum": ({"type": "enum", "name": "letter", "symbols": ["A", "B"]}, "B", "B"),
    "array": ({"type": "array", "items": "int"}, [1, 2], ["1", "2"]),
    "map": ({"type": "map", "values": "boolean"}, {"a": True}, {"a": True}),
    "union": (["null", "long", "string"], 5, "5"),
    "union of null": (["null", "long"], None, None),
    "record": ({"type": "record", "name": "in", "fields": [{"name": "x", "type": "int"}]}, {"x": 1}, {"x": "1"}),
    "a type in an object": ({"type": "string"}, "x", "x"),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"}, 1_709_290_800_500, "2024-03-01T11:00:00.500Z"),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, -1, "1969-12-31T23:59:59.999999Z"),
    "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, 1, "1970-01-01T00:00:00.000000001Z"),
    "a time on the wall": ({"type": "long", "logicalType": "local-timestamp-millis"}, 0, "1970-01-01T00:00:00"),
    "no time of any year": ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, str(2**62)),
    "a date": ({"type": "int", "logicalType": "date"}, DAY, "2024-10-04"),
    "no date of any year": ({"type": "int", "logicalType": "date"}, 2**31 - 1, str(2**31 - 1)),
    "a time of day": ({"type": "int", "logicalType": "time-millis"}, 1, "00:00:00.001"),
    "no time of day": ({"type": "long", "logicalType": "time-micros"}, -1, "-1"),
    "a decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, Decimal("-1.50"), "-1.50"),
    "a small decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 10},
        Decimal("0.0000000001"),
        "0.0000000001",
    ),
    "a fixed decimal": (
        {"type": "fixed", "name": "d", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 0},
        Decimal("7"),
        "7",
    ),
    "a uuid": ({"type": "string", "logicalType": "uuid"}, str(UUID(int=1)), str(UUID(int=1))),
    "a fixed uuid": (
        {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"},
        UUID(int=1).bytes,
        str(UUID(int=1)),
    ),
    "a logical type that is unknown": ({"type": "long", "logicalType": "parsec"}, 5, "5"),
    "a logical type on another type": ({"type": "string", "logicalType": "date"}, "x", "x"),
}


@pytest.mark.parametrize("case", VALUES)
def test_values(tmp_path: Path, case: str) -> None:
    kind, value, expected = VALUES[case]
    schema = record(*CLICK, {"name": "value", "type": kind})
    raw = json.loads(json.dumps(schema).replace('"logicalType": "uuid"', '"doc": ""').replace('"date"', '"-"'))
    raw = raw if case.startswith(("a fixed uuid", "a logical", "a date", "no date")) else schema
    payload = datum(raw, {"user": "u", "id": "e", "at": "t", "value": value})
    [fields] = contents(avro_stream(tmp_path, schema), payload)
    assert fields == {"user": "u", "id": "e", "at": "t", "value": expected}
    assert canonical(fields) == canonical(json_content(canonical(fields).encode()))


TREE = record({"name": "user", "type": "string"}, {"name": "next", "type": ["null", "pkg.Click"]})
TREE_FIELDS = {"event_id": "user", "event_time": "user"}


def test_a_record_may_hold_others_of_its_kind_up_to_100_levels(tmp_path: Path) -> None:
    stream = avro_stream(tmp_path, TREE, **TREE_FIELDS)
    [fields] = contents(stream, b"\2a\2\2b\0")
    assert fields == {"user": "a", "next": {"user": "b", "next": None}}
    assert contents(stream, b"\0\2" * 99 + b"\0\0") != [BAD]
    assert contents(stream, b"\0\2" * 100 + b"\0\0") == [BAD]
    assert contents(stream, b"\0\2" * 100_000 + b"\0\0") == [BAD]


ALL = record(
    *CLICK,
    {"name": "letter", "type": {"type": "enum", "name": "letter", "symbols": ["A", "B"]}},
    {"name": "maybe", "type": ["null", "double"]},
    {"name": "many", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
    {"name": "flag", "type": "boolean"},
)
GOOD = {"user": "u", "id": "e", "at": "t", "letter": "B", "maybe": 0.5, "many": [{"a": 1}, {}], "flag": True}


def test_a_datum_that_is_cut_anywhere_is_malformed(tmp_path: Path) -> None:
    stream, value = avro_stream(tmp_path, ALL), datum(ALL, GOOD)
    for cut in range(len(value)):
        assert contents(stream, value[:cut]) == [BAD]
    assert contents(stream, value + b"\0") == [BAD]


@pytest.mark.parametrize(
    ("place", "content"),
    [(6, b"\1"), (6, b"\4"), (7, b"\1"), (7, b"\4"), (-1, b"\2"), (0, b"\1"), (0, b"\xff" * 11), (1, b"\xff")],
    ids=["symbol -1", "symbol 2", "branch -1", "branch 2", "boolean 2", "length -1", "a long number", "not UTF-8"],
)
def test_what_the_schema_does_not_have_is_malformed(tmp_path: Path, place: int, content: bytes) -> None:
    value = bytearray(datum(ALL, GOOD))
    value[place : place + 1 or None] = content
    assert contents(avro_stream(tmp_path, ALL), bytes(value)) == [BAD]


@pytest.mark.parametrize(
    "count", [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0"]
)
def test_a_list_of_as_many_nulls_as_there_are_numbers_is_malformed(tmp_path: Path, count: bytes) -> None:
    schema = record(*CLICK, {"name": "many", "type": {"type": "array", "items": "null"}})
    assert contents(avro_stream(tmp_path, schema), b"\2u\2e\2t" + count + b"\0") == [BAD]
    [fields] = contents(avro_stream(tmp_path, schema), b"\2u\2e\2t\3\0\2\0")
    assert isinstance(fields, dict)
    assert fields["many"] == [None] * 3


@pytest.mark.parametrize("scale", [1001, 10**9, 10**20, True])
def test_numbers_of_very_many_decimals_are_bytes(tmp_path: Path, scale: int) -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 10**20, "scale": scale}
    schema = record(*CLICK, {"name": "value", "type": kind})
    [fields] = contents(avro_stream(tmp_path, schema), b"\2u\2e\2t\2\5")
    assert isinstance(fields, dict)
    assert fields["value"] == "BQ=="


def test_a_list_has_at_most_1000_nulls(tmp_path: Path) -> None:
    lists = {"type": "array", "items": {"type": "array", "items": "null"}}
    stream = avro_stream(tmp_path, record(*CLICK, {"name": "many", "type": lists}))
    most, more, following = varint(1000 << 1) + b"\0", varint(1001 << 1) + b"\0", varint(600 << 1) * 2 + b"\0"
    [fields] = contents(stream, b"\2u\2e\2t\4" + most * 2 + b"\0")
    assert isinstance(fields, dict)
    assert fields["many"] == [[None] * 1000] * 2
    assert contents(stream, b"\2u\2e\2t\2" + more + b"\0") == [BAD]
    assert contents(stream, b"\2u\2e\2t\2" + following + b"\0") == [BAD]


longs = st.integers(-(2**63), 2**63 - 1)
data_of_all = st.fixed_dictionaries(
    {
        "user": st.text(max_size=5),
        "id": st.text(max_size=5),
        "at": st.sampled_from(["2024-03-01", "soon"]),
        "letter": st.sampled_from("AB"),
        "maybe": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "many": st.lists(
            st.dictionaries(st.text(max_size=2), st.integers(-(2**63), 2**63 - 1), max_size=2), max_size=3
        ),
        "flag": st.booleans(),
    }
)


@pytest.fixture(scope="module")
def stream_of_all(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return avro_stream(tmp_path_factory.mktemp("schema"), ALL)


@given(value=data_of_all)
@settings(max_examples=200, deadline=None)
def test_data_that_fastavro_writes_are_read_as_they_were(stream_of_all: Stream, value: dict[str, Any]) -> None:
    [(payload, fields, _)] = read(stream_of_all, datum(ALL, value))
    assert payload == datum(ALL, value)
    assert json.loads(canonical(fields)) == value


@given(value=st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_a_record_that_decodes_again(stream_of_all: Stream, value: bytes) -> None:
    assert len(read(stream_of_all, value)) == 1


def test_an_empty_message_is_one_rejected_record(stream_of_all: Stream) -> None:
    [(payload, content, context)] = read(stream_of_all, b"")
    assert (payload, content, context) == (b"", BAD, '{"format":"avro","undivided":true}')


CLICKS = [{"user": f"u{n % 7}", "id": f"e{n}", "at": "2024-03-01T11:00:00Z", "n": -n} for n in range(500)]
FILE_SCHEMA = record(*CLICK, {"name": "n", "type": ["null", "long"], "default": None})
SYNC = b"s" * 16
CODECS = ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]


def container(codec: str, values: list[dict[str, Any]] = CLICKS, schema: Any = FILE_SCHEMA) -> bytes:
    """A file of blocks of about 1,000 bytes; fastavro needs a library more for zstandard, which is packed here."""
    written = io.BytesIO()
    inner = "null" if codec == "zstandard" else codec
    fastavro.writer(written, schema, values, codec=inner, sync_interval=1_000, sync_marker=b"s" * 16)
    if codec != "zstandard":
        return written.getvalue()
    header, *blocks = written.getvalue().split(b"s" * 16)
    content = header.replace(b"\x14avro.codec\x08null", b"\x14avro.codec\x12zstandard") + b"s" * 16
    for block in blocks[:-1]:
        count, at = _varint_end(block, 0)
        _, begin = _varint_end(block, at)
        packed = zstandard.compress(block[begin:])
        content += count + varint(len(packed) << 1) + packed + b"s" * 16
    return content


def _varint_end(data: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while data[end] & 0x80:
        end += 1
    return data[at : end + 1], end + 1


def read_file(content: bytes, name: str = "clicks.avro") -> list[Record]:
    return list(avro_records(Packed(io.BytesIO(content), name)))


def texts(value: dict[str, Any]) -> dict[str, Any]:
    return value | {"n": str(value["n"])}


@pytest.mark.parametrize("codec", CODECS)
def test_files_of_every_codec(codec: str) -> None:
    records = read_file(container(codec))
    assert [fields for _, fields, _ in records] == [texts(value) for value in CLICKS]
    assert records[1] == (b'{"at":"2024-03-01T11:00:00Z","id":"e1","n":-1,"user":"u1"}', texts(CLICKS[1]), FILE_CONTEXT)
    assert all(json_content(payload) == fields for payload, fields, _ in records)


def test_a_file_may_be_compressed_as_a_whole() -> None:
    assert read_file(gzip.compress(container("null")), "clicks.avro.gz") == read_file(container("null"))


def test_a_file_without_records() -> None:
    assert read_file(container("deflate", [])) == []


def before(content: bytes, place: int) -> list[Any]:
    """The records of the blocks that end before a place in a file."""
    end = content.rfind(SYNC, 0, place) + len(SYNC)
    return [fields for _, fields, _ in read_file(content[:end])] if content.find(SYNC) + len(SYNC) < end else []


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_file_that_is_cut_gives_the_blocks_before_the_cut(codec: str, data: st.DataObject) -> None:
    content = container(codec)
    cut = data.draw(st.integers(0, len(content) - 1))
    *records, last = read_file(content[:cut]) or [(b"", DAMAGED_FILE, "{}")]
    if last[1] != DAMAGED_FILE:  # between two blocks nothing tells that there was more
        records.append(last)
        assert content[:cut].endswith(b"s" * 16)
    assert [fields for _, fields, _ in records] == [texts(value) for value in CLICKS[: len(records)]]
    assert [fields for _, fields, _ in records] == before(content, cut)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "bzip2", "xz"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_wrong_bit_in_a_packed_block_costs_no_record_before_it(codec: str, data: st.DataObject) -> None:
    content = container(codec)
    place = data.draw(st.integers(content.index(SYNC) + 16, len(content) - 1))
    broken = bytearray(content)
    broken[place] ^= 1 << data.draw(st.integers(0, 7))
    records = read_file(bytes(broken))
    intact = before(content, place)
    assert [fields for _, fields, _ in records[: len(intact)]] == intact
    # Deflate has no checksum, and the last byte of bzip2 has bits that mean nothing.
    assert codec == "deflate" or records[-1][1] == DAMAGED_FILE or records == read_file(content)


def damage_of(content: bytes) -> tuple[int, bytes, str]:
    """How many records come before the damage, what is kept of it, and its reason."""
    *records, (rest, reason, context) = read_file(content)
    assert reason == DAMAGED_FILE
    assert all(content != DAMAGED_FILE for _, content, _ in records)
    return len(records), rest, json.loads(context)["damage"]["reason"]


SMALL = container("null", CLICKS[:3])
BODY = SMALL.index(b"s" * 16) + 16
DATA = b"".join(datum(FILE_SCHEMA, value) for value in CLICKS[:3])


def block(count: int, content: bytes) -> bytes:
    return varint(count << 1) + varint(len(content) << 1) + content + SYNC


@pytest.mark.parametrize(
    ("content", "found", "rest", "reason"),
    [
        (b"", 0, b"", "at byte 0 of its content: it ends too early"),
        (b"Obj\2" + SMALL[4:], 0, b"", "at byte 4 of its content: it is no Avro file"),
        (b"user,id,at\n", 0, b"", "at byte 4 of its content: it is no Avro file"),
        (SMALL[: BODY - 1], 0, b"s" * 15, f"at byte {BODY - 16} of its content: it ends too early"),
        (SMALL[:BODY] + b"\x80", 0, b"\x80", f"at byte {BODY} of its content: a number is cut short or too long"),
        (SMALL[:BODY] + b"\2\1", 0, b"", f"at byte {BODY + 2} of its content: a part of it cannot have -1 bytes"),
        (
            SMALL[:-1] + b"t",
            0,
            b"",
            f"at byte {len(SMALL)} of its content: a block does not end as",
        ),
        (SMALL + b"\2\2", 3, b"", f"at byte {len(SMALL) + 2} of its content: it ends too early"),
        (
            SMALL[:BODY] + block(2, DATA),
            2,
            datum(FILE_SCHEMA, CLICKS[2]),
            "the block before holds more than its 2 records",
        ),
        (SMALL[:BODY] + block(4, DATA), 3, b"", "a record of the block before is not what the schema says"),
        (SMALL[:BODY] + block(3, b"\xff" + DATA), 0, b"\xff" + DATA, "is not what the schema says"),
        (
            SMALL.replace(b"\x08null", b"\x08lzo4"),
            0,
            b"",
            "its codec is lzo4; allowed: null, deflate, snappy, ",
        ),
        (SMALL.replace(b"record", b"rekord"), 0, b"", "its content: its schema is no Avro schema: "),
    ],
)
def test_damaged_files(content: bytes, found: int, rest: bytes, reason: str) -> None:
    records, kept, told = damage_of(content)
    assert (records, kept) == (found, rest)
    assert reason in told


def test_a_block_that_unpacks_to_more_than_256_mib_is_damage() -> None:
    header = container("deflate", [])
    packer = zlib.compressobj(9, wbits=-15)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(257)) + packer.flush()
    assert "the block before is larger than 268435456 bytes" in damage_of(header + block(1, packed))[2]
    header = container("snappy", [])
    assert "it is too large" in damage_of(header + block(1, b"\xff\xff\xff\xff\x0f" + bytes(8)))[2]


@pytest.mark.parametrize(
    "field",
    [
        *({"name": "fixed", "type": {"type": "fixed", "name": "f", "size": size}} for size in ("5", 2.5, None)),
        {"name": ["a"], "type": "string"},
        {"name": "sort", "type": {"type": "enum", "name": "s", "symbols": "date"}},
    ],
)
def test_sizes_names_and_symbols_that_are_none_are_damage(field: dict[str, Any]) -> None:
    schema = json.dumps(record(field)).encode()
    header = b"Obj\1\2" + varint(22) + b"avro.schema" + varint(len(schema) << 1) + schema + b"\0" + SYNC
    assert "is no Avro schema" in damage_of(header + block(1, b"12345"))[2]


def test_records_without_bytes_are_not_as_many_as_a_block_says() -> None:
    header = container("null", [], record({"name": "nothing", "type": "null"}))
    assert [fields for _, fields, _ in read_file(header + block(1000, b""))] == [{"nothing": None}] * 1000
    found, rest, reason = damage_of(header + block(3, b"") + block(2**62, b""))
    assert (found, rest) == (1003, b"")
    assert reason.endswith(f"the block before cannot hold {2**62} records without bytes")


def test_a_wrong_checksum_of_a_snappy_block_is_damage() -> None:
    packed = bytes(cramjam.snappy.compress_raw(DATA))
    header = container("snappy", [])
    assert len(read_file(header + block(3, packed + zlib.crc32(DATA).to_bytes(4)))) == 3
    assert "its checksum is wrong" in damage_of(header + block(3, packed + bytes(4)))[2]


def test_a_schema_that_grows_and_one_that_shrinks(tmp_path: Path) -> None:
    (tmp_path / "1.avro").write_bytes(container("null", [{"user": "u", "id": "1", "at": "2024-03-01"}], record(*CLICK)))
    page = {"name": "page", "type": "string"}
    value = {"user": "u", "id": "2", "at": "2024-03-01", "page": "/"}
    (tmp_path / "2.avro").write_bytes(container("null", [value], record(*CLICK, page)))
    (tmp_path / "3.avro").write_bytes(
        container("null", [{"user": "u", "at": "2024-03-01"}], record(CLICK[0], CLICK[2]))
    )
    stream = click_stream("avro", tmp_path, fields={"attributes": {"page": "page"}})
    decoder = EventDecoder(stream)
    rows = []
    for file in list_files(stream, NOW).ready:
        for payload, content, context in records_of(stream, file):
            row = decoder.decode(content, decoder.delivery(file.path, file.modified, "avro"))
            assert decode_kept(decoder, payload, context, file.path, file.modified) == row
            rows.append((row[1], *row[4:]))
    assert rows == [("1", None, None), ("2", "/", None), (None, None, "missing_field:id")]
