"""Messages with a schema, read by libraries that know nothing of who wrote them."""

import io
import json
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import fastavro
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dedup_platform.planning.moments import EPOCH
from dedup_platform.stream.schemas import registered_messages

Read = Callable[[bytes], Any]


def avro_reader(schema: str, newer: str | None = None) -> Read:
    """Reads what was written by a schema, as a newer one has it."""
    written = fastavro.parse_schema(json.loads(schema))
    wanted = fastavro.parse_schema(json.loads(newer)) if newer else written

    def read(value: bytes) -> Any:
        content = io.BytesIO(value)
        found = fastavro.schemaless_reader(content, written, wanted)
        assert content.read() == b""
        return found

    return read


def protobuf_reader(schema: str) -> Read:
    """Reads messages of a .proto's text: the first one in it."""
    kind = GetMessageClass(registered_messages(schema, ())[0])
    return lambda value: fields_of(kind.FromString(value))


READERS: dict[str, Callable[[str], Read]] = {"avro": avro_reader, "protobuf": protobuf_reader}


def fields_of(message: Message) -> dict[str, Any]:
    """All fields of a message, those that are not set as None."""
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Message, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if field.message_type is None:
        return list(found) if field.is_repeated else found
    if field.message_type.full_name == "google.protobuf.Timestamp":
        # Not `ToDatetime`, which rounds times far away.
        return EPOCH.astimezone(UTC) + timedelta(seconds=found.seconds, microseconds=found.nanos // 1000)
    return fields_of(found)
