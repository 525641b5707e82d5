"""Single data of Avro's binary encoding, read in one pass as the texts and Numbers that an event is made of.

fastavro reads the schemas but not the data: data that are not what their schema says must neither end the process (it
follows nested records until the stack is full) nor be taken for others (it reads an index of -1 as the last), and a
32-bit float must keep its own digits. `sources/test_avro_library.py` among the tests fails once it does better.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from dedup_platform.sources.avro.logical_types import logical_type
from dedup_platform.sources.pieces import read_varint, zigzag
from dedup_platform.sources.records import MAX_RECORD_BYTES
from dedup_platform.sources.text.canonical_text import (
    base64_text,
    date_text,
    decimal_text,
    double_text,
    float_text,
    time_text,
    timestamp_text,
)
from dedup_platform.sources.text.json_records import Number, has_too_many_levels, number_of
from dedup_platform.stream.avro_least import least_values

__all__ = ["MOST_EMPTY", "DatumReader", "MalformedDatumError", "datum_reader"]

MOST_EMPTY = 1000
"""There may be so many values without bytes (nulls) in a row: they could be as many as they like."""
_MOST_EMPTY_VALUES = 100_000
"""And so many in all lists of a datum."""

Read = Callable[[bytes, int], tuple[Any, int]]
"""From some bytes and a place in them: the value there, and the place after it."""

DatumReader = Callable[[bytes, int], tuple[dict[str, Any], int]]
"""From some bytes and a place in them: the fields of the record there, and the place after it."""

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class MalformedDatumError(Exception):
    """The bytes are not what their schema says."""


def datum_reader(schema: Mapping[str, Any]) -> DatumReader:
    """A function that reads records of a schema (parsed by `avro_record`); it raises MalformedDatumError.

    A union is the value that it holds, an enum its symbol, a map a dict. Of logical types decimals, dates, times,
    timestamps and UUIDs are read; of others, what they are written as.
    """
    readers = _Readers(schema["__named_schemas"])
    read_record = readers.of(schema)

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        readers.empty_values = 0
        try:
            fields, end = read_record(data, at)
        except (IndexError, RecursionError, ValueError, struct.error):
            raise MalformedDatumError from None
        if readers.are_recursive and has_too_many_levels(fields):
            raise MalformedDatumError
        return fields, end

    return read


class _Readers:
    """Makes the readers of a schema's types. A type with a name has one reader, to which all its uses lead."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Read | None] = {}
        self.are_recursive = False
        self.empty_values = 0
        """How many values without bytes are in the lists of the datum that is being read."""

    def of(self, schema: Any) -> Read:
        if isinstance(schema, list):
            return _union([self.of(branch) for branch in schema])
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._by_name(schema)
        if "name" in schema:
            self._made[schema["name"]] = None
            self._made[schema["name"]] = made = self._complex(schema)
            return made
        return self._complex(schema)

    def _by_name(self, name: str) -> Read:
        if name not in self._made:
            return self.of(self._named[name])
        return self._made[name] or self._deferred(name)

    def _deferred(self, name: str) -> Read:
        """For a record inside itself, which is only being made."""
        self.are_recursive = True
        return lambda data, at: self._made[name](data, at)  # type: ignore[misc]  # made by then

    def _complex(self, schema: Mapping[str, Any]) -> Read:
        match schema["type"]:
            case "record" | "error":
                return _record([(field["name"], self.of(field["type"])) for field in schema["fields"]])
            case "enum":
                return _enum(schema["symbols"])
            case "array":
                return self._array(self.of(schema["items"]), least_values(schema["items"], self._named))
            case "map":
                return _map(self.of(schema["values"]))
            case _:
                return _logical(schema) or (_fixed(schema["size"]) if "size" in schema else self.of(schema["type"]))

    def _array(self, read_item: Read, values: int) -> Read:
        """Of items that have so many values at least."""

        def read(data: bytes, at: int) -> tuple[Any, int]:
            items: list[Any] = []
            while True:
                count, begin = _block(data, at, len(items))
                at = begin
                if not count:
                    return items, at
                for _ in range(count):
                    item, at = read_item(data, at)
                    items.append(item)
                    if at == begin:
                        self.empty_values += values
                        if len(items) > MOST_EMPTY or self.empty_values > _MOST_EMPTY_VALUES:
                            raise MalformedDatumError

        return read


