"""Files and messages whose records hold lists of events: each event is a row, at its place."""

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.messages import MessageReader
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, message_stream, taken_in

CLICK = {"user": "u", "id": "e", "at": "2024-03-01T11:00:00Z"}
CLICKS = [[CLICK, CLICK | {"id": "f"}], [], [CLICK | {"id": ""}]]
FOUND = [(0, 0, "e", None), (0, 1, "f", None), (2, 0, None, "missing_event_id")]
AVRO_CLICK = {"type": "record", "name": "Click", "fields": [{"name": name, "type": "string"} for name in CLICK]}
AVRO = {
    "type": "record",
    "name": "Batch",
    "fields": [
        {
            "name": "in",
            "type": {
                "type": "record",
                "name": "In",
                "fields": [{"name": "clicks", "type": ["null", {"type": "array", "items": AVRO_CLICK}]}],
            },
        }
    ],
}


def batches(lists: list[Any]) -> list[dict[str, Any]]:
    return [{"in": {"clicks": clicks}} for clicks in lists]


def as_json(lists: list[Any]) -> bytes:
    return b"\n".join(json.dumps(batch).encode() for batch in batches(lists))


def as_avro(lists: list[Any]) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, AVRO, batches(lists))
    return file.getvalue()


def as_parquet(lists: list[Any]) -> bytes:
    file = io.BytesIO()
    kind = pa.struct([("clicks", pa.list_(pa.struct([(name, pa.string()) for name in CLICK])))])
    pq.write_table(pa.table({"in": pa.array([batch["in"] for batch in batches(lists)], kind)}), file)
    return file.getvalue()


WRITERS = {"json": as_json, "avro": as_avro, "parquet": as_parquet}


def stream_of(file_format: str, folder: Path, explode: Any) -> Stream:
    source = {"kind": "files", "path": f"{folder}/*.in", "format": file_format, "settle": "0s", "explode": explode}
    return click_stream("json", source=source)


def found(stream: Stream) -> list[tuple[Any, ...]]:
    return [
        (row["source_offset"], row["source_index"], row["event_id"], row["rejection_reason"])
        for row in taken_in(stream)
    ]


@pytest.mark.parametrize("explode", ["in.clicks", ["in", "clicks"]])
@pytest.mark.parametrize("file_format", WRITERS)
def test_files_of_lists(file_format: str, explode: Any, tmp_path: Path) -> None:
    (tmp_path / "a.in").write_bytes(WRITERS[file_format](CLICKS))
    assert found(stream_of(file_format, tmp_path, explode)) == FOUND


@pytest.mark.parametrize("file_format", WRITERS)
def test_a_record_without_the_list_is_rejected_and_stays_so(file_format: str, tmp_path: Path) -> None:
    (tmp_path / "a.in").write_bytes(WRITERS[file_format]([None, [CLICK]]))
    assert found(stream_of(file_format, tmp_path, "in.clicks")) == [
        (0, 0, None, "malformed_record"),
        (1, 0, "e", None),
    ]
    assert found(stream_of(file_format, tmp_path, "clicks")) == [
        (0, 0, None, "malformed_record"),
        (1, 0, None, "malformed_record"),
    ]


@pytest.mark.parametrize("file_format", WRITERS)
def test_a_replay_finds_the_one_event_of_what_was_not_taken_apart(file_format: str, tmp_path: Path) -> None:
    (tmp_path / "a.in").write_bytes(WRITERS[file_format]([[CLICK]]))
    [row] = taken_in(stream_of(file_format, tmp_path, "clicks"))
    decoder = EventDecoder(stream_of(file_format, tmp_path, "in.clicks"))
    again = decoder.kept(row["payload"], row["payload_context"], row["source"], row["arrival_time"])
    assert decoder.decode(*again)[:2] == ("u", "e")


def test_a_file_that_is_one_list(tmp_path: Path) -> None:
    (tmp_path / "a.in").write_text(json.dumps([CLICK, CLICK | {"id": "f"}], indent=1))
    assert found(stream_of("json", tmp_path, "*")) == FOUND[:2]


def events(stream: Stream, value: bytes) -> list[tuple[Any, ...]]:
    """Event ids or reasons of a message's records; each read again is the same."""
    decoder, reader = EventDecoder(stream), MessageReader(stream)
    delivery = decoder.message_delivery(0, stream.source.format, has_append_time=True)
    rows = []
    for payload, content, context in reader.records(value):
        assert reader.content(payload, json.loads(context)) == content
        row = decoder.decode(content, delivery)
        rows.append((row[1], row[-1]))
    return rows


@pytest.mark.parametrize("message_format", ["json", "avro"])
def test_messages_of_lists(message_format: str, tmp_path: Path) -> None:
    (tmp_path / "batch.avsc").write_text(json.dumps(AVRO))
    schema = {"avro": {"schema": "batch.avsc"}} if message_format == "avro" else {}
    stream = message_stream(message_format, tmp_path, explode="in.clicks", **schema)

    def message(clicks: Any) -> bytes:
        if message_format == "json":
            return as_json([clicks])
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(AVRO), batches([clicks])[0])
        return file.getvalue()

    assert events(stream, message(CLICKS[0])) == [(None, "event_time_in_future")] * 2
    assert events(stream, message([])) == []
    assert events(stream, message(None)) == [(None, "malformed_record")]
    assert events(stream, b"\x05") == [(None, "malformed_record")]


def test_a_message_that_is_a_list() -> None:
    stream = message_stream("json", explode="*")
    assert events(stream, b'[{"id":"e"},7]') == [(None, "unreadable_event_time"), (None, "malformed_record")]
    assert events(stream, b'{"id":"e"}') == [(None, "malformed_record")]


def test_json_records_of_a_message_means_the_same() -> None:
    message = json.dumps({"clicks": [CLICK, 7]}).encode()
    one, other = message_stream("json", explode="clicks"), message_stream("json", json={"records": "clicks"})
    assert list(MessageReader(one).records(message)) == list(MessageReader(other).records(message))
    assert "explode" not in other.source.model_dump()


@pytest.mark.parametrize(
    ("explode", "entity", "expected"),
    [
        ("in.clicks", "user", []),
        ("in.clicks", "who", ["'who' is no field of the records; allowed: user, id, at"]),
        ("in.click", "user", ["explode: there is no 'click'; allowed: clicks"] * 3),
        ("in", "user", ["explode: 'in' is no list of events; allowed: clicks"] * 3),
    ],
)
def test_a_schema_must_have_the_list(explode: str, entity: str, expected: list[str], tmp_path: Path) -> None:
    (tmp_path / "batch.avsc").write_text(json.dumps(AVRO))
    stream = message_stream("avro", tmp_path, explode=explode, avro={"schema": "batch.avsc"})
    fields = click_stream("json", fields={"entity_id": entity}).fields
    assert [problem for _, problem in stream.source.problems(fields)] == expected
