"""Messages: what the value of one holds, as records. A message may hold one event or many."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from dedup_platform.sources.compression import Packed
from dedup_platform.sources.contents import Batch, Contents, EncodedContents, ListedContents
from dedup_platform.sources.exploding import events_of, exploded
from dedup_platform.sources.frame_sizes import MAX_BYTES
from dedup_platform.sources.interleaved import interleaved
from dedup_platform.sources.records import (
    DAMAGED_FILE,
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    TOMBSTONE,
    UNFORESEEN,
    UNKNOWN_SCHEMA,
    Content,
    Record,
    RejectedError,
    bounded,
    context_text,
    pass_on_intended,
    undivided,
    unprocessable,
    values_in,
)
from dedup_platform.sources.registry import HEADER_BYTES, RegisteredSchema, registry_at, split_header
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.text.csv_records import USUAL, Dialect, csv_content, csv_records
from dedup_platform.sources.text.json_lines import JsonContents
from dedup_platform.sources.text.json_records import json_content, json_value
from dedup_platform.sources.text.json_shapes import JsonShapes
from dedup_platform.sources.text.lines import Lines
from dedup_platform.stream import FieldHash, Fields, Stream
from dedup_platform.stream.format import Format, named_fields

if TYPE_CHECKING:
    from dedup_platform.sources.avro.messages import AvroMessages
    from dedup_platform.sources.protobuf.records import ProtobufMessages

__all__ = ["MessageReader"]

_FEW = 200
"""Reading so many messages of one schema alone costs no more than reading them together."""
_KINDS = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


class _TooMuchError(Exception):
    """Messages have so many values that a few of them at a time are enough to hold."""


class MessageReader:
    """Takes apart the messages of one stream, and reads single records again. It is made where it is used."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._source = stream.source
        self._unknown: set[int] = set()  # of this reader's life: an id may become known

    def records(self, value: bytes) -> Iterator[Record]:
        """The records of one message in order. Raises for nothing that a message may hold.

        A message without any bytes, and any other that cannot be taken apart, is one rejected record. SourceError if
        there is a schema registry and it does not answer.
        """
        facts: dict[str, Any] = {"format": self._source.format}
        count = 0
        try:
            for record in self._records(value, facts):
                yield record
                count += 1
        except RejectedError as rejected:
            yield undivided(value, rejected.reason, **facts)
        except UNFORESEEN as error:
            yield _rest(value, unprocessable(error), count > 0, facts)

    def rest(self, value: bytes, reason: str, is_begun: bool) -> Record:
        """The record that stands for a message, or for what follows the records of it that could be read."""
        return _rest(value, reason, is_begun, {"format": self._source.format})

    def batch(self, value: bytes) -> tuple[EncodedContents, str] | None:
        """The contents of a message whose records can be read together, and the payload_context of each.

        None if it takes `records`, which says the same of such a message. SourceError as for that.
        """
        if not self.hold_batches:
            return None
        facts: dict[str, Any] = {"format": self._source.format}
        try:
            body = self._body(value, facts) if self._source.registry else value
            found = self._protobuf.batch(body, facts)
        except RejectedError:
            return None
        except UNFORESEEN as error:
            pass_on_intended(error)
            return None
        return (found, context_text(**facts)) if found else None

    @property
    def hold_batches(self) -> bool:
        """Whether messages of Protobuf may hold many events each."""
        return self._source.format == "protobuf" and self._protobuf.hold_batches

    @property
    def tombstone(self) -> tuple[None, str, str]:
        """The record of a message without a value."""
        return None, TOMBSTONE, context_text(format=self._source.format)

    def reads_together(self, count: int) -> bool:
        """Whether so many messages had better be read together: each is one event, of a format that can be."""
        if count < _FEW or self._source.list_steps is not None or self._source.format == "csv":
            return False
        return not self.hold_batches

    def together(self, values: pl.Series) -> Batch:
        """The one record of each of some messages (binary values, null for a tombstone), as `records` says it.

        If the stream `reads_together`. SourceError as for `records`, and other errors if they must be read alone.
        """
        parts = [
            (places, batch)
            for places, begin, facts in self._alike(values)
            if (batch := self._read_together(values[places].bin.slice(len(begin)), facts))
        ]
        is_read = pl.Series([False]).new_from_index(0, len(values))
        for places, _ in parts:
            is_read = is_read.scatter(places, True)
        if not is_read.all():
            alone = (~is_read).arg_true()
            parts.append((alone, self._listed(values[alone])))
        return interleaved(parts)

    def delimited(self, content: Packed) -> Iterator[Batch]:
        """The records of one open file of Protobuf messages, those together that were read together."""
        from dedup_platform.sources.protobuf.files import delimited_batches

        return delimited_batches(content, self._protobuf, self.records)

    def content(self, payload: bytes, context: dict[str, Any]) -> Content:
        """What a record of raw_events holds, from its payload and the facts of its payload_context.

        SourceError as for `records`, if it takes the registry to read the record.
        """
        if "damage" in context:
            return DAMAGED_FILE
        if "oversized" in context or "rest" in context:
            return MALFORMED_RECORD
        if "undivided" in context:
            return self._only_content(payload, context)
        if context["format"] == "csv":
            dialect = Dialect(context.get("delimiter", USUAL.delimiter), context.get("quote", USUAL.quote))
            return csv_content(payload, context["header"], dialect)
        if context["format"] in ("json", "parquet") or "encoding" in context:
            return json_content(payload)
        return self._encoded_content(payload, context)

    def _records(self, value: bytes, facts: dict[str, Any]) -> Iterator[Record]:
        if not value:
            raise RejectedError(MALFORMED_RECORD)
        body = self._body(value, facts) if self._source.registry else value
        match self._source.format:
            case "avro":
                data = self._avro.records(body, facts)
                return self._events(data) if self._source.list_steps else data
            case "protobuf":
                return self._protobuf.records(body, facts)
            case "csv":
                return _csv_records(body, self._source, facts)
            case _:
                return _json_records(body, self._source.list_steps, facts)

    def _events(self, data: Iterator[Record]) -> Iterator[Record]:
        for datum in data:
            if isinstance(datum[1], str):
                yield datum
            else:
                yield from events_of(
                    datum[1], self._source.list_steps or (), format=self._source.format, encoding="json"
                )

    def _body(self, value: bytes, facts: dict[str, Any]) -> bytes:
        """What follows the header of the registry, which gives the facts the id of a schema that the registry has."""
        found = split_header(value)
        if found is None:
            raise RejectedError(UNKNOWN_SCHEMA)
        facts["schema_id"], body = found
        self._registered(facts["schema_id"])
        return body

    def _alike(self, values: pl.Series) -> Iterator[tuple[pl.Series, bytes, dict[str, Any]]]:
        """The places of messages of one kind, neither empty nor too long; their beginning, and its facts."""
        source = self._source
        # Behind an id of Protobuf is the number of indexes.
        header = HEADER_BYTES + (source.format == "protobuf") if source.registry else 0
        fits = values.bin.size().is_between(header + 1, MAX_RECORD_BYTES).fill_null(False)
        if not header:
            yield fits.arg_true(), b"", {"format": source.format}
            return
        headers = values.bin.head(header)
        counted = headers.rename("header").filter(fits).value_counts()
        for found in counted.filter(pl.col("count") >= _FEW)["header"]:
            facts: dict[str, Any] = {"format": source.format}
            alike = fits & (headers == pl.Series([found]))
            if begin := self._begin(values.filter(alike)[0], facts):
                yield (alike & values.bin.starts_with(begin)).arg_true(), begin, facts

    def _begin(self, value: bytes, facts: dict[str, Any]) -> bytes | None:
        """What stands in a message before the event; it gives the facts the schema's id. None if it has none."""
        try:
            body = self._body(value, facts)
            event = self._protobuf.without_indexes(body, facts) if self._source.format == "protobuf" else body
        except RejectedError:
            return None
        return value[: len(value) - len(event)]

    def _read_together(self, payloads: pl.Series, facts: dict[str, Any]) -> Batch | None:
        """The events of messages of one kind; None if each is read alone."""
        if len(payloads) < _FEW:
            return None
        try:
            contents = self._contents(payloads, facts.get("schema_id"))
        except RejectedError:
            return None
        return payloads, contents, Repeated(context_text(**facts), len(payloads))

    def _contents(self, payloads: pl.Series, schema_id: int | None) -> Contents:
        if self._source.format == "json":
            return JsonContents(payloads, self._shapes)
        if self._source.format == "protobuf":
            return self._protobuf.contents(payloads)
        return self._avro.contents(payloads, schema_id)

    def _listed(self, values: pl.Series) -> Batch:
        """The records of messages that are one event each, read one by one. _TooMuchError if they had better not be
        held together."""
        records: list[tuple[bytes | None, Content, str]] = []
        size = 0
        for value in values:
            read = [self.tombstone] if value is None else self.records(value)
            for record in read:
                records.append(record)
                size += values_in(record[1])
            if size > MAX_BYTES:
                raise _TooMuchError
        payloads, contents, contexts = zip(*records, strict=True)
        return payloads, ListedContents(contents), contexts

    def _registered(self, schema_id: int) -> RegisteredSchema:
        registry = self._source.registry
        if registry is None or schema_id in self._unknown:
            raise RejectedError(UNKNOWN_SCHEMA)
        schema = registry_at(registry.url).schema(schema_id)
        if schema is None or schema.kind != _KINDS[self._source.format]:
            self._unknown.add(schema_id)
            raise RejectedError(UNKNOWN_SCHEMA)
        return schema

    def _only_content(self, value: bytes, context: dict[str, Any]) -> Content:
        """That of a record which could not be taken apart before; of one with many events it still cannot be told."""
        if context["format"] == "parquet" or "encoding" in context:
            record = value, json_content(value), context_text(format=context["format"])
            steps = self._source.list_steps
            records = exploded(record, steps, context["format"]) if steps else iter([record])
        else:
            records = self.records(value)
        contents = [content for _, content, _ in records]
        return contents[0] if len(contents) == 1 else MALFORMED_RECORD

    def _encoded_content(self, payload: bytes, context: dict[str, Any]) -> Content:
        if context["format"] != self._source.format:
            return UNKNOWN_SCHEMA
        try:
            if context["format"] == "protobuf":
                return self._protobuf.content(payload)
            return self._avro.content(payload, context.get("schema_id"))
        except RejectedError as rejected:
            return rejected.reason

    @cached_property
    def _shapes(self) -> JsonShapes:
        return JsonShapes()

    # Only streams of these formats load the libraries behind them.
    @cached_property
    def _avro(self) -> "AvroMessages":
        from dedup_platform.sources.avro.messages import AvroMessages

        return AvroMessages(self._source.avro, self._registered)

    @cached_property
    def _protobuf(self) -> "ProtobufMessages":
        from dedup_platform.sources.protobuf.records import ProtobufMessages

        assert self._source.protobuf  # as the format says
        return ProtobufMessages(self._source.protobuf, _looked_at(self._stream.fields), self._registered)


def _looked_at(fields: Fields) -> list[str] | None:
    """The fields of a record that decide its row; None is all of them."""
    if isinstance(fields.event_id, FieldHash) and fields.event_id.hash == "*":
        return None
    return sorted({path.top for _, path in named_fields(fields)})


def _rest(value: bytes, reason: str, is_begun: bool, facts: dict[str, Any]) -> Record:
    return (b"", reason, context_text(**facts, rest=True)) if is_begun else undivided(value, reason, **facts)


def _csv_records(body: bytes, source: Format, facts: dict[str, Any]) -> Iterator[Record]:
    """Each line is a record."""
    lines = csv_records(Lines(iter([body]), source.encoding), source.csv, **facts)
    first = next(lines, None)
    if first is None:  # blank lines
        raise RejectedError(MALFORMED_RECORD)
    yield first
    yield from lines


def _json_records(body: bytes, steps: Sequence[str] | None, facts: dict[str, Any]) -> Iterator[Record]:
    """An object is a record; so is each of a batch, and then its payload is canonical JSON."""
    if steps is None:
        yield bounded(body, json_content, context_text(**facts), facts)
    else:
        yield from events_of(json_value(body), steps, **facts)
