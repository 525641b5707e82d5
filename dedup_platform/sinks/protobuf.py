"""Protobuf: schemas of messages, and columns as its wire format has them. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sinks.column_bytes import (
    Array,
    Piece,
    booleans,
    distinct,
    doubles,
    joined,
    lengths,
    or_else,
    texts,
    varint,
    varints,
)
from dedup_platform.sinks.shapes import Field, Record, row_of
from dedup_platform.stream import decimal_of

_VARINT, _FIXED_64, _BYTES = 0, 1, 2
_TYPES = {
    "string": "string",
    "integer": "int32",
    "long": "int64",
    "double": "double",
    "boolean": "bool",
    "timestamp": "google.protobuf.Timestamp",
    "date": "string",
    "list<string>": "string",
}
_SECOND = 1_000_000
"""Microseconds."""


class Protobuf:
    """Fields behind their numbers; of a null there is nothing."""

    absent = b""

    def schema(self, record: Record, namespace: str) -> str:
        """The schema of a record as the text of a .proto file, whose first message it is."""
        row = row_of(record)
        messages = "\n".join(_message(each, _renamed(row) if each is row else {}) for each in _all(record))
        imported = 'import "google/protobuf/timestamp.proto";\n'
        return f'syntax = "proto3";\npackage {namespace};\n\n{imported}\n{messages}'

    def value(self, field: Field, values: pl.Series) -> list[Piece]:
        """The values of a field; whatever stands for its nulls is replaced."""
        assert isinstance(field.type, str)
        write = _texts if decimal_of(field.type) else _WRITERS[field.type]
        return write(values, field.number)

    def record(self, field: Field, content: Array) -> list[Piece]:
        """A message inside of another one, which is there or null."""
        head = varints(lengths(content), _tag(field.number, _BYTES))
        return [or_else(content.is_valid(), head, b"") if content.null_count else head, content]


def _all(record: Record) -> list[Record]:
    """A record, and each that is inside of it once."""
    found = {record.name: record}
    for field in record.fields:
        if isinstance(field.type, Record):
            found |= {each.name: each for each in _all(field.type)}
    return list(found.values())


def _message(record: Record, names: Mapping[str, str]) -> str:
    fields = "".join(f"  {_declared(field, names.get(field.name, field.name))};\n" for field in record.fields)
    return f"message {record.name} {{\n{fields}}}\n"


def _declared(field: Field, name: str) -> str:
    if isinstance(field.type, Record):
        return f"{field.type.name} {name} = {field.number}"
    type_ = "string" if decimal_of(field.type) else _TYPES[field.type]
    return f"{_label(field)}{type_} {name} = {field.number}"


def _label(field: Field) -> str:
    """What tells null from a number 0 or an empty text; of messages, such as times, it needs none."""
    if field.type == "list<string>":
        return "repeated "
    return "optional " if field.is_optional and field.type != "timestamp" else ""


def _renamed(row: Record) -> dict[str, str]:
    """The fields whose columns' names Protobuf takes for the same as that of one with a lower number: they differ in
    underscores only. Such a field has its number behind its name."""
    taken, changed = set[str](), dict[str, str]()
    for field in sorted(row.fields, key=lambda each: each.number):
        name = field.name
        while (key := name.replace("_", "")) in taken:
            changed[field.name] = name = f"{name}_{field.number}"
        taken.add(key)
    return changed


def _tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def _numbers(values: pl.Series, number: int) -> list[Piece]:
    signed = values.cast(pl.Int64).fill_null(0).to_numpy()
    return [varints(signed.view(np.uint64), _tag(number, _VARINT))]


def _texts(values: pl.Series, number: int) -> list[Piece]:
    """Texts, and what is written as one: dates, and decimals, so that they stay exact."""
    content = texts(values)
    return [varints(lengths(content), _tag(number, _BYTES)), content]


def _timestamps(values: pl.Series, number: int) -> list[Piece]:
    seconds, micros = np.divmod(values.to_physical().fill_null(0).to_numpy(), _SECOND)
    pieces = [varints(seconds.view(np.uint64), _tag(1, _VARINT)), varints(micros * 1000, _tag(2, _VARINT))]
    content = joined(pieces, len(values))
    return [varints(lengths(content), _tag(number, _BYTES)), content]


def _lists(values: pl.Series, number: int) -> list[Piece]:
    return [distinct(values, lambda names: _list(names, number))]


def _list(names: list[str], number: int) -> bytes:
    return b"".join(_tag(number, _BYTES) + varint(len(name.encode())) + name.encode() for name in names)


_WRITERS: dict[str, Callable[[pl.Series, int], list[Any]]] = {
    "string": _texts,
    "integer": _numbers,
    "long": _numbers,
    "double": lambda values, number: [doubles(values, _tag(number, _FIXED_64))],
    "boolean": lambda values, number: [booleans(values, _tag(number, _VARINT))],
    "timestamp": _timestamps,
    "date": _texts,
    "list<string>": _lists,
}
