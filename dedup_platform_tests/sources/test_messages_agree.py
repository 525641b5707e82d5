"""Messages of a topic that are read together become the rows that they become one by one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from dedup_platform.sources import messages as reading
from dedup_platform.sources.avro import walks
from dedup_platform.sources.batches import RawBatches
from dedup_platform.sources.kafka.deliveries import MessageDeliveries
from dedup_platform.sources.records import MAX_RECORD_BYTES
from dedup_platform.sources.text import json_layouts, json_shapes
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_avro import Data, click_schema, paths_in
from dedup_platform_tests.sources.hostile_messages import PROTO_2, PROTO_3, event_kind, events, write_schemas
from dedup_platform_tests.sources.hostile_records import json_file
from dedup_platform_tests.sources.registries import Registry, schema_registry
from dedup_platform_tests.sources.test_columns_agree import STREAMS, as_stored, plain
from dedup_platform_tests.sources.test_protobuf_columns import STREAMS as PROTOBUF_STREAMS

TOPIC: dict[str, Any] = {"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "clicks"}
KEYS = [None, None, b"u1", b"", b"\xff\x00", 'é"\\'.encode(), b"\n", b"\xed\xa0\x80", b"k" * 300]
ARRIVED = 1_800_000_000_000
STAMPS = [(TIMESTAMP_LOG_APPEND_TIME, ARRIVED), (TIMESTAMP_LOG_APPEND_TIME, ARRIVED + 1)]
ODD_STAMPS = [(TIMESTAMP_CREATE_TIME, ARRIVED), (TIMESTAMP_LOG_APPEND_TIME, 0), (TIMESTAMP_CREATE_TIME, -1)]


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with schema_registry() as registry:
        yield registry


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading together is worth it for a few messages."""
    monkeypatch.setattr(json_shapes, "_FEW", 4)
    monkeypatch.setattr(json_layouts, "_FEW", 4)
    monkeypatch.setattr(reading, "_FEW", 3)


def topic_stream(
    message_format: str, folder: Path = Path("/"), said: dict[str, Any] | None = None, **source: Any
) -> Stream:
    """Clicks in messages; `said` is what the stream file says besides."""
    parts = said or {}
    return Stream.model_validate(
        click_stream("json").model_dump(exclude={"source", "fields"}, exclude_unset=True)
        | {"fields": {"entity_id": "user", "event_id": "id", "event_time": "at"} | parts.get("fields", {})}
        | {name: part for name, part in parts.items() if name != "fields"}
        | {"source": TOPIC | {"format": message_format} | source},
        context={"origin": folder / "clicks.yaml"},
    )


def messages_of(random: Random, values: Sequence[bytes | None]) -> list[Message]:
    """Messages at growing offsets, most like the one before."""
    stamps = random.choice([STAMPS[:1], STAMPS, [*STAMPS, *ODD_STAMPS]])
    keys = random.choice([KEYS[:1], KEYS[1:3], KEYS])
    offsets = random.sample(range(2 * len(values)), len(values)) if random.random() < 0.5 else range(7, 7 + len(values))
    return [
        Message(value=value, key=random.choice(keys), timestamp=random.choice(stamps), offset=offset)
        for value, offset in zip(values, sorted(offsets), strict=True)
    ]


