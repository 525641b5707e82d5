"""One event, nested, in files of every format: the same fields of it make the same row."""

import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from google.protobuf.message_factory import GetMessageClass

from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.messages import MessageReader
from dedup_platform.stream import Fields, Stream
from dedup_platform.stream.format import Format
from dedup_platform.stream.schemas import compiled_proto, message_type
from dedup_platform_tests.sources.click_streams import click_stream, message_stream, taken_in
from dedup_platform_tests.sources.schemas import BATCH, message_class, write_protos
from dedup_platform_tests.sources.texts_in_columns import IN_DOUBT, told

EVENT: dict[str, Any] = {
    "actor": {"id": 7, "login": "ada"},
    "id": "e1",
    "at": {"time": "2024-03-01T11:00:00Z"},
    "items": [{"sku": "A", "price": "1.50"}, {"sku": "B", "price": "2.00"}],
    "labels": {"color": "red", "shop.size": "9"},
}
FIELDS = {
    "entity_id": "actor.id",
    "event_id": ["id", "items[1].sku"],
    "event_time": "at.time",
    "attributes": {
        "login": ["actor", "login"],
        "price": {"field": "items[0].price", "type": "decimal(8,2)"},
        "color": "labels.color",
        "size": {"field": "labels['shop.size']", "type": "long"},
        "third": "items[2].sku",
        "none": "labels.none",
    },
}
ROW = {
    "entity_id": "7",
    "event_id": '["e1","B"]',
    "event_time": datetime(2024, 3, 1, 11, tzinfo=UTC),
    "login": "ada",
    "price": Decimal("1.50"),
    "color": "red",
    "size": 9,
    "third": None,
    "none": None,
}
ARRIVED = datetime(2024, 3, 2, tzinfo=UTC)
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {
            "name": "actor",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Actor",
                    "fields": [{"name": "id", "type": "long"}, {"name": "login", "type": "string"}],
                },
            ],
        },
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "record", "name": "At", "fields": [{"name": "time", "type": "string"}]}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "price", "type": "string"}],
                },
            },
        },
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}
PROTO = """
syntax = "proto3";
message Actor { int64 id = 1; string login = 2; }
message At { string time = 1; }
message Item { string sku = 1; string price = 2; }
message Event {
  Actor actor = 1; string id = 2; At at = 3; repeated Item items = 4; map<string, string> labels = 5;
}
"""


def as_json(_: Path) -> bytes:
    return json.dumps(EVENT).encode()


def as_avro(_: Path) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, AVRO, [EVENT])
    return file.getvalue()


def as_parquet(_: Path) -> bytes:
    file = io.BytesIO()
    columns = {name: pa.array([value]) for name, value in EVENT.items() if name != "labels"}
    columns["labels"] = pa.array([list(EVENT["labels"].items())], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def as_protobuf(folder: Path) -> bytes:
    (folder / "event.proto").write_text(PROTO)
    message = GetMessageClass(message_type(compiled_proto(folder, "event.proto"), "Event"))(**EVENT)
    return bytes([message.ByteSize()]) + message.SerializeToString()


WRITERS: dict[str, Callable[[Path], bytes]] = {
    "json": as_json,
    "avro": as_avro,
    "parquet": as_parquet,
    "protobuf": as_protobuf,
}


def stream_of(file_format: str, folder: Path, fields: dict[str, Any]) -> Stream:
    proto = {"protobuf": {"schema": str(folder / "event.proto"), "message": "Event"}}
    source = {"kind": "files", "path": f"{folder}/*.in", "format": file_format, "settle": "0s"}
    return click_stream("json", fields=fields, source=source | (proto if file_format == "protobuf" else {}))


def row_of(file_format: str, folder: Path, fields: dict[str, Any]) -> dict[str, Any]:
    content = WRITERS[file_format](folder)
    (folder / "events.in").write_bytes(content)
    [row] = taken_in(stream_of(file_format, folder, fields))
    return row


@pytest.mark.parametrize("file_format", WRITERS)
def test_a_nested_event_is_the_same_in_every_format(file_format: str, tmp_path: Path) -> None:
    row = row_of(file_format, tmp_path, FIELDS)
    assert row["rejection_reason"] is None
    assert {name: row[name] for name in ROW} == ROW


@pytest.mark.parametrize(("file_format", "lacking"), [("parquet", True), ("avro", True), ("json", False)])
def test_a_column_that_a_path_begins_by_and_the_file_lacks(file_format: str, lacking: bool, tmp_path: Path) -> None:
    """In JSON a field may be left out at any time; a part of a column may be left out anywhere."""
    fields = FIELDS | {"entity_id": "who.id"}
    reason = "missing_field:who.id" if lacking else None
    assert row_of(file_format, tmp_path, fields)["rejection_reason"] == reason
    row = row_of(file_format, tmp_path, FIELDS | {"entity_id": "actor.none"})
    assert (row["entity_id"], row["rejection_reason"]) == (None, None)


def test_a_hash_of_nested_fields_names_them_by_their_paths(tmp_path: Path) -> None:
    pairs = '[["actor.id","7"],["labels[\'shop.size\']","9"]]'
    expected = hashlib.sha256(pairs.encode()).hexdigest()[:32]
    for file_format in WRITERS:
        fields = FIELDS | {"event_id": {"hash": ["labels['shop.size']", ["actor", "id"]]}}
        assert row_of(file_format, tmp_path, fields)["event_id"] == expected
    absent = FIELDS | {"event_id": {"hash": ["actor.id", "labels.none"]}}
    assert row_of("json", tmp_path, absent)["rejection_reason"] == "missing_event_id"


def test_a_column_of_csv_may_have_a_dot_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "events.in").write_text("actor.id,id,at.time,items[0]\n7,e1,2024-03-01T11:00:00Z,A\n")
    fields = {"entity_id": "actor.id", "event_id": "id", "event_time": "at.time", "attributes": {"sku": "items[0]"}}
    [row] = taken_in(stream_of("csv", tmp_path, fields))
    assert (row["entity_id"], row["sku"], row["rejection_reason"]) == ("7", "A", None)
    [row] = taken_in(stream_of("csv", tmp_path, fields | {"entity_id": ["actor", "id"]}))
    assert row["rejection_reason"] == "missing_field:actor.id"


