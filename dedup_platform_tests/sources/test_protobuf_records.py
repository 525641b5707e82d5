"""Protobuf: events keep their very bytes, a broken one harms no other, and values are what their JSON would be."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings, strategies as st

from dedup_platform.sources.compression import Packed
from dedup_platform.sources.files import list_files, records_of
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.protobuf.files import delimited_messages
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES
from dedup_platform.sources.text.json_records import Number, canonical, json_content
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, message_stream
from dedup_platform_tests.sources.schemas import BATCH, SINGLE, message_class, varint, write_protos
from dedup_platform_tests.sources.test_messages import contents, read

BAD = MALFORMED_RECORD
CONTEXT = '{"format":"protobuf"}'
ALL_FIELDS = {"event_id": {"hash": "*"}}
NOW = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_protos(folder)
    return folder


@pytest.fixture(scope="module")
def event(folder: Path) -> Callable[..., Any]:
    made: Callable[..., Any] = message_class(folder, "pkg.Event")
    return made


@pytest.fixture(scope="module")
def batch(folder: Path) -> Callable[..., Any]:
    made: Callable[..., Any] = message_class(folder, "pkg.Batch")
    return made


@pytest.fixture(scope="module")
def batches(folder: Path) -> Stream:
    return message_stream("protobuf", folder, **BATCH)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Stream:
    """One event a message, all of whose fields are looked at."""
    return message_stream("protobuf", folder, ALL_FIELDS, **SINGLE)


@pytest.fixture(scope="module")
def all_of_batches(folder: Path) -> Stream:
    return message_stream("protobuf", folder, ALL_FIELDS, **BATCH)


def field(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + (varint(len(content)) if kind == 2 else b"") + content


def test_each_event_of_a_batch_keeps_its_bytes(batches: Stream, event: Any, batch: Any) -> None:
    first, second = event(user="u", id="1"), event(user="v", id="2", at={"seconds": 1709290800, "nanos": 500_000})
    value = batch(sender="s", events=[first, second]).SerializeToString()
    assert read(batches, value) == [
        (first.SerializeToString(), {"user": "u", "id": "1", "at": None}, CONTEXT),
        (second.SerializeToString(), {"user": "v", "id": "2", "at": "2024-03-01T11:00:00.000500Z"}, CONTEXT),
    ]


def test_a_descriptor_set_is_read_like_its_text(folder: Path, batches: Stream, event: Any, batch: Any) -> None:
    compiled = message_stream("protobuf", folder, protobuf=BATCH["protobuf"] | {"schema": "events.desc"})
    value = batch(events=[event(user="u", id="1")]).SerializeToString()
    assert read(compiled, value) == read(batches, value)


def test_a_broken_event_of_a_batch_is_rejected_alone(batches: Stream, event: Any) -> None:
    good = event(user="u", id="1").SerializeToString()
    value = b"".join(field(2, 2, content) for content in (good, b"\x0a\x05u", good, b""))
    fields = {"user": "u", "id": "1", "at": None}
    empty = {"user": "", "id": "", "at": None}
    assert read(batches, value) == [
        (good, fields, CONTEXT),
        (b"\x0a\x05u", BAD, CONTEXT),
        (good, fields, CONTEXT),
        (b"", empty, CONTEXT),
    ]


def test_a_message_that_is_cut_gives_the_whole_events_before_the_cut(batches: Stream, event: Any, batch: Any) -> None:
    events = [event(user="u" * length, id="1") for length in (3, 200, 20_000)]
    value = batch(sender="s", events=events).SerializeToString()
    payloads = [each.SerializeToString() for each in events]
    ends, at = {3: 0}, 3
    for number, payload in enumerate(payloads, 1):
        at += len(field(2, 2, payload))
        ends[at] = number
    for cut in [*range(1, 300), *range(300, len(value), 501), len(value) - 1]:
        start = max((end for end in ends if end <= cut), default=0)
        kept = payloads[: ends.get(start, 0)]
        rest = [value[start:cut]] if start < cut else []
        records = list(MessageReader(batches).records(value[:cut]))
        assert [payload for payload, _, _ in records] == (kept + rest if kept else [value[:cut]] if rest else [])
        assert [content for _, content, _ in records[len(kept) :]] == [BAD] * len(rest)


@pytest.mark.parametrize(
    "value",
    [
        b'{"user": "u"}',
        b"u,e,2024-03-01\n",
        b"\0\0\0\0\1\0\x12\x03",
        b"\xff" * 20,
        field(2, 0, b"\1"),
        field(3, 3, b""),
        field(3, 4, b""),
        field(9, 0, b"\1"),
        field(9, 5, b"1234"),
    ],
    ids=repr,
)
def test_what_is_no_batch_is_one_rejected_record(batches: Stream, value: bytes) -> None:
    [(payload, content, context)] = read(batches, value)
    assert (payload, content, json.loads(context).get("undivided")) == (value, BAD, True)


def test_a_batch_without_events_has_no_records(batches: Stream, batch: Any) -> None:
    assert read(batches, batch(sender="s").SerializeToString()) == []


def test_what_a_batch_holds_besides_its_events_is_passed_over(batches: Stream, event: Any) -> None:
    good = event(user="u", id="1").SerializeToString()
    group = field(9, 3, b"") + field(2, 2, good) + field(8, 3, b"") + field(8, 4, b"") + field(9, 4, b"")
    others = field(3, 0, b"\x80\x01"), field(4, 1, b"12345678"), field(5, 5, b"1234"), field(6, 2, b"x" * 300), group
    value = b"".join(other + field(2, 2, good) for other in others)
    assert [payload for payload, _, _ in read(batches, value)] == [good] * len(others)


def test_a_group_that_does_not_end_is_the_rest_as_a_whole(batches: Stream, event: Any) -> None:
    good = event(user="u", id="1").SerializeToString()
    rest = field(9, 3, b"") + field(4, 0, b"\1")
    [_, last] = read(batches, field(2, 2, good) + rest)
    assert last == (rest, BAD, '{"format":"protobuf","rest":true}')


@pytest.mark.parametrize("stream_name", ["batches", "whole"])
def test_an_empty_message_is_one_rejected_record(stream_name: str, request: pytest.FixtureRequest) -> None:
    [(payload, content, _)] = read(request.getfixturevalue(stream_name), b"")
    assert (payload, content) == (b"", BAD)


def test_a_message_of_8_mb(batches: Stream, event: Any, batch: Any) -> None:
    value = batch(events=[event(user="u" * 780, id=f"{number}") for number in range(10_000)]).SerializeToString()
    assert len(value) > 7_900_000
    records = list(MessageReader(batches).records(value))
    assert [fields["id"] for _, fields, _ in records if not isinstance(fields, str)] == [f"{n}" for n in range(10_000)]


VALUES: dict[str, tuple[dict[str, Any], Any]] = {
    "n": ({"n": 5}, {"n": "5"}),
    "int64 extremes": ({"n": -(2**63), "right": 2**63 - 1}, {"n": str(-(2**63)), "right": str(2**63 - 1)}),
    "uint64 extreme": ({"large": 2**64 - 1, "stamp": 2**64 - 1}, {"large": str(2**64 - 1), "stamp": str(2**64 - 1)}),
    "sint32": ({"low": -(2**31)}, {"low": str(-(2**31))}),
    "double": ({"price": 0.1}, {"price": "0.1"}),
    "whole double": ({"price": 5.0}, {"price": "5.0"}),
    "large double": ({"price": 1e300}, {"price": "1e+300"}),
    "NaN": ({"price": float("nan"), "ratio": float("-inf")}, {"price": "NaN", "ratio": "-Infinity"}),
    "float": ({"ratio": 0.1}, {"ratio": "0.1"}),
    "float, the largest": ({"ratio": 3.4028234663852886e38}, {"ratio": "3.4028235e+38"}),
    "a bool": ({"paid": True}, {"paid": True}),
    "an enum": ({"kind": 1}, {"kind": "CLICK"}),
    "an enum of later": ({"kind": 7}, {"kind": "7"}),
    "bytes": ({"raw": b"\0\xff"}, {"raw": "AP8="}),
    "a list": ({"counts": [3, 0]}, {"counts": ["3", "0"]}),
    "a map": ({"names": {7: "x"}}, {"names": {"7": "x"}}),
    "a map of messages": ({"places": {True: {"level": 1}}}, {"places": {"true": {"level": "1"}}}),
    "a message": ({"place": {"name": "p"}}, {"place": {"name": "p"}}),
    "an empty message": ({"place": {}}, {"place": {}}),
    "a wrapper": ({"wrapped": 0}, {"wrapped": "0"}),
    "one of two": ({"left": ""}, {"left": ""}),
    "a zero that is set": ({"maybe": 0}, {"maybe": "0"}),
    "a time": ({"at": {"seconds": -1, "nanos": 1}}, {"at": "1969-12-31T23:59:59.000000001Z"}),
    "the first time": ({"at": {"seconds": -62_135_596_800}}, {"at": "0001-01-01T00:00:00Z"}),
    "the last time": (
        {"at": {"seconds": 253_402_300_799, "nanos": 999_999_999}},
        {"at": "9999-12-31T23:59:59.999999999Z"},
    ),
    "after the last time": ({"at": {"seconds": 253_402_300_800}}, {"at": "253402300800000000000"}),
    "no time": ({"at": {"seconds": 1, "nanos": -1}}, {"at": {"nanos": "-1", "seconds": "1"}}),
}


@pytest.mark.parametrize("case", VALUES)
def test_values(whole: Stream, event: Any, case: str) -> None:
    given, expected = VALUES[case]
    given = {name: value if name != "wrapped" else {"value": value} for name, value in given.items()}
    [fields] = contents(whole, event(id="e", **given).SerializeToString())
    assert fields == {"id": "e"} | expected
    assert canonical(fields) == canonical(json_content(canonical(fields).encode()))


def test_fields_that_are_not_set_are_null_or_their_default(folder: Path, event: Any) -> None:
    names = ["n", "price", "paid", "kind", "raw", "counts", "names", "maybe", "place", "wrapped", "left"]
    expected = {"n": "0", "price": "0.0", "paid": False, "kind": "UNKNOWN", "raw": "", "counts": [], "names": {}}
    value = event(id="e").SerializeToString()
    stream = message_stream("protobuf", folder, {"attributes": {f"{name}_column": name for name in names}}, **SINGLE)
    [fields] = contents(stream, value)
    assert fields == {"user": "", "id": "e", "at": None} | dict.fromkeys(names) | expected
    [all_set] = contents(message_stream("protobuf", folder, ALL_FIELDS, **SINGLE), value)
    assert not isinstance(all_set, str)
    assert dict(all_set) == {"id": "e"}
    assert {name: all_set.get(name) for name in fields} == fields
    assert {name: all_set[name] for name in fields} == fields


def test_a_number_is_hashed_like_the_same_of_json(folder: Path, event: Any) -> None:
    value = event(user="u", n=5, ratio=0.5, paid=True).SerializeToString()
    rule = {"event_id": {"hash": ["user", "n", "ratio", "paid"]}}
    [protobuf] = contents(message_stream("protobuf", folder, rule, **SINGLE), value)
    [from_json] = contents(message_stream("json"), b'{"user": "u", "n": 5, "ratio": 0.5, "paid": true}')
    assert not isinstance(protobuf, str)
    assert not isinstance(from_json, str)
    assert {name: protobuf[name] for name in from_json} == from_json
    assert isinstance(protobuf["n"], Number)


def test_unknown_fields_stay_in_the_payload(whole: Stream, event: Any) -> None:
    payload = event(id="e").SerializeToString() + field(999, 2, b"new")
    assert read(whole, payload) == [(payload, {"id": "e"}, CONTEXT)]


def test_a_field_that_the_schema_gets_later_is_read_from_then_on(folder: Path, whole: Stream, event: Any) -> None:
    later = folder / "later"
    later.mkdir()
    (later / "parts").mkdir()
    (later / "parts/place.proto").write_text((folder / "parts/place.proto").read_text())
    text = (folder / "events.proto").read_text()
    (later / "events.proto").write_text(text.replace("fixed64 stamp = 21;", "fixed64 stamp = 21; string page = 22;"))
    new = message_stream("protobuf", later, ALL_FIELDS | {"attributes": {"page": "page"}}, **SINGLE)
    payload = event(id="e").SerializeToString() + field(22, 2, b"/")
    assert contents(whole, payload) == [{"id": "e"}]
    assert contents(new, payload) == [{"id": "e", "page": "/"}]
    [old] = contents(new, event(id="e").SerializeToString())
    assert not isinstance(old, str)
    assert (dict(old), old.get("page")) == ({"id": "e"}, "")


@pytest.mark.parametrize("payload", [b"\x0a\x01\xff", b"\x0a", b"{}", b"\x9b\x01" * 150, b"\0"])
def test_what_is_no_event_is_malformed(whole: Stream, payload: bytes) -> None:
    [(kept, content, context)] = read(whole, payload)
    assert (kept, content, context) == (payload, BAD, CONTEXT)


def test_messages_inside_one_another_end_somewhere(whole: Stream) -> None:
    payload = b""
    for _ in range(300):
        payload = field(19, 2, payload)
    assert contents(whole, payload) == [BAD]


@given(value=st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_records_that_decode_again(batches: Stream, whole: Stream, value: bytes) -> None:
    read(batches, value)
    read(whole, value)


events = st.fixed_dictionaries(
    {},
    optional={
        "user": st.text(max_size=5),
        "id": st.text(max_size=5),
        "n": st.integers(-(2**63), 2**63 - 1),
        "price": st.floats(allow_nan=False, allow_infinity=False),
        "ratio": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "maybe": st.integers(-(2**31), 2**31 - 1),
        "paid": st.booleans(),
        "raw": st.binary(max_size=5),
        "counts": st.lists(st.integers(0, 9), max_size=3),
        "names": st.dictionaries(st.integers(0, 9), st.text(max_size=3), max_size=3),
    },
)


@given(many=st.lists(events, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_events_are_what_protobuf_s_own_json_says(
    all_of_batches: Stream, event: Any, batch: Any, many: list[dict[str, Any]]
) -> None:
    sent = [event(**fields) for fields in many]
    records = read(all_of_batches, batch(sender="s", events=sent).SerializeToString(deterministic=True))
    assert [payload for payload, _, _ in records] == [each.SerializeToString(deterministic=True) for each in sent]
    for (_, fields, _), each in zip(records, sent, strict=True):
        assert not isinstance(fields, str)
        expected = MessageToDict(each, preserving_proto_field_name=True)
        assert fields.keys() == expected.keys()
        for name in fields.keys() - {"price", "ratio"}:
            assert _plain(fields[name]) == _plain(expected[name])
        assert float(fields.get("price") or 0) == each.price
        assert float(fields.get("ratio") or 0) == pytest.approx(each.ratio, rel=1e-7)


@given(many=st.lists(events, min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_events_read_together_are_the_events_read_alone(
    folder: Path, event: Any, batch: Any, many: list[dict[str, Any]]
) -> None:
    fields: dict[str, Any] = {
        "event_time": {"field": "n", "format": "epoch_ms"},
        "attributes": {
            **{f"the_{name}": name for name in ("raw", "kind", "counts", "names", "large")},
            **{name: {"field": name, "type": "double"} for name in ("price", "ratio")},
            "paid": {"field": "paid", "type": "boolean"},
            "low": {"field": "low", "type": "long"},
        },
    }
    stream = message_stream("protobuf", folder, fields, **BATCH)
    value = batch(sender="", events=[event(**{"id": "e", "n": 1709290800000} | each) for each in many])
    assert MessageReader(stream).batch(value.SerializeToString())
    read(stream, value.SerializeToString())


def _plain(value: Any) -> Any:
    """Without the difference between 5 and "5", which Protobuf's JSON makes for 64 bits only."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def delimited(*messages: bytes) -> bytes:
    return b"".join(varint(len(message)) + message for message in messages)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_files_hold_messages_with_their_length(folder: Path, tmp_path: Path, event: Any, ending: str) -> None:
    good = event(user="u", id="1").SerializeToString()
    content = delimited(good, b"\xff", b"", good) + varint(500) + good
    (tmp_path / f"events.pb{ending}").write_bytes(gzip.compress(content) if ending else content)
    part = {"schema": str(folder / "events.proto"), "message": "pkg.Event"}
    source = {"kind": "files", "path": f"{tmp_path}/*", "format": "protobuf", "protobuf": part, "settle": "0s"}
    stream = click_stream("protobuf", source=source)
    [file] = list_files(stream, NOW).ready
    records = list(records_of(stream, file))
    fields = {"user": "u", "id": "1", "at": None}
    assert [(payload, content) for payload, content, _ in records] == [
        (good, fields),
        (b"\xff", BAD),
        (b"", BAD),
        (good, fields),
        (good, DAMAGED_FILE),
    ]
    assert json.loads(records[-1][2])["damage"]["reason"].endswith("its content: it ends too early")


