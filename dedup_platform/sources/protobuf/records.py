"""Protobuf: messages that are one event each, or that hold a batch of them in a repeated field.

A batch is taken apart by its outer encoding alone, so that each event keeps the very bytes that were sent and one that
is broken harms no other. Values become what Protobuf's JSON says of them (`texts` has the details): an enum its name,
a google.protobuf.Timestamp an ISO time, a wrapper its value, a map a dict. A nested message is a dict of the fields
that are set, by the names of the schema. A field that is not set is null if Protobuf can tell, else its default.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

import polars as pl
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from dedup_platform.sources.contents import EncodedContents
from dedup_platform.sources.pieces import read_varint, zigzag
from dedup_platform.sources.protobuf.columns import EventColumns, ProtobufContents
from dedup_platform.sources.protobuf.encoded_fields import BYTES, FIXED_SIZES, GROUP, GROUP_END, VARINT
from dedup_platform.sources.protobuf.values import Converters
from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    UNKNOWN_SCHEMA,
    Content,
    Fields,
    Record,
    RejectedError,
    bounded,
    context_text,
)
from dedup_platform.sources.registry import RegisteredSchema
from dedup_platform.stream.format import ProtobufFormat
from dedup_platform.stream.schemas import batch_field, message_type, registered_messages

__all__ = ["ProtobufMessages"]

_LARGEST_FIELD = 2**29 - 1
_MOST_INDEXES = 100
"""So deep in one another no messages are declared; each list of indexes is remembered."""


class ProtobufMessages:
    """Reads messages of a stream file's type, or the events in them.

    `names` are the fields of an event that are looked at; None is all that are set. With a registry, messages that were
    written as another type are refused; as long as it has the same name, the stream file's schema reads them.
    """

    def __init__(
        self,
        protobuf: ProtobufFormat,
        names: Collection[str] | None,
        registered: Callable[[int], RegisteredSchema],
    ) -> None:
        self._message = message_type(protobuf.schema_file.content, protobuf.message)
        self._registered = registered
        self._outer = GetMessageClass(self._message)
        self._batch = batch_field(self._message, protobuf.records) if protobuf.records else None
        event = self._batch.message_type if self._batch else self._message
        self._event = GetMessageClass(event)
        self._converters = Converters()
        self._named = None if names is None else [event.fields_by_name[name] for name in names]
        self._fields = self._converters.set_fields if self._named is None else self._named_fields(self._named)
        self._columns = EventColumns(event)

    def records(self, body: bytes, facts: dict[str, Any]) -> Iterator[Record]:
        """The records of one message. RejectedError, before the first, if it is none of this type."""
        body = self.without_indexes(body, facts)
        context = context_text(**facts)
        if self._batch is None:
            yield bounded(body, self.content, context, facts)
            return
        events, end = _elements(body, self._batch.number)
        if not events and not self._is_empty_batch(body):
            raise RejectedError(MALFORMED_RECORD)
        for event in events:
            yield bounded(event, self.content, context, facts)
        if end < len(body):
            yield body[end:][:MAX_RECORD_BYTES], MALFORMED_RECORD, context_text(**facts, rest=True)

    @property
    def hold_batches(self) -> bool:
        """Whether a message may hold many events."""
        return self._batch is not None

    def batch(self, body: bytes, facts: dict[str, Any]) -> EncodedContents | None:
        """The events of one message, read together; None if `records` must read them. RejectedError as for that."""
        events = self.events(self.without_indexes(body, facts))
        return self.contents(pl.Series(events, dtype=pl.Binary)) if events else None

    def events(self, body: bytes) -> list[bytes] | None:
        """The events of one message that holds some, at least one, and is whole; None if `records` must read it."""
        if self._batch is None:
            return None
        events, end = _elements(body, self._batch.number)
        is_whole = end == len(body) and events and max(map(len, events)) <= MAX_RECORD_BYTES
        return events if is_whole else None

    def contents(self, payloads: pl.Series) -> EncodedContents:
        """What events hold, to be read together: binary values, at least one, none longer than MAX_RECORD_BYTES."""
        return ProtobufContents(payloads, self._columns, self.content)

    def content(self, payload: bytes) -> Content:
        """The fields of one event, whoever wrote it."""
        try:
            return self._fields(self._event.FromString(payload))
        except (DecodeError, UnicodeDecodeError):
            return MALFORMED_RECORD

    def without_indexes(self, body: bytes, facts: dict[str, Any]) -> bytes:
        """The message behind the indexes that say which one of its registered schema it is, if it has such a schema."""
        if "schema_id" not in facts:
            return body
        writers = self._registered(facts["schema_id"])
        try:
            indexes, end = _indexes(body)
        except (IndexError, ValueError):
            raise RejectedError(UNKNOWN_SCHEMA) from None
        if _message_name(writers, indexes) != self._message.full_name:
            raise RejectedError(UNKNOWN_SCHEMA)
        return body[end:]

    def _is_empty_batch(self, body: bytes) -> bool:
        """Whether it is a batch of nothing, and not something else in which no field happens to be an event."""
        try:
            return bool(self._outer.FromString(body).ListFields())
        except DecodeError:
            return False

    def _named_fields(self, fields: Sequence[FieldDescriptor]) -> Callable[[Message], Fields]:
        """A function that reads these fields of an event."""
        reading = [(field.name, field.has_presence, self._converters.of(field)) for field in fields]
        return lambda event: {
            name: convert(getattr(event, name)) if not has_presence or event.HasField(name) else None
            for name, has_presence, convert in reading
        }


def _indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of a message inside its schema, the outermost first, and where they end. None is the first."""
    count, at = read_varint(body, 0)
    if not 0 <= zigzag(count) <= _MOST_INDEXES:
        raise ValueError("there are too many indexes")
    indexes = []
    for _ in range(zigzag(count)):
        index, at = read_varint(body, at)
        indexes.append(zigzag(index))
    if min(indexes, default=0) < 0:
        raise ValueError("an index is less than 0")
    return tuple(indexes) or (0,), at


