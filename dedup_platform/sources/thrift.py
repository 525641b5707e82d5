"""Structs of Thrift's compact protocol, as Parquet writes its footers and the headers of its pages."""

from collections.abc import Mapping
from typing import Any

from dedup_platform.sources.pieces import read_varint, zigzag

__all__ = ["Fields", "struct_at"]

Fields = Mapping[int, Any]
"""Values by the numbers of their fields: integers, booleans, bytes, lists, and fields again; None for a double."""


def struct_at(data: bytes, at: int = 0) -> tuple[Fields, int]:
    """The fields of the struct at this place, and the place behind it.

    IndexError or ValueError if it is cut short or none; RecursionError if it is too deep.
    """
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        kind = head & 15
        # In a struct a boolean is told by its kind.
        fields[number], at = (kind == 1, at) if kind in (1, 2) else _value(data, at, kind)
    return fields, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return zigzag(number), at


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return data[at] == 1, at + 1
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _integer(data, at)
        case 7:
            return None, _within(data, at + 8)
        case 8:
            size, at = read_varint(data, at)
            return data[at : at + size], _within(data, at + size)
        case 9 | 10:
            return _items(data, at)
        case 12:
            return struct_at(data, at)
    raise ValueError(f"there is no kind {kind}")


def _items(data: bytes, at: int) -> tuple[list[Any], int]:
    head, at = data[at], at + 1
    count = head >> 4
    if count == 15:
        count, at = read_varint(data, at)
    items = []
    for _ in range(count):
        item, at = _value(data, at, head & 15)
        items.append(item)
    return items, at


def _within(data: bytes, at: int) -> int:
    if at > len(data):
        raise IndexError("it is cut short")
    return at