@given(cut=st.integers(1, 5_000))
@settings(max_examples=60, deadline=None)
def test_a_cut_file_gives_the_messages_before_the_cut(whole: Stream, event: Any, cut: int) -> None:
    messages = [event(user="u" * length, id="1").SerializeToString() for length in range(1, 100)]
    content = delimited(*messages)
    records = list(
        delimited_messages(Packed(io.BytesIO(content[:cut]), "x.pb"), MessageReader(whole).records, hold_batches=False)
    )
    complete = [payload for payload, content, _ in records if content != DAMAGED_FILE]
    assert complete == messages[: len(complete)]
    kept = delimited(*complete)
    assert (len(records) > len(complete)) == (len(kept) < min(cut, len(content)))


@pytest.mark.parametrize(
    "size", [MAX_RECORD_BYTES, MAX_RECORD_BYTES + 1, MAX_RECORD_BYTES + 2**16 + 1, 6 * MAX_RECORD_BYTES]
)
@pytest.mark.parametrize("are_together", [False, True])
def test_of_a_long_message_only_a_beginning_is_in_memory(
    size: int, are_together: bool, whole: Stream, event: Any
) -> None:
    good = event(user="u", id="e").SerializeToString()
    file = io.BytesIO(delimited(good, b"\0" * size, good))
    reader = MessageReader(whole)
    tracemalloc.start()
    if are_together:
        records = [record for batch in reader.delimited(Packed(file, "x.pb")) for record in zip(*batch, strict=True)]
    else:
        records = list(delimited_messages(Packed(file, "x.pb"), reader.records, hold_batches=False))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    [(before, *_), (payload, content, context), (after, *_)] = records
    assert (before, after, content) == (good, good, BAD)
    assert (len(payload), "oversized" in context) == (min(size, MAX_RECORD_BYTES), size > MAX_RECORD_BYTES)
    assert peak < 6 * MAX_RECORD_BYTES


def test_a_long_message_that_is_cut_is_damage(whole: Stream) -> None:
    content = varint(100 * 2**20) + bytes(20 * 2**20)
    [batch] = MessageReader(whole).delimited(Packed(io.BytesIO(content), "x.pb"))
    [(rest, reason, context)] = zip(*batch, strict=True)
    assert (len(rest), reason) == (MAX_RECORD_BYTES, DAMAGED_FILE)
    assert json.loads(context)["damage"]["reason"] == "at byte 4 of its content: it ends too early"