def _record(fields: Sequence[tuple[str, Read]]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values = {}
        for name, read_field in fields:
            values[name], at = read_field(data, at)
        return values, at

    return read


def _union(branches: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _index(data, at)
        return branches[branch](data, at)

    return read


def _enum(symbols: Sequence[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        symbol, at = _index(data, at)
        return symbols[symbol], at

    return read


def _map(read_value: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        values: dict[str, Any] = {}
        while True:
            count, at = _block(data, at, len(values))
            if not count:
                return values, at
            for _ in range(count):
                name, at = _string(data, at)
                values[name], at = read_value(data, at)

    return read


def _long(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return zigzag(number), at


def _index(data: bytes, at: int) -> tuple[int, int]:
    index, at = _long(data, at)
    if index < 0:
        raise MalformedDatumError
    return index, at


def _block(data: bytes, at: int, before: int) -> tuple[int, int]:
    """How many items the next block of an array or a map has; a negative count has the block's size behind it."""
    count, at = _long(data, at)
    if count < 0:
        _, at = _long(data, at)
    if before + abs(count) > MAX_RECORD_BYTES:
        raise MalformedDatumError
    return abs(count), at


def _slice(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if not 0 <= size <= len(data) - at:
        raise MalformedDatumError
    return data[at : at + size], at + size


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _slice(data, at, size)


def _string(data: bytes, at: int) -> tuple[Any, int]:
    value, at = _bytes(data, at)
    return value.decode(), at


def _boolean(data: bytes, at: int) -> tuple[Any, int]:
    return (False, True)[data[at]], at + 1


def _float(data: bytes, at: int) -> tuple[Any, int]:
    return float_text(*_FLOAT.unpack_from(data, at)), at + 4


def _double(data: bytes, at: int) -> tuple[Any, int]:
    return double_text(*_DOUBLE.unpack_from(data, at)), at + 8


def _as_text(read_raw: Callable[[bytes, int], tuple[Any, int]], text_of: Callable[[Any], str]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read_raw(data, at)
        return text_of(value), at

    return read


def _fixed(size: int, text_of: Callable[[bytes], str] = base64_text) -> Read:
    return _as_text(lambda data, at: _slice(data, at, size), text_of)


def _number(value: int) -> Number:
    # Many small ones may stand for a byte each, and none of them is an object of its own.
    return number_of(str(value)) if -1000 < value < 10_000 else Number(value)


_PRIMITIVES: dict[str, Read] = {
    "null": lambda _, at: (None, at),
    "boolean": _boolean,
    "int": _as_text(_long, _number),
    "long": _as_text(_long, _number),
    "float": _float,
    "double": _double,
    "bytes": _as_text(_bytes, base64_text),
    "string": _string,
}


def _logical(schema: Mapping[str, Any]) -> Read | None:
    logical = logical_type(schema)
    if logical is None:
        return None
    ticks, scale = logical.ticks, logical.scale
    match logical.name:
        case "timestamp":
            return _as_text(_long, lambda value: timestamp_text(value, ticks, logical.zone))
        case "time":
            return _as_text(_long, lambda value: time_text(value, ticks))
        case "date":
            return _as_text(_long, date_text)
        case "uuid":
            return _fixed(16, lambda value: str(UUID(bytes=value)))

    def text_of(value: bytes) -> str:
        return decimal_text(int.from_bytes(value, signed=True), scale)

    return _as_text(_bytes, text_of) if schema["type"] == "bytes" else _fixed(schema["size"], text_of)
