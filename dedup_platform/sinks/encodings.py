"""How the values of a sink's messages are written, by what the stream file says and what a registry knows."""

import hashlib
from dataclasses import dataclass, field

from dedup_platform.errors import SinkError, SourceError
from dedup_platform.sinks.binary_messages import CODECS, Binary
from dedup_platform.sinks.kafka_log import Schemas
from dedup_platform.sinks.messages import Encoding, Json
from dedup_platform.sinks.sink import Target
from dedup_platform.sources.registry import RefusedSchemaError, registry_with
from dedup_platform.stream import KafkaSink

_MAGIC = b"\0"
_FIRST_MESSAGE = {"avro": b"", "protobuf": b"\0"}
"""Behind a schema's id: which message of it follows."""


@dataclass(frozen=True)
class Encoded:
    """How values are written. If messages are to name their schema, `schema` is its name and `schemas` has it."""

    encoding: Encoding
    schema: str | None = None
    schemas: Schemas = field(default_factory=dict)


def schema_text(target: Target, said: KafkaSink) -> str | None:
    """The schema of a sink's values: JSON of Avro, or a .proto file; None for JSON, which has none."""
    return None if said.format == "json" else Binary(target, said.envelope, CODECS[said.format]).schema


def encoded_as(target: Target, said: KafkaSink, login: str | None) -> Encoded:
    """How the values of a sink are written.

    With a registry the schema is the newest of `<topic>-value` from now on. SinkError if it does not take it.
    """
    text = schema_text(target, said)
    if text is None:
        return Encoded(Json(target, said.envelope))
    codec = CODECS[said.format]
    if said.registry is None:
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        return Encoded(Binary(target, said.envelope, codec), name, {name: {"format": said.format, "schema": text}})
    schema_id = _registered(target, said, said.registry.url, text, login)
    prefix = _MAGIC + schema_id.to_bytes(4) + _FIRST_MESSAGE[said.format]
    return Encoded(Binary(target, said.envelope, codec, prefix))


def _registered(target: Target, said: KafkaSink, url: str, text: str, login: str | None) -> int:
    subject = f"{said.topic}-value"
    try:
        return registry_with(url, login).register(subject, said.format.upper(), text)
    except RefusedSchemaError as error:
        reason = f"{error}. {_REMEDIES.get(error.code, _REMEDY)}"
        raise SinkError(target.stream, target.sink, reason, lasting=True) from None
    except SourceError as error:
        raise SinkError(target.stream, target.sink, str(error)) from None


_WITHOUT_LOGIN = "Set DEDUP_PLATFORM_REGISTRY_LOGIN to a user:password that may write there"
_REMEDIES = {
    401: _WITHOUT_LOGIN,
    403: _WITHOUT_LOGIN,
    409: "Name another topic in the stream file, or let the registry take the schema: by another compatibility of the "
    "subject, or without the versions that others registered there",
}
_REMEDY = "Mend the registry, or name another one in the stream file"
