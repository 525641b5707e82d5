"""Messages: literal values in, literal records out, and what raw_events keeps of them decodes to the same row."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from dedup_platform.sources.batch_decoding import BatchDecoder
from dedup_platform.sources.contents import ListedContents
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.records import DAMAGED_FILE, MALFORMED_RECORD, MAX_RECORD_BYTES, Content, Record
from dedup_platform.sources.repeated import Repeated, Runs
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import decode_kept, message_stream

BAD = MALFORMED_RECORD
ARRIVED = datetime(2024, 3, 1, 12, tzinfo=UTC)

CSV: dict[str, Any] = {"csv": {"columns": ["user", "id", "at"]}}
CSV_FIELDS = {"user": "u", "id": "e", "at": "t"}
BATCH: dict[str, Any] = {"json": {"records": "events"}}


def read(stream: Stream, value: bytes) -> list[Record]:
    """The records of one message; each is seen to decode to the same row again, alone and with the others."""
    records = list(MessageReader(stream).records(value))
    for record in records:
        assert_decodes_again(stream, record)
    if batch := MessageReader(stream).batch(value):
        together, context = batch
        batches = [list(zip(*each, strict=True)) for each in together.batches(context)]
        assert [record for each in batches for record in each] == records
        decoder = BatchDecoder(stream)
        deliveries = Runs([Repeated(decoder.single.delivery("clicks", ARRIVED, stream.source.format), len(records))])
        alone = decoder.decode(ListedContents([content for _, content, _ in records]), deliveries)
        assert decoder.decode(together, deliveries).equals(alone)
    return records


def assert_decodes_again(stream: Stream, record: Record) -> None:
    payload, content, context = record
    decoder = EventDecoder(stream)
    first = decoder.decode(content, decoder.delivery("clicks", ARRIVED, stream.source.format))
    assert decode_kept(decoder, payload, context, "clicks", ARRIVED) == first


def contents(stream: Stream, value: bytes) -> list[Content]:
    return [content for _, content, _ in read(stream, value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"u,e,t", [(b"u,e,t", CSV_FIELDS)]),
        (
            b'u,"e\r\n1",t\r\nu,e,t\r\n',
            [
                (b'u,"e\r\n1",t', CSV_FIELDS | {"id": "e\r\n1"}),
                (b"u,e,t", CSV_FIELDS),
            ],
        ),
        (b"u,e\n\nu,e,t", [(b"u,e", BAD), (b"u,e,t", CSV_FIELDS)]),
        (b'u,"e,t\nu,e,t', [(b'u,"e,t', BAD), (b"u,e,t", CSV_FIELDS)]),
    ],
)
def test_each_line_of_csv_is_a_record(value: bytes, expected: list[Any]) -> None:
    records = read(message_stream("csv", **CSV), value)
    assert [record[:2] for record in records] == expected
    assert {record[2] for record in records} == {'{"format":"csv","header":["user","id","at"]}'}


def test_an_object_is_a_record() -> None:
    value = b' {"user": "u", "n": 1.0}'
    assert read(message_stream("json"), value) == [(value, {"user": "u", "n": "1.0"}, '{"format":"json"}')]


def test_a_list_may_hold_the_events() -> None:
    value = b'{"sent": 1, "events": [{"user": "u", "n": 1.0}, 7, {"b": [], "a": "\xc3\xa9"}]}'
    assert read(message_stream("json", **BATCH), value) == [
        (b'{"n":1.0,"user":"u"}', {"user": "u", "n": "1.0"}, '{"format":"json"}'),
        (b"7", BAD, '{"format":"json"}'),
        ('{"a":"é","b":[]}'.encode(), {"a": "é", "b": []}, '{"format":"json"}'),
    ]


def test_a_batch_of_no_events_has_no_records() -> None:
    assert read(message_stream("json", **BATCH), b'{"events": []}') == []


@pytest.mark.parametrize("value", [b"{", b"{}", b'{"events": {}}', b"[]", b"\xff", b"\0\0\0\0\1{}"])
def test_what_is_no_batch_is_one_rejected_record(value: bytes) -> None:
    assert read(message_stream("json", **BATCH), value) == [(value, BAD, '{"format":"json","undivided":true}')]


@pytest.mark.parametrize(
    "stream", [message_stream("json"), message_stream("json", **BATCH), message_stream("csv", **CSV)]
)
def test_an_empty_message_is_one_rejected_record(stream: Stream) -> None:
    [(payload, content, _)] = read(stream, b"")
    assert (payload, content) == (b"", BAD)


def test_blank_lines_alone_are_one_rejected_record() -> None:
    [(payload, content, context)] = read(message_stream("csv", **CSV), b"\r\n\n")
    assert (payload, content, json.loads(context)["undivided"]) == (b"\r\n\n", BAD, True)


@pytest.mark.parametrize("stream", [message_stream("json"), message_stream("json", **BATCH)])
def test_a_message_of_more_than_16_mib_is_rejected_and_its_beginning_kept(stream: Stream) -> None:
    [(payload, content, context)] = read(stream, b"[" * (MAX_RECORD_BYTES + 1))
    assert (len(payload), content, context) == (MAX_RECORD_BYTES, BAD, '{"format":"json","oversized":true}')


def test_a_message_of_8_mb_is_read() -> None:
    events = [{"user": "u" * 800, "id": f"{number}"} for number in range(10_000)]
    found = contents(message_stream("json", **BATCH), json.dumps({"events": events}).encode())
    assert found == events


def test_a_message_that_could_not_be_taken_apart_is_read_with_the_stream_file_of_today() -> None:
    [(payload, content, context)] = read(message_stream("json", **BATCH), b'{"user":"u","id":"e","at":"2024-03-01"}')
    assert content == BAD
    row = decode_kept(EventDecoder(message_stream("json")), payload, context, "clicks", ARRIVED)
    assert (row[:2], row[-1]) == (("u", "e"), None)


def test_damage_stays_damage() -> None:
    context = {"format": "json", "damage": {"reason": "x", "offset": 1}}
    assert MessageReader(message_stream("json")).content(b"{}", context) == DAMAGED_FILE
