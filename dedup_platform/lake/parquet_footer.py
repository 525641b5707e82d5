"""The footer of a Parquet file as a tree that can be changed and written again, in Thrift's compact protocol.

PyArrow reads footers and does not let anybody change one. What a field means is in parquet-format's `parquet.thrift`;
fields that nobody here knows stay as they are.
"""

from typing import Any

import pyarrow as pa

MAGIC = b"PAR1"
I16, I32, I64, BINARY, LIST, STRUCT = 4, 5, 6, 8, 9, 12
_TRUE, _FALSE, _BYTE, _DOUBLE, _SET = 1, 2, 3, 7, 10
_INTEGERS = (I16, I32, I64)
_FIXED = {_BYTE: 1, _DOUBLE: 8}
"""Types whose values have so many bytes."""
_DATA_PAGE_AT, _DICTIONARY_PAGE_AT = 9, 11
_TAIL = 8
"""Bytes after the footer: its length, and the magic number."""

Struct = dict[int, tuple[int, Any]]
"""Id of a field -> its type and value. That of a list or a set is the type of its elements and they."""


def read_footer(file: pa.NativeFile) -> Struct:
    """The footer of a file. Raises ValueError if it is no plain Parquet file."""
    size = file.size()
    tail = file.read_at(_TAIL, max(0, size - _TAIL))
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length > size - _TAIL:
        raise ValueError("no Parquet file, or one whose footer is encrypted")
    return parse(file.read_at(length, size - _TAIL - length))


def footer_bytes(footer: Struct) -> bytes:
    """A footer with all that follows it in a file."""
    content = struct_bytes(footer)
    return content + len(content).to_bytes(4, "little") + MAGIC


def struct_bytes(tree: Struct) -> bytes:
    """A tree as bytes, which may stand for it in the tree that it is a part of."""
    content = bytearray()
    _put_struct(content, tree)
    return bytes(content)


def parse(content: bytes) -> Struct:
    """A tree from its bytes. Raises ValueError if they are none."""
    try:
        return _struct(content, 0)[0]
    except IndexError:
        raise ValueError("a footer that is cut off") from None


def value(tree: Struct, field: int, otherwise: Any = None) -> Any:
    """The value of a field that may be missing."""
    return tree[field][1] if field in tree else otherwise


def elements(tree: Struct, field: int) -> list[Any]:
    """The elements of a list; none if it is missing."""
    found: list[Any] = tree[field][1][1] if field in tree else []
    return found


def chunk_begins(chunk: Struct) -> int:
    """Where the bytes of a column's chunk (`ColumnMetaData`) begin."""
    data: int = value(chunk, _DATA_PAGE_AT)
    # Some writers say 0 where there is no dictionary.
    return min(data, value(chunk, _DICTIONARY_PAGE_AT) or data)


# Written for speed: a footer has thousands of values, most of which are a byte long. Each function is told where it is,
# and returns what it found and where that ends.


def _struct(content: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = {}
    field = 0
    while head := content[at]:
        at += 1
        kind = head & 15
        if head > kind:
            field += head >> 4
        else:
            field, at = _integer(content, at)
        if kind in _INTEGERS and (byte := content[at]) < 128:
            found[field] = (kind, (byte >> 1) ^ -(byte & 1))
            at += 1
        else:
            each, at = _value(content, at, kind)
            found[field] = (kind, each)
    return found, at + 1


def _value(content: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _integer(content, at)
    if kind == BINARY:
        length, at = _varint(content, at)
        return content[at : at + length], at + length
    if kind == STRUCT:
        return _struct(content, at)
    if kind in (LIST, _SET):
        return _list(content, at)
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in _FIXED:
        return content[at : at + _FIXED[kind]], at + _FIXED[kind]
    raise ValueError(f"type {kind} is in no footer")


def _list(content: bytes, at: int) -> tuple[tuple[int, list[Any]], int]:
    head = content[at]
    count, kind = head >> 4, head & 15
    count, at = _varint(content, at + 1) if count == 15 else (count, at + 1)
    # Of a list, unlike of a field, booleans are bytes.
    kind = _BYTE if kind in (_TRUE, _FALSE) else kind
    found = []
    for _ in range(count):
        each, at = _value(content, at, kind)
        found.append(each)
    return (kind, found), at


def _integer(content: bytes, at: int) -> tuple[int, int]:
    read, at = _varint(content, at)
    return (read >> 1) ^ -(read & 1), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    found, shift = content[at] & 127, 7
    while content[at] > 127:
        at += 1
        found |= (content[at] & 127) << shift
        shift += 7
    return found, at + 1


def _put_struct(out: bytearray, tree: Struct) -> None:
    last = 0
    for field, (kind, found) in sorted(tree.items()):
        # A boolean is in its type.
        kind = (_TRUE if found else _FALSE) if kind in (_TRUE, _FALSE) else kind
        if field - last < 16:
            out.append((field - last) << 4 | kind)
        else:
            out.append(kind)
            _put_integer(out, field)
        _put_value(out, kind, found)
        last = field
    out.append(0)


def _put_value(out: bytearray, kind: int, found: Any) -> None:
    if kind in (I32, I64, I16):
        _put_integer(out, found)
    elif kind == BINARY:
        _put_varint(out, len(found))
        out += found
    elif kind == STRUCT:
        if isinstance(found, bytes):
            out += found
        else:
            _put_struct(out, found)
    elif kind in (LIST, _SET):
        _put_list(out, *found)
    elif kind in _FIXED:
        out += found


def _put_list(out: bytearray, kind: int, found: list[Any]) -> None:
    if len(found) < 15:
        out.append(len(found) << 4 | kind)
    else:
        out.append(240 | kind)
        _put_varint(out, len(found))
    for each in found:
        _put_value(out, kind, each)


def _put_integer(out: bytearray, number: int) -> None:
    _put_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
