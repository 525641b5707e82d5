"""Messages of Avro: each is one datum, by the stream file's schema or by the one whose id it begins with."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dedup_platform.sources.avro.datum import DatumReader, MalformedDatumError, datum_reader
from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    UNKNOWN_SCHEMA,
    Content,
    Record,
    RejectedError,
    bounded,
    context_text,
)
from dedup_platform.sources.registry import RegisteredSchema
from dedup_platform.sources.text.canonical_text import double_text
from dedup_platform.sources.text.json_records import Number
from dedup_platform.stream.format import AvroFormat
from dedup_platform.stream.schemas import avro_record

__all__ = ["AvroMessages"]


class AvroMessages:
    """Reads data of the stream file's schema. A registered one is asked for by its id, and resolved to the former."""

    def __init__(self, avro: AvroFormat | None, registered: Callable[[int], RegisteredSchema]) -> None:
        self._schema = avro_record(avro.schema_file.content) if avro else None
        self._registered = registered
        self._readers: dict[int | None, DatumReader] = {}

    def records(self, body: bytes, facts: dict[str, Any]) -> Iterator[Record]:
        """The one record of a message."""
        schema_id = facts.get("schema_id")
        yield bounded(body, lambda payload: self.content(payload, schema_id), context_text(**facts), facts)

    def content(self, payload: bytes, schema_id: int | None) -> Content:
        """The fields of one datum, which fills the payload. RejectedError if its schema cannot be used."""
        read = self._readers.get(schema_id) or self._readers.setdefault(schema_id, self._reader(schema_id))
        try:
            fields, end = read(payload, 0)
        except MalformedDatumError:
            return MALFORMED_RECORD
        return fields if end == len(payload) else MALFORMED_RECORD

    def _reader(self, schema_id: int | None) -> DatumReader:
        if schema_id is None:
            if self._schema is None:
                raise RejectedError(UNKNOWN_SCHEMA)
            return datum_reader(self._schema)
        writers = self._registered(schema_id)
        try:
            written = avro_record(writers.text.encode(), *(text.encode() for _, text in writers.references))
        except ValueError:
            raise RejectedError(UNKNOWN_SCHEMA) from None
        return _resolved(written, self._schema) if self._schema else datum_reader(written)


def _resolved(written: Mapping[str, Any], schema: Mapping[str, Any]) -> DatumReader:
    """Reads what was written as one schema into the fields of another: by names and aliases, with its defaults.

    Values keep the texts that they were written as, whatever the two schemas say of their types: a stream's columns
    have types of their own.
    """
    names = {field["name"] for field in written["fields"]}
    sources: list[tuple[str, str]] = []
    defaults: dict[str, Any] = {}
    for field in schema["fields"]:
        source = next((name for name in (field["name"], *field.get("aliases", ())) if name in names), None)
        if source:
            sources.append((field["name"], source))
        elif "default" in field:
            defaults[field["name"]] = _value(field["default"])
        else:
            raise RejectedError(UNKNOWN_SCHEMA)
    read_written = datum_reader(written)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        fields, end = read_written(data, at)
        return {**{name: fields[source] for name, source in sources}, **defaults}, end

    return read


def _value(default: Any) -> Any:
    return json.loads(json.dumps(default), parse_int=Number, parse_float=lambda text: double_text(float(text)))