@lru_cache(256)
def _message_name(schema: RegisteredSchema, indexes: tuple[int, ...]) -> str | None:
    """The full name of a message of a registered schema; None if it has none such, or cannot be compiled."""
    message, *inner = indexes
    try:
        found = registered_messages(schema.text, schema.references)[message]
        for index in inner:
            found = found.nested_types[index]
    except (IndexError, ValueError):
        return None
    return found.full_name


def _elements(data: bytes, number: int) -> tuple[list[bytes], int]:
    """The values of one field of messages, and where a message ends of which all before it is whole."""
    elements, at = _leading_elements(data, number)
    end = at
    groups: list[int] = []
    try:
        while at < len(data):
            tag, at = read_varint(data, at)
            field, kind = tag >> 3, tag & 7
            if not 0 < field <= _LARGEST_FIELD or (field == number and kind != BYTES and not groups):
                break
            if kind == BYTES:
                size, begin = read_varint(data, at)
                at = begin + size
                if field == number and not groups and at <= len(data):
                    elements.append(data[begin:at])
            elif kind == VARINT:
                _, at = read_varint(data, at)
            elif kind in FIXED_SIZES:
                at += FIXED_SIZES[kind]
            elif kind == GROUP:
                groups.append(field)
            elif kind != GROUP_END or not groups or groups.pop() != field:
                break
            if not groups and at <= len(data):
                end = at
    except (IndexError, ValueError):
        pass
    return elements, end


def _leading_elements(data: bytes, number: int) -> tuple[list[bytes], int]:
    """The values of a field as long as nothing else stands between them, and where they end; for the usual sizes."""
    tag = number << 3 | BYTES
    elements: list[bytes] = []
    at, length = 0, len(data)
    # A tag of one byte, a size of one or two.
    while tag < 128 and at + 2 < length and data[at] == tag:
        size, begin = data[at + 1], at + 2
        if size > 127:
            size, begin = size - 128 + (data[begin] << 7), begin + 1
        if begin + size > length or data[begin - 1] > 127:
            break
        at = begin + size
        elements.append(data[begin:at])
    return elements, at
