"""JSON lines: each line is an object or malformed; numbers keep their text. Literal bytes in, literal records out."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES, Record
from dedup_platform.sources.text.json_records import Number, canonical, json_content, json_records
from dedup_platform.sources.text.lines import Lines

BAD = MALFORMED_RECORD


def read(content: bytes, size: int = 2**20, damage: DamageError | None = None) -> list[Record]:
    return list(json_records(Lines(chunks(content, size, damage))))


def chunks(content: bytes, size: int, damage: DamageError | None) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]
    if damage:
        raise damage


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


LINES: dict[str, tuple[bytes, Any]] = {
    "object": (b'{"a": "x"}', {"a": "x"}),
    "empty object": (b"{}", {}),
    "null": (b'{"a": null}', {"a": None}),
    "booleans": (b'{"a": true, "b": false}', {"a": True, "b": False}),
    "numbers keep their text": (
        b'{"a": 1.0, "b": 1e5, "c": -0, "d": 0.10}',
        {"a": "1.0", "b": "1e5", "c": "-0", "d": "0.10"},
    ),
    "a large integer": (b'{"a": ' + b"9" * 5000 + b"}", {"a": "9" * 5000}),
    "escapes": (rb'{"a": "\u00e9\ud83d\ude00\u0000\n"}', {"a": "é😀\0\n"}),
    "nested": (b'{"a": {"b": [1, "2"]}}', {"a": {"b": ["1", "2"]}}),
    "spaces around": (b'  {"a": "x"} \t', {"a": "x"}),
    "array": (b'[{"a": 1}]', BAD),
    "text": (b'"a"', BAD),
    "number": (b"1", BAD),
    "a lonely null": (b"null", BAD),
    "cut short": (b'{"a": "x"', BAD),
    "two objects": (b'{"a": 1}{"a": 2}', BAD),
    "a comma after": (b'{"a": 1},', BAD),
    "single quotes": (b"{'a': 1}", BAD),
    "NaN": (b'{"a": NaN}', BAD),
    "Infinity": (b'{"a": [-Infinity]}', BAD),
    "a name twice": (b'{"a": 1, "a": 1}', BAD),
    "a name twice, deeper": (b'{"x": [{"a": 1, "a": 2}]}', BAD),
    "a name twice, escaped": (rb'{"a": 1, "\u0061": 1}', BAD),
    "a raw NUL byte": (b'{"a": "\0"}', BAD),
    "a raw tab": (b'{"a": "\t"}', BAD),
    "invalid UTF-8": (b'{"a": "\xff"}', BAD),
    "half a surrogate pair": (rb'{"a": "\ud83d"}', BAD),
    "half a surrogate pair, in a name": (rb'{"\ude00": 1}', BAD),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), BAD),
    "100 levels": (b'{"a":' + b"[" * 99 + b"]" * 99 + b"}", {"a": nested(99)}),
    "100 levels and more brackets": (b'{"a":' + b"[" * 99 + b"]" * 99 + b',"b":[]}', {"a": nested(99), "b": []}),
    "101 levels": (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", BAD),
    "101 levels of objects": (b'{"a":' * 101 + b"1" + b"}" * 101, BAD),
    "many brackets": (b'{"a":[' + b"[]," * 200 + b"[]]}", {"a": [[]] * 201}),
    "far too deep": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", BAD),
}


@pytest.mark.parametrize("case", LINES)
def test_lines(case: str) -> None:
    line, expected = LINES[case]
    payload = line.rstrip(b"\r\n")
    assert read(b'{"first": "1"}\n' + line + b'\r\n{"last": "1"}') == [
        (b'{"first": "1"}', {"first": "1"}, '{"format":"json"}'),
        (payload, expected, '{"format":"json"}'),
        (b'{"last": "1"}', {"last": "1"}, '{"format":"json"}'),
    ]
    assert json_content(payload) == expected


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n \n\t\r\n", []),
        (b'\xef\xbb\xbf{"a":1}\n', [b'{"a":1}']),
        (b'{"a":1}\r\n\r\n{"a":2}', [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1}\r{"a":2}\r', [b'{"a":1}', b'{"a":2}']),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 2**20])
def test_line_ends_blank_lines_and_byte_order_mark(content: bytes, payloads: list[bytes], size: int) -> None:
    records = read(content, size)
    assert [payload for payload, _, _ in records] == payloads
    assert BAD not in [fields for _, fields, _ in records]


def test_a_line_of_10_mb_is_a_record() -> None:
    line = b'{"a":"' + b"x" * 10_000_000 + b'"}'
    assert [len(payload) for payload, fields, _ in read(line + b"\n" + line) if fields != BAD] == [len(line)] * 2


@pytest.mark.parametrize("length", [MAX_RECORD_BYTES + 1, 3 * MAX_RECORD_BYTES])
def test_a_longer_line_is_rejected_and_its_beginning_kept(length: int) -> None:
    first, second = read(b"[" * length + b'\n{"a":"1"}\n')
    assert first == (b"[" * MAX_RECORD_BYTES, BAD, '{"format":"json","oversized":true}')
    assert second[:2] == (b'{"a":"1"}', {"a": "1"})


def test_damage_keeps_what_is_complete_and_stands_as_one_record() -> None:
    [first, (payload, reason, context)] = read(b'{"a":"1"}\n{"a":', 4, DamageError("broken", 17))
    assert first == (b'{"a":"1"}', {"a": "1"}, '{"format":"json"}')
    assert (payload, reason) == (b'{"a":', DAMAGED_FILE)
    assert context == '{"format":"json","damage":{"reason":"broken","offset":17}}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"b": 1.0, "a": [true, null, "x"]}', '{"a":[true,null,"x"],"b":1.0}'),
        ('{"a": 1e2, "é": "\\u00e9\\n\\""}', '{"a":1e2,"é":"é\\n\\""}'),
        ('{"a": {}, "b": []}', '{"a":{},"b":[]}'),
    ],
)
def test_canonical(text: str, expected: str) -> None:
    content = json_content(text.encode())
    assert canonical(content) == expected
    assert json_content(expected.encode()) == content


values = st.recursive(
    st.none()
    | st.booleans()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.integers().map(lambda n: Number(n)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('aé"\n', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", max_size=3), values, max_size=3))
def test_canonical_text_reads_back_equal(fields: dict[str, Any]) -> None:
    text = canonical(fields)
    assert json_content(text.encode()) == fields
    assert canonical(json_content(text.encode())) == text
    assert list(json.loads(text)) == sorted(fields)


@pytest.mark.parametrize("number", [b"1", b"-1.5", b"12e3"])
def test_very_many_short_numbers_are_few_objects(number: bytes) -> None:
    count = 200_000
    tracemalloc.start()
    content = json_content(b'{"a":[' + b",".join([number] * count) + b"]}")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert content == {"a": [number.decode()] * count}
    assert all(type(each) is Number for each in content["a"])
    assert size < 12 * count
