"""Avro: schemas of messages, and columns as its binary encoding has them. Pure."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sinks.column_bytes import (
    Array,
    Piece,
    booleans,
    constant,
    distinct,
    doubles,
    fixed,
    lengths,
    or_else,
    texts,
    varint,
    varints,
    zigzag,
)
from dedup_platform.sinks.shapes import Field, Record
from dedup_platform.stream import decimal_of

_TYPES: dict[str, Any] = {
    "string": "string",
    "integer": "int",
    "long": "long",
    "double": "double",
    "boolean": "boolean",
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "date": {"type": "int", "logicalType": "date"},
    "list<string>": {"type": "array", "items": "string"},
}
_NULL, _THERE = b"\0", b"\2"
"""Which branch of `["null", type]` follows."""


class Avro:
    """Fields in the order of the schema, a null by its place in a union."""

    absent = _NULL

    def schema(self, record: Record, namespace: str) -> str:
        """The schema of a record, as JSON."""
        return json.dumps(_record_type(record, namespace, set()) | {"namespace": namespace}, separators=(",", ":"))

    def value(self, field: Field, values: pl.Series) -> list[Piece]:
        """The values of a field; whatever stands for its nulls is replaced."""
        assert isinstance(field.type, str)
        lead = _THERE if field.is_optional else b""
        if decimal := decimal_of(field.type):
            return [_decimals(values, decimal[0], lead)]
        return _WRITERS[field.type](values, lead)

    def record(self, field: Field, content: Array) -> list[Piece]:
        """A record inside of another one, which is there or null."""
        return [or_else(content.is_valid(), constant(_THERE), _NULL), content] if field.is_optional else [content]


def _record_type(record: Record, namespace: str, told: set[str]) -> dict[str, Any]:
    told.add(record.name)
    fields = [_field_type(field, namespace, told) for field in record.fields]
    return {"type": "record", "name": record.name, "fields": fields}


def _field_type(field: Field, namespace: str, told: set[str]) -> dict[str, Any]:
    if isinstance(field.type, str):
        type_ = _type(field.type)
    else:
        type_ = field.type.name if field.type.name in told else _record_type(field.type, namespace, told)
    if not field.is_optional:
        return {"name": field.name, "type": type_}
    return {"name": field.name, "type": ["null", type_], "default": None}


def _type(column_type: str) -> Any:
    if decimal := decimal_of(column_type):
        return {"type": "bytes", "logicalType": "decimal", "precision": decimal[0], "scale": decimal[1]}
    return _TYPES[column_type]


def _numbers(values: pl.Series, lead: bytes) -> list[Piece]:
    return [varints(zigzag(values.to_physical().cast(pl.Int64).fill_null(0).to_numpy()), lead)]


def _texts(values: pl.Series, lead: bytes) -> list[Piece]:
    content = texts(values)
    return [varints(zigzag(lengths(content)), lead), content]


def _decimals(values: pl.Series, precision: int, lead: bytes) -> Piece:
    """Unscaled numbers in two's complement, all in as many bytes as the largest one of the type needs."""
    numbers = values.to_arrow()
    matrix = np.frombuffer(numbers.buffers()[1], np.uint8).reshape(-1, 16)[numbers.offset :][: len(numbers)]
    size = (10**precision).bit_length() // 8 + 1
    return fixed(matrix[:, :size][:, ::-1], lead + varint(size * 2))


def _lists(values: pl.Series, lead: bytes) -> list[Piece]:
    return [distinct(values, lambda names: lead + _list(names))]


def _list(names: list[str]) -> bytes:
    items = b"".join(varint(len(name.encode()) * 2) + name.encode() for name in names)
    return varint(len(names) * 2) + items + b"\0" if names else b"\0"


_WRITERS: dict[str, Callable[[pl.Series, bytes], list[Piece]]] = {
    "string": _texts,
    "integer": _numbers,
    "long": _numbers,
    "double": lambda values, lead: [doubles(values, lead)],
    "boolean": lambda values, lead: [booleans(values, lead)],
    "timestamp": _numbers,
    "date": _numbers,
    "list<string>": _lists,
}
