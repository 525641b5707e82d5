"""What little of Avro can stand for much, and does not: schemas that double, values without bytes, long names."""

import json
import tracemalloc
from io import BytesIO
from typing import Any

import pytest

from dedup_platform.sources.avro.files import avro_batches, avro_records
from dedup_platform.sources.avro.messages import AvroMessages
from dedup_platform.sources.compression import Packed
from dedup_platform.sources.frame_sizes import MAX_BYTES
from dedup_platform.sources.records import DAMAGED_FILE, UNKNOWN_SCHEMA, RejectedError
from dedup_platform.sources.registry import RegisteredSchema
from dedup_platform_tests.sources.schemas import varint
from dedup_platform_tests.sources.test_avro import BAD, CLICK, avro_stream, damage_of, record
from dedup_platform_tests.sources.test_messages import contents

SYNC = b"s" * 16
DOUBLED: Any = "null"
for level in range(18):
    before = f"l{level - 1}" if level else "null"
    fields = [{"name": "a", "type": DOUBLED}, {"name": "b", "type": before}]
    DOUBLED = {"type": "record", "name": f"l{level}", "fields": fields}
LISTS = {"type": "array", "items": {"type": "array", "items": "null"}}
TREE = {"type": "array", "items": "tree"}


def header(schema: Any) -> bytes:
    """Of a file that is not packed."""
    text = json.dumps(schema).encode()
    return b"Obj\1\2" + varint(22) + b"avro.schema" + varint(len(text) << 1) + text + b"\0" + SYNC


def block(count: int, content: bytes) -> bytes:
    return varint(count << 1) + varint(len(content) << 1) + content + SYNC


def test_a_schema_whose_smallest_record_is_large_is_damage() -> None:
    found, _, reason = damage_of(header(record({"name": "user", "type": DOUBLED})) + block(1, b""))
    assert found == 0
    assert "its schema cannot be used: one record has at least 524288 values; allowed: up to 100000" in reason


def test_a_registered_schema_whose_smallest_record_is_large_is_unknown() -> None:
    text = json.dumps(record({"name": "user", "type": DOUBLED}))
    messages = AvroMessages(None, lambda _: RegisteredSchema("AVRO", text, ()))
    with pytest.raises(RejectedError, match=UNKNOWN_SCHEMA):
        messages.content(b"", 1)


@pytest.mark.parametrize("kind", [["null", DOUBLED], {"type": "array", "items": DOUBLED}])
def test_a_schema_of_which_little_may_be_there_is_read(kind: Any) -> None:
    [(_, content, _)] = avro_records(
        Packed(BytesIO(header(record({"name": "a", "type": kind})) + block(1, b"\0")), "x")
    )
    assert content in ({"a": None}, {"a": []})


def test_records_inside_themselves_are_counted_once() -> None:
    schema = {"type": "record", "name": "tree", "fields": [{"name": "a", "type": TREE}, {"name": "b", "type": "null"}]}
    [(_, content, _)] = avro_records(Packed(BytesIO(header(schema) + block(1, b"\2\0\0")), "x"))
    assert content == {"a": [{"a": [], "b": None}], "b": None}


@pytest.mark.parametrize(("lists", "is_read"), [(100, True), (101, False), (10_000, False)])
def test_lists_of_nulls_in_lists(lists: int, is_read: bool, tmp_path: Any) -> None:
    value = b"\2u\2e\2t" + varint(lists << 1) + (varint(1000 << 1) + b"\0") * lists + b"\0"
    [content] = contents(avro_stream(tmp_path, record(*CLICK, {"name": "many", "type": LISTS})), value)
    assert (content != BAD) == is_read


@pytest.mark.parametrize(("items", "is_read"), [(10, True), (11, False)])
def test_lists_of_many_nulls_in_records(items: int, is_read: bool, tmp_path: Any) -> None:
    nulls = [{"name": f"n{number}", "type": "null"} for number in range(9_999)]
    kind = {"type": "array", "items": {"type": "record", "name": "nothing", "fields": nulls}}
    value = b"\2u\2e\2t" + varint(items << 1) + b"\0"
    [content] = contents(avro_stream(tmp_path, record(*CLICK, {"name": "many", "type": kind})), value)
    assert (content != BAD) == is_read


def test_a_block_of_less_than_no_records_is_damage() -> None:
    content = header(record({"name": "user", "type": "null"})) + block(2, b"")
    found, rest, reason = damage_of(content + varint(9) + b"\0" + SYNC)
    assert (found, rest) == (2, b"")
    assert reason.endswith("a block cannot hold -5 records")


@pytest.mark.parametrize(
    ("kind", "names", "data"),
    [
        ("null", [f"f{number:05d}{'x' * 50}" for number in range(1000)], [b""] * 1000),
        ("null", [f"f{number}" for number in range(20_000)], [b""] * 60),
        ("boolean", ["x" * 10**5], [b"\1"] * 1000),
        ({"type": "enum", "name": "e", "symbols": ["x" * 10**5]}, ["a"], [b"\0"] * 1000),
    ],
    ids=["records without bytes", "many fields", "a long name", "a long symbol"],
)
def test_records_that_are_much_longer_than_their_data(kind: Any, names: list[str], data: list[bytes]) -> None:
    schema = record(*({"name": name, "type": kind} for name in names))
    content = header(schema) + block(len(data), b"".join(data))
    batches = [list(payloads) for payloads, _, _ in avro_batches(Packed(BytesIO(content), "x"))]
    assert sum(map(len, batches)) == len(data)
    assert [each for some in batches for each in some] == [
        each for each, _, _ in avro_records(Packed(BytesIO(content), "x"))
    ]
    assert max(sum(map(len, some)) for some in batches) < 5 * MAX_BYTES


def test_damage_behind_parts_of_a_block() -> None:
    content = header(record({"name": "x" * 10**5, "type": "boolean"})) + block(1000, b"\1" * 900 + b"\7" + b"\1" * 99)
    *parts, (rest, contents_of_rest, _) = avro_batches(Packed(BytesIO(content), "x"))
    assert sum(len(payloads) for payloads, _, _ in parts) == 900
    assert (list(rest), list(contents_of_rest)) == ([b"\7" + b"\1" * 99], [DAMAGED_FILE])


def test_very_many_small_numbers_are_few_objects() -> None:
    count = 100_000
    kind = {"type": "array", "items": "long"}
    reader = AvroMessages(None, lambda _: RegisteredSchema("AVRO", json.dumps(record({"name": "a", "type": kind})), ()))
    reader.content(b"\0", 1)
    tracemalloc.start()
    content = reader.content(varint(count << 1) + b"\2" * count + b"\0", 1)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content == {"a": ["1"] * count}
    assert size < 12 * count