def test_a_nested_field_of_protobuf_that_is_not_set_is_its_default(tmp_path: Path) -> None:
    """As a field of the event itself is; what is in a message that is not set is null."""
    as_protobuf(tmp_path)
    message = GetMessageClass(message_type(compiled_proto(tmp_path, "event.proto"), "Event"))
    fields = {"entity_id": "actor.id", "event_id": "id", "event_time": "at.time"}
    stream = stream_of("protobuf", tmp_path, fields | {"attributes": {"login": "actor.login", "actor": "actor"}})
    read = EventDecoder(stream).decode
    arrived = EventDecoder(stream).delivery("a", ARRIVED, "protobuf")
    for actor, expected in (({}, ("0", "", "{}")), (None, (None, None, None)), ({"id": 7}, ("7", "", '{"id":7}'))):
        event = message(id="e1", at={"time": "2024-03-01T11:00:00Z"}, **({} if actor is None else {"actor": actor}))
        content = MessageReader(stream).content(event.SerializeToString(), {"format": "protobuf"})
        row = read(content, arrived)
        assert (row[0], row[4], row[5]) == expected


def test_batches_of_protobuf_read_by_columns_have_paths_too(tmp_path: Path) -> None:
    write_protos(tmp_path)
    named = {"first": "counts[0]", "second": "counts[1]", "name": "names['5']", "who": {"first_of": ["user", "id"]}}
    stream = message_stream("protobuf", tmp_path, fields={"event_time": "stamp", "attributes": named}, **BATCH)
    batch = message_class(tmp_path, "pkg.Batch")(
        events=[{"counts": [7], "names": {5: "five"}, "id": "e"}, {"user": "u"}]
    )
    found = MessageReader(stream).batch(batch.SerializeToString())
    assert found
    values = {name: told(field_reader(each.field, "protobuf"), found[0]) for name, each in stream.attributes.items()}
    of_lists = [IN_DOUBT, None]
    assert values == {"first": of_lists, "second": of_lists, "name": of_lists, "who": ["e", "u"]}


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("actor.idd", "'actor.idd' leads nowhere: actor has no 'idd'; allowed: id, login"),
        ("who.id", "'who' is no field of the records; allowed: actor, id, at, items, labels"),
        ("items.sku", "'items.sku' leads nowhere: items has no 'sku', it is a list; name a place in it like [0]"),
        ("items[0].size", "'items[0].size' leads nowhere: items[0] has no 'size'; allowed: sku, price"),
        ("actor.id.x", "'actor.id.x' leads nowhere: actor.id has no 'x', it has no parts"),
        ("actor[0]", "'actor[0]' leads nowhere: actor has no 0; allowed: id, login"),
        ("labels.a.b", "'labels.a.b' leads nowhere: labels.a has no 'b', it has no parts"),
        ("actor.", "'actor.' is no field of the records; allowed: actor, id, at, items, labels"),
    ],
)
def test_a_path_that_a_schema_does_not_have(path: str, problem: str, tmp_path: Path) -> None:
    as_protobuf(tmp_path)
    (tmp_path / "event.avsc").write_text(json.dumps(AVRO))
    fields = Fields.model_validate(FIELDS | {"entity_id": path})
    for source in (
        {"format": "avro", "avro": {"schema": "event.avsc"}},
        {"format": "protobuf", "protobuf": {"schema": "event.proto", "message": "Event"}},
    ):
        described = Format.model_validate(source, context={"origin": tmp_path / "stream.yaml"})
        assert list(described.problems(fields)) == [(("fields", "entity_id"), problem)]
