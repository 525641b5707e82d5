"""JSON files that hold lists of events, taken apart as they are read."""

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES
from dedup_platform.sources.text import json_scanner
from dedup_platform.sources.text.json_documents import json_events
from dedup_platform.sources.text.json_records import json_content

REST = '{"format":"json","rest":true}'
UNDIVIDED = '{"format":"json","undivided":true}'


def chunked(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))


def events(content: bytes, *steps: str, size: int = 7) -> list[tuple[str, int, int]]:
    """Payloads with their places; of what is rejected the reason in front. The size of chunks makes no difference."""
    found = list(json_events(chunked(content, size), steps))
    assert found == list(json_events(iter([content]), steps))
    return [
        (payload.decode() if isinstance(read, dict) else f"{read}: {payload.decode()}", number, index)
        for (payload, read, _), number, index in found
    ]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that every value lies over several."""
    monkeypatch.setattr(json_scanner, "_BLOCK", 1)


def test_a_document_a_line() -> None:
    content = b'{"Records": [{"a": 1}, {"a":\t2.0}], "b": [3]}\n\n{"c": {"Records": [0]}, "Records": [{}]}\r\n'
    assert events(content, "Records") == [('{"a": 1}', 0, 0), ('{"a":\t2.0}', 0, 1), ("{}", 1, 0)]


def test_a_document_over_many_lines() -> None:
    content = json.dumps({"sent": {"x": "]}"}, "detail": {"a": [], "list": [{"a": ']}"\\'}, {"b": [[{}]]}]}}, indent=2)
    assert [json.loads(payload) for payload, _, _ in events(content.encode(), "detail", "list")] == [
        {"a": ']}"\\'},
        {"b": [[{}]]},
    ]
    assert [place for _, *place in events(content.encode(), "detail", "list")] == [[0, 0], [0, 1]]


def test_a_document_over_many_lines_that_breaks_off_takes_the_rest_of_the_file() -> None:
    rest = '}\n{"Records": [{"b": 2}]}'
    content = f'{{"sent": {{\n"x": 1\n}}, "Records": [{{"a": 1}}, {rest}'
    assert events(content.encode(), "Records") == [('{"a": 1}', 0, 0), (f"{MALFORMED_RECORD}: {rest}", 0, 1)]


def test_a_list_that_is_the_whole_file() -> None:
    assert events(b'\xef\xbb\xbf [\n{"a":1},\n{"a":2}\n]\n') == [('{"a":1}', 0, 0), ('{"a":2}', 0, 1)]
    assert events(b'[{"a":1}][]\n[{"a":2}]') == [('{"a":1}', 0, 0), ('{"a":2}', 2, 0)]


def test_there_are_no_events_in_nothing() -> None:
    for content in (b"", b"\n \n", b'{"Records": [ ]}', b'{"Records":[]}\n{"Records":[]}'):
        assert events(content, "Records") == []


def test_names_are_what_json_says_of_them() -> None:
    assert events(b'{"\\u0052ecords": [{"a": 1}]}', "Records") == [('{"a": 1}', 0, 0)]


@pytest.mark.parametrize(
    "document",
    [
        '{"a": [1]}',
        "{}",
        "[]",
        '{"Records": {}}',
        '{"Records": null, "a": [1, {}]}',
        '"Records"',
        "7",
        '{"a": {"Records": []}}',
    ],
)
def test_a_document_without_the_list_is_one_rejected_record(document: str) -> None:
    content = f'{document}\n{{"Records": [{{}}]}}'.encode()
    assert events(content, "Records") == [(f"{MALFORMED_RECORD}: {document}", 0, 0), ("{}", 1, 0)]
    [(record, _, _), _] = json_events(iter([content]), ["Records"])
    assert record[2] == UNDIVIDED


@pytest.mark.parametrize(
    "event", ["7", '"x"', "null", "[1,[2]]", '{"a":nope}', '{"a":1,"a":2}', '{"a":1]', "[" * 200 + "]" * 200]
)
def test_an_event_that_is_broken_harms_no_other(event: str) -> None:
    content = f'[{{"a":1}}, {event} , {{"a":2}}]'.encode()
    assert events(content) == [('{"a":1}', 0, 0), (f"{MALFORMED_RECORD}: {event}", 0, 1), ('{"a":2}', 0, 2)]


def test_bytes_that_are_no_text() -> None:
    [(one, _, _), (other, _, _)] = json_events(iter([b'[{"a":"\xff"},{"b":1}]']), [])
    assert one == (b'{"a":"\xff"}', MALFORMED_RECORD, '{"format":"json"}')
    assert other == (b'{"b":1}', json_content(b'{"b":1}'), '{"format":"json"}')


@pytest.mark.parametrize(
    ("line", "found", "rest"),
    [
        ('{"R": [{"a":1} {"a":2}]}', ['{"a":1}'], '{"a":1} {"a":2}]}'),
        ('{"R": [{"a":1}, ]}', ['{"a":1}'], "]}"),
        ('{"x" 1, "R": [{"a":1}]}', [], '{"x" 1, "R": [{"a":1}]}'),
        ('{x: 1, "R": [{"a":1}]}', [], '{x: 1, "R": [{"a":1}]}'),
        ('{"x": , "R": [{"a":1}]}', [], '{"x": , "R": [{"a":1}]}'),
        ('{"R": [{"a":1}], "R": [{"a":2}]}', ['{"a":1}'], '], "R": [{"a":2}]}'),
        ('{"R": [{"a":1}', ['{"a":1}'], '{"a":1}'),
        ('{"R": [{"a":1}]', ['{"a":1}'], "]"),
        ("]", [], "]"),
    ],
)
def test_a_line_that_breaks_off_harms_no_other(line: str, found: Sequence[str], rest: str) -> None:
    content = f'{line}\n{{"R": [{{"a":9}}]}}\n'.encode()
    *first, broken, last = events(content, "R")
    assert [payload for payload, _, _ in first] == found
    assert broken == (f"{MALFORMED_RECORD}: {rest}", 0, len(found))
    assert last == ('{"a":9}', 1, 0)


def test_what_follows_the_break_of_a_longer_document_is_one_rejected_record() -> None:
    content = b'[\n{"a":1},\n{"a":2}\n{"a":3}\n]\n'
    assert events(content) == [('{"a":1}', 0, 0), ('{"a":2}', 0, 1), (MALFORMED_RECORD + ': {"a":2}\n{"a":3}\n]', 0, 2)]
    assert list(json_events(iter([content]), []))[-1][0][2] == REST


@pytest.mark.parametrize("end", ['{"a', '{"a":1', '{"a":[1', '{"a":"\\', "12", '"x'])
def test_a_list_that_is_cut_short(end: str) -> None:
    content = f'[{{"a":1}},{end}'.encode()
    assert events(content)[0] == ('{"a":1}', 0, 0)
    assert events(content)[-1][0].startswith(f"{MALFORMED_RECORD}: ")
    cut = list(json_events(_cut(content), []))
    assert cut[-1][0][:2] == (end.encode() if end != "12" else b"12", DAMAGED_FILE)
    assert len({(number, index) for _, number, index in cut}) == len(cut)


def _cut(content: bytes) -> Iterator[bytes]:
    yield from chunked(content, 5)
    raise DamageError("cut", 3)


def test_damage_between_documents() -> None:
    *good, (record, number, index) = json_events(_cut(b'[{"a":1}]\n[{"a":2}]\n'), [])
    assert [place for _, *place in good] == [[0, 0], [1, 0]]
    assert (record[1], number, index) == (DAMAGED_FILE, 2, 0)


def test_what_is_longer_than_a_record_may_be() -> None:
    long = b'{"a":"' + b"x" * (MAX_RECORD_BYTES + 5) + b'"}'
    nested = b"[" * 5000 + b" " * MAX_RECORD_BYTES + b"]" * 5000
    content = b'[{"a":1},' + long + b"," + nested + b',{"a":2}]'
    found = list(json_events(chunked(content, 2**18), []))
    assert [(len(payload), read if isinstance(read, str) else payload) for (payload, read, _), _, _ in found] == [
        (7, b'{"a":1}'),
        (MAX_RECORD_BYTES, MALFORMED_RECORD),
        (MAX_RECORD_BYTES, MALFORMED_RECORD),
        (7, b'{"a":2}'),
    ]


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_scanner, "_BLOCK", 2**16)
    event = b'{"a":"' + b"x" * 1000 + b'"},'

    def content() -> Iterator[bytes]:
        yield b'{"skipped": "' + b"y" * 1000
        yield from (b"y" * 2**16 for _ in range(600))
        yield b'", "R": ['
        yield from (event * 64 for _ in range(600))
        yield b"{}]}"

    tracemalloc.start()
    count = sum(1 for _ in json_events(content(), ["R"]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 600 * 64 + 1
    assert peak < 4 * MAX_RECORD_BYTES


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab"\\[]{},:\n ', max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a"[]{}', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["a", "R", "[{"]), values, max_size=3), max_size=4),
    st.dictionaries(st.sampled_from(["a", "b", "}"]), values, max_size=2),
    st.sampled_from([None, 1]),
    st.integers(1, 20),
)
def test_any_list_in_any_document(found: list[Any], beside: dict[str, Any], indent: int | None, size: int) -> None:
    document = {"first": beside, "in": {**beside, "R": found}, **beside}
    content = json.dumps(document, indent=indent).encode() * 2
    read = [json.loads(payload) for (payload, _, _), _, _ in json_events(chunked(content, size), ["in", "R"])]
    assert read == found * 2


@given(st.text('{}[]",:\\\n aR0', max_size=40), st.integers(1, 20), st.sampled_from([(), ("R",)]))
def test_any_bytes_are_records_of_places_of_their_own(text: str, size: int, steps: tuple[str, ...]) -> None:
    """Nothing is lost without a record that says so: what is left out of lists that are whole is not."""
    found = list(json_events(chunked(text.encode(), size), steps))
    places = [place for _, *place in found]
    assert places == sorted(places)
    assert len({tuple(place) for place in places}) == len(places)
