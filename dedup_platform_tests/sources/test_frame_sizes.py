"""Frames stay small whatever a file or a message holds: none has many more rows, or bytes, than it may."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message

from dedup_platform.sources.batches import RawBatches
from dedup_platform.sources.files import list_files, read_group
from dedup_platform.sources.frame_sizes import MAX_BYTES, MAX_CONTEXT_BYTES, MAX_ROWS
from dedup_platform.sources.kafka.deliveries import MessageDeliveries
from dedup_platform.sources.kafka.reading import _portions
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.registries import schema_registry
from dedup_platform_tests.sources.schemas import BATCH, varint, write_protos
from dedup_platform_tests.sources.test_messages_agree import topic_stream

MANY = 3 * MAX_ROWS
KEY = b"k" * 10**6


@pytest.mark.parametrize("content", [b"1\n", b"a\n"], ids=["numbers", "letters"])
@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_lines_of_one_byte(file_format: str, content: bytes, tmp_path: Path) -> None:
    frames = taken_in(click_stream(file_format, tmp_path), tmp_path, content * (MANY + 1))
    assert heights(frames)[:3] == [MAX_ROWS] * 3
    assert offsets(frames) == list(range(sum(heights(frames))))


def test_a_long_header_of_csv(tmp_path: Path) -> None:
    header = b"user,id,at," + b"x" * 60_000 + b"\n"
    stream = click_stream("csv", tmp_path)
    patient = stream.model_copy(update={"source": stream.source.model_copy(update={"max_unpacked_ratio": 10_000})})
    frames = taken_in(patient, tmp_path, header + b"x\n" * 3000)
    assert sum(heights(frames)) == 3000
    assert max(map(bytes_of_contexts, frames)) <= MAX_CONTEXT_BYTES
    assert len(frames) == 11


def test_empty_events_of_protobuf_in_a_file(tmp_path: Path) -> None:
    write_protos(tmp_path)
    content = b"\x12\0" * MANY
    frames = taken_in(of_batches(tmp_path), tmp_path, varint(len(content)) + content)
    assert heights(frames) == [MAX_ROWS] * 3


def test_empty_events_of_protobuf_in_a_message(tmp_path: Path) -> None:
    write_protos(tmp_path)
    frames = received(topic_stream("protobuf", tmp_path, **BATCH), [message(b"\x12\0" * MANY)])
    assert heights(frames) == [MAX_ROWS] * 3
    assert [place for frame in frames for place in frame["source_index"]] == list(range(MANY))


def test_messages_read_together_and_alone_are_in_one_frame(tmp_path: Path) -> None:
    write_protos(tmp_path)
    several = [message(b"\x12\0" * 2), message(b"no message", offset=1), message(b"\x12\0", offset=2)]
    [frame] = received(topic_stream("protobuf", tmp_path, **BATCH), several)
    assert list(zip(frame["source_offset"], frame["source_index"], strict=True)) == [(0, 0), (0, 1), (1, 0), (2, 0)]
    assert frame.schema["source_index"] == pl.Int32


def test_a_message_of_many_events_with_a_long_key() -> None:
    events = [{"user": "u", "id": f"{number}", "at": "2024-03-01T11:00:00Z"} for number in range(150)]
    value = json.dumps({"events": events}).encode()
    frames = received(topic_stream("json", json={"records": "events"}), [message(value, KEY)])
    assert sum(heights(frames)) == 150
    assert max(map(bytes_of_contexts, frames)) <= MAX_CONTEXT_BYTES + 2 * len(KEY)


def test_many_messages_with_long_keys() -> None:
    portions = list(_portions(message(b"{}", KEY, offset) for offset in range(100)))
    assert [each.offset() for portion in portions for each in portion] == list(range(100))
    assert {len(portion) for portion in portions} == {-(-MAX_BYTES // len(KEY))}


NULLS = 25_000
WIDE = {"type": "record", "name": "Wide", "fields": [{"name": f"n{number}", "type": "null"} for number in range(NULLS)]}


@pytest.mark.parametrize("schemas", [1, 2])
def test_values_that_take_no_bytes(schemas: int) -> None:
    """Thousands of nulls are no byte of a message, and megabytes once it is read."""
    with schema_registry() as registry:
        for number in range(schemas):
            registry.add(number, json.dumps({**WIDE, "name": f"Wide{number}"}))
        stream = topic_stream("avro", registry={"url": registry.url})
        messages = [message(bytes([0, 0, 0, 0, offset % schemas]), offset=offset) for offset in range(210)]
        frames = received(stream, messages)
    assert offsets(frames) == list(range(210))
    assert max(heights(frames)) <= (MAX_BYTES // NULLS + 1 if schemas == 2 else 210)


def of_batches(folder: Path) -> Stream:
    stream = click_stream("json", folder, "*.data")
    source = {"kind": "files", "path": f"{folder}/*.data", "format": "protobuf", "settle": "0s", **BATCH}
    said = stream.model_dump(exclude={"source", "fields"}, exclude_unset=True)
    fields = {"entity_id": "user", "event_id": "id", "event_time": "at"}
    return Stream.model_validate(said | {"source": source, "fields": fields}, context={"origin": folder / "x.yaml"})


def taken_in(stream: Stream, folder: Path, content: bytes) -> list[pl.DataFrame]:
    (folder / "x.data").write_bytes(content)
    files = [(file, 0) for file in list_files(stream, datetime.max.replace(tzinfo=UTC)).ready if file.path == "x.data"]
    return list(read_group(stream, [files], 0))


def message(value: bytes, key: bytes | None = None, offset: int = 0) -> Message:
    return Message(value=value, key=key, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 1_800_000_000_000), offset=offset)


def received(stream: Stream, messages: Sequence[Message]) -> list[pl.DataFrame]:
    batches = RawBatches(stream)
    return list(batches.of(MessageDeliveries(stream, batches.decoder).of(messages, "clicks", 0)))


def heights(frames: Sequence[pl.DataFrame]) -> list[int]:
    return [frame.height for frame in frames]


def offsets(frames: Sequence[pl.DataFrame]) -> list[int]:
    return [offset for frame in frames for offset in frame["source_offset"]]


def bytes_of_contexts(frame: pl.DataFrame) -> int:
    return int(frame["payload_context"].str.len_bytes().sum())
