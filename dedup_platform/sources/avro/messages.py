"""Messages of Avro: each is one datum, by the stream file's schema or by the one whose id it begins with."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import polars as pl

from dedup_platform.sources.avro.contents import Resolution, SchemaReader
from dedup_platform.sources.contents import Contents
from dedup_platform.sources.records import (
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
        self._readers: dict[int | None, SchemaReader | None] = {}
        """By the id of a schema; None for one that cannot be used, which is as dear to find out as to read by it."""

    def records(self, body: bytes, facts: dict[str, Any]) -> Iterator[Record]:
        """The one record of a message."""
        schema_id = facts.get("schema_id")
        yield bounded(body, lambda payload: self.content(payload, schema_id), context_text(**facts), facts)

    def content(self, payload: bytes, schema_id: int | None) -> Content:
        """The fields of one datum, which fills the payload. RejectedError if its schema cannot be used."""
        return self._reader(schema_id).content(payload)

    def contents(self, payloads: pl.Series, schema_id: int | None) -> Contents:
        """The same of many, each a binary value."""
        return self._reader(schema_id).contents(payloads)

    def _reader(self, schema_id: int | None) -> SchemaReader:
        if schema_id not in self._readers:
            try:
                self._readers[schema_id] = self._made(schema_id)
            except RejectedError:
                self._readers[schema_id] = None
        if (reader := self._readers[schema_id]) is None:
            raise RejectedError(UNKNOWN_SCHEMA)
        return reader

    def _made(self, schema_id: int | None) -> SchemaReader:
        if schema_id is None:
            if self._schema is None:
                raise RejectedError(UNKNOWN_SCHEMA)
            return SchemaReader(self._schema, None)
        writers = self._registered(schema_id)
        try:
            written = avro_record(writers.text.encode(), *(text.encode() for _, text in writers.references))
        except ValueError:
            raise RejectedError(UNKNOWN_SCHEMA) from None
        return SchemaReader(written, _resolution(written, self._schema) if self._schema else None)


def _resolution(written: Mapping[str, Any], schema: Mapping[str, Any]) -> Resolution:
    """How what was written as one schema becomes the fields of another: by names and aliases, with its defaults.

    Values keep the texts that they were written as, whatever the two schemas say of their types: a stream's columns
    have types of their own.
    """
    names = {field["name"] for field in written["fields"]}
    sources: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for field in schema["fields"]:
        source = next((name for name in (field["name"], *field.get("aliases", ())) if name in names), None)
        if source:
            sources[field["name"]] = source
        elif "default" in field:
            defaults[field["name"]] = _value(field["default"])
        else:
            raise RejectedError(UNKNOWN_SCHEMA)
    return Resolution(sources, defaults)


def _value(default: Any) -> Any:
    return json.loads(json.dumps(default), parse_int=Number, parse_float=lambda text: double_text(float(text)))