def assert_same_rows(stream: Stream, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The rows of messages of one partition."""
    batches = RawBatches(stream)
    deliveries = MessageDeliveries(stream, batches.decoder)
    delivered = (each for portion in portions_of(messages) for each in deliveries.of(portion, "clicks", 3))
    together = [row for frame in batches.of(delivered) for row in frame.iter_rows(named=True)]
    alone = list(rows_one_by_one(stream, messages))
    for row, expected in zip(together, alone, strict=False):
        assert repr({name: plain(row[name]) for name in expected}) == repr({**expected, **as_stored(expected)})
    assert len(together) == len(alone)
    return together


def portions_of(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Several that are read together, and then one that is not."""
    third = len(messages) // 3
    return [messages[:third], messages[third:-1], messages[-1:]]


def rows_one_by_one(stream: Stream, messages: Sequence[Message]) -> Iterator[dict[str, Any]]:
    decoder = RawBatches(stream).decoder
    deliveries = MessageDeliveries(stream, decoder)
    names = ("entity_id", "event_id", "event_time", "arrival_time", *stream.attributes, "rejection_reason")
    places = ("source", "source_partition", "source_offset", "source_index")
    for message in messages:
        for record in deliveries.of([message], "clicks", 3):
            assert isinstance(record, tuple)
            (payload, content, context), delivery, coordinate = record
            row = dict(zip(names, decoder.decode(content, delivery), strict=True))
            kept = {"payload": payload, "payload_context": context}
            yield row | kept | dict(zip(places, coordinate, strict=True))


def among_others(random: Random, values: Sequence[bytes | None], share: float) -> list[bytes | None]:
    """Values, and between them what is none: tombstones, and messages without any bytes."""
    odd: list[bytes | None] = [None, b"", b" ", b"\0", b"\0\0\0\0\1"]
    return [each for value in values for each in ([random.choice(odd)] if random.random() < share else []) + [value]]


@pytest.mark.parametrize("said", [name for name in STREAMS if name not in ("definitions", "nothing of the record")])
@pytest.mark.parametrize("has_registry", [False, True])
def test_json(said: str, has_registry: bool, registry: Registry, thorough: bool) -> None:
    registry.add(1, '{"type": "object"}', "JSON")
    registry.add(2, '{"type": "object"}', "JSON")
    registry.add(3, '"string"', "AVRO")
    source: dict[str, Any] = {"registry": {"url": registry.url}} if has_registry else {}
    stream = topic_stream("json", said=STREAMS[said], **source)
    for seed in range(75 if thorough else 2):
        random = Random(f"{said} {seed} {has_registry}")
        values = json_file(random, 120, share_of_odd=random.choice([0.1, 0.3, 0.6, 0.9])).split(b"\n")
        if has_registry:
            ids = random.choice([[1], [1, 1, 1, 2], [1, 2, 3, 4]])
            values = [
                random.choice([b"\0", b"\0" * 9 + b"\1"])[:1] + random.choice(ids).to_bytes(4) + value
                for value in values
            ]
        assert_same_rows(stream, messages_of(random, among_others(random, values, random.choice([0, 0.02, 0.3]))))


@pytest.mark.parametrize("kind", ["a file", "a registry", "both"])
@pytest.mark.parametrize("few", [1, 8])
def test_avro(
    kind: str, few: int, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    monkeypatch.setattr(walks, "_FEW", few)
    monkeypatch.setattr(walks, "_MOST_ITEMS", 12)
    for seed in range(250 if thorough else 6):
        random = Random(f"{kind} {seed} {few}")
        schemas = [click_schema(random) for _ in range(2)]
        share = random.choice([0, 0.01, 0.03, 0.2])
        values = Data(random, schemas[0], share).some(120)
        source: dict[str, Any] = {}
        known = schemas[0]
        if kind != "a registry":
            known = resolving(random, known) if kind == "both" else known
            (tmp_path / "click.avsc").write_text(json.dumps(known))
            source["avro"] = {"schema": "click.avsc"}
        if kind != "a file":
            schema_ids = [registered(registry, schema) for schema in schemas]
            values = [header_of(random, schema_ids[0], share) + value for value in values]
            values += [
                header_of(random, schema_ids[1], share) + value for value in Data(random, schemas[1], share).some(60)
            ]
            random.shuffle(values)
            source["registry"] = {"url": registry.url}
        stream = topic_stream("avro", tmp_path, avro_fields(random, known), **source)
        assert_same_rows(stream, messages_of(random, among_others(random, values, random.choice([0, 0.02, 0.3]))))


def registered(registry: Registry, schema: dict[str, Any] | str, kind: str = "AVRO") -> int:
    """The id of a schema that is registered from now on."""
    schema_id = 1000 + len(registry.answers)
    registry.add(schema_id, schema if isinstance(schema, str) else json.dumps(schema), kind)
    return schema_id


def header_of(random: Random, schema_id: int, share_of_odd: float) -> bytes:
    """What a message of a registered schema begins with, or of one that is not."""
    if random.random() > share_of_odd / 4:
        return b"\0" + schema_id.to_bytes(4)
    return random.choice([b"\1", b"\0" + (2**31).to_bytes(4), b""])


def resolving(random: Random, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that reads what another one wrote: it may know fields by other names, less of them, and more."""
    fields = list(schema["fields"])
    while fields[-1]["name"] not in ("user", "id", "at") and random.random() < 0.5:
        fields.pop()  # those before it do not use its types
    fields = [
        {**field, "name": "n_" + field["name"], "aliases": [field["name"]]} if field["name"] == "f1" else field
        for field in fields
    ]
    more = [
        {"name": "more", "type": "double", "default": 1.5},
        {"name": "list", "type": {"type": "array", "items": "int"}, "default": [1]},
    ]
    return schema | {"fields": [*fields, *random.sample(more, random.randint(0, 2))]}


def avro_fields(random: Random, schema: dict[str, Any]) -> dict[str, Any]:
    """What a stream file says of records of a schema."""
    paths = list(paths_in(schema, wholes=random.random() < 0.2))
    others = ["long", "double", "timestamp", "boolean", "decimal(10,2)"]
    attributes = {
        f"a{number}": {
            "field": path,
            "type": random.choice(["string", *random.sample(others, 1 if number == 0 else 0)]),
        }
        for number, path in enumerate(random.sample(paths, min(len(paths), random.randint(0, 6))))
    }
    event_id = random.choice(["id", "id", ["id", "user"], {"hash": "*"}, {"hash": ["id", "at"]}])
    return {
        "fields": {"event_id": event_id, "attributes": attributes},
        "missing_entity": random.choice(["keep", "reject"]),
    }


@pytest.mark.parametrize("said", ["types", "paths", "a hash of all", "proto2"])
@pytest.mark.parametrize("has_registry", [False, True])
def test_protobuf(said: str, has_registry: bool, registry: Registry, tmp_path: Path, thorough: bool) -> None:
    write_schemas(tmp_path)
    syntax, fields = PROTOBUF_STREAMS[said]
    texts = {"proto2": PROTO_2, "proto3": PROTO_3}
    ids = [registered(registry, text, "PROTOBUF") for text in (texts[syntax], texts["proto3"])]
    source: dict[str, Any] = {"registry": {"url": registry.url}} if has_registry else {}
    source["protobuf"] = {"schema": f"{syntax}.desc", "message": "Event"}
    stream = topic_stream("protobuf", tmp_path, {"fields": fields}, **source)
    for seed in range(60 if thorough else 2):
        random = Random(f"{said} {seed} {has_registry}")
        share = random.choice([0.0, 0.02, 0.1, 0.5])
        values = events(random, event_kind(tmp_path / f"{syntax}.desc"), 120, share)
        if has_registry:
            values = [
                header_of(random, random.choice(ids), share) + indexes_of(random, share) + each for each in values
            ]
        assert_same_rows(stream, messages_of(random, among_others(random, values, random.choice([0, 0.02, 0.3]))))


def indexes_of(random: Random, share_of_odd: float) -> bytes:
    """Those of the event in its schema, or of something else."""
    odd = [b"\0", b"\2\0", b"\4\2\2", b"\1", b"\2", b"\x82\0\2", b"\2\x82\0", b""]
    return random.choice(odd) if random.random() < share_of_odd else b"\2\2"


@pytest.mark.parametrize("message_format", ["avro", "protobuf"])
def test_bodies_without_bytes_are_read_as_they_are_alone(
    message_format: str, registry: Registry, tmp_path: Path
) -> None:
    write_schemas(tmp_path)
    schema: Any = json.dumps({"type": "record", "name": "Click", "fields": [{"name": "user", "type": "null"}]})
    schema_id = registered(registry, *((schema, "AVRO") if message_format == "avro" else (PROTO_3, "PROTOBUF")))
    (tmp_path / "click.avsc").write_text(schema)
    part = {"schema": "click.avsc"} if message_format == "avro" else {"schema": "proto3.desc", "message": "Event"}
    said = {"fields": {"entity_id": "user", "event_id": "user", "event_time": "user"}}
    stream = topic_stream(message_format, tmp_path, said, registry={"url": registry.url}, **{message_format: part})
    header = b"\0" + schema_id.to_bytes(4) + b"\2\2" * (message_format == "protobuf")
    assert_same_rows(stream, messages_of(Random(1), [header] * 9 + [header + b"\x0a\1u"] * 9))


def test_of_messages_without_keys_some_may_tell_another_kind_of_time() -> None:
    values = [json.dumps({"user": "u", "id": "e", "at": "2024-03-01T11:00:00Z"}).encode()] * 12
    stamps = [STAMPS[0], *ODD_STAMPS] * 3
    messages = [
        Message(value=value, timestamp=stamp, offset=at)
        for at, (value, stamp) in enumerate(zip(values, stamps, strict=True))
    ]
    rows = assert_same_rows(topic_stream("json"), messages)
    assert [row["payload_context"].count("create_time") for row in rows] == [0, 1, 0, 1] * 3


def test_messages_of_more_than_16_mib_are_rejected_among_others() -> None:
    good = json.dumps({"user": "u", "id": "e", "at": "2024-03-01T11:00:00Z"}).encode()
    values = [good] * 5 + [b"[" * (MAX_RECORD_BYTES + 1)] + [good] * 5
    rows = assert_same_rows(topic_stream("json"), messages_of(Random(1), values))
    assert [row["rejection_reason"] is None for row in rows] == [True] * 5 + [False] + [True] * 5


def test_messages_of_many_events_are_read_one_by_one(tmp_path: Path) -> None:
    write_schemas(tmp_path)
    batches = {"schema": "proto3.desc", "message": "Batch", "records": "events"}
    for stream in (
        topic_stream("json", json={"records": "events"}),
        topic_stream("protobuf", tmp_path, protobuf=batches),
    ):
        assert not reading.MessageReader(stream).reads_together(10_000)
    assert reading.MessageReader(topic_stream("json")).reads_together(3)
    assert not reading.MessageReader(topic_stream("json")).reads_together(2)
