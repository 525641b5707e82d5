"""How large rows of a Parquet file may be, as its pages tell: footers may say anything.

Of a dictionary a value of a megabyte is repeated by a bit, and values that share their beginnings (DELTA_BYTE_ARRAY)
repeat them by a byte.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dedup_platform.sources.pieces import read_varint, zigzag

__all__ = ["largest_row"]

_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3
_HEADS = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}
"""Where in a page's header stands what only its kind has."""
_DELTA_BYTE_ARRAY = 7
_HEADER_SIZES = (256, 2**13, 2**24)
"""Few headers have more than the first; Arrow reads none that have more than the last."""
_MOST_PAGES = 200_000
_SHORT, _LONG = 4096, 4 * 2**20
"""A dictionary is looked into if it is neither so small, nor so large that this would take long."""
_VALUE_BYTES = 24
"""What a value takes besides its bytes."""
_UNKNOWN = 2**40
_CODECS = {"LZ4": "lz4_raw"}
"""Those that Arrow calls otherwise than Parquet."""
_LENGTH = struct.Struct("<I")

Fields = Mapping[int, Any]


def largest_row(file: BinaryIO, metadata: pq.FileMetaData) -> int:
    """About as many bytes as a row may have, if all that is long in the file meets in it."""
    groups = range(metadata.num_row_groups)
    return max((sum(_in_columns(file, metadata, group)) for group in groups), default=0)


def _in_columns(file: BinaryIO, metadata: pq.FileMetaData, group: int) -> Iterator[int]:
    """What a row of one group may have of each column: the longest value as often as the mean row has one."""
    rows = metadata.row_group(group)
    for number in range(rows.num_columns):
        chunk = rows.column(number)
        values = longest = 0
        for page in _pages(file, chunk):
            values += page.values if page.kind != _DICTIONARY else 0
            if page.kind != _DICTIONARY or chunk.physical_type == "BYTE_ARRAY":
                longest = max(longest, page.longest(file, chunk.compression))
        longest = max(longest, metadata.schema.column(number).length)
        yield (longest + _VALUE_BYTES) * max(1, values // max(1, rows.num_rows)) + len(chunk.path_in_schema)


@dataclass(frozen=True)
class _Page:
    kind: int
    begin: int
    """Where its content is in the file."""
    packed: int
    size: int
    """Of the content, unpacked."""
    values: int
    encoding: int

    def longest(self, file: BinaryIO, codec: str) -> int:
        """How long the values are that come of it: at most, or if they are not long, in the mean."""
        if self.kind == _DICTIONARY:
            is_to_be_seen = _SHORT < self.size <= _LONG
            return _longest_of(self._content(file, codec)) if is_to_be_seen else self.size
        return self.size if self.encoding == _DELTA_BYTE_ARRAY else self.size // max(1, self.values)

    def _content(self, file: BinaryIO, codec: str) -> bytes | None:
        file.seek(self.begin)
        content = file.read(self.packed)
        if codec == "UNCOMPRESSED":
            return content
        try:
            unpacked = pa.decompress(content, self.size, _CODECS.get(codec, codec.lower()), asbytes=True)
        except (pa.ArrowException, OSError, ValueError):
            return None
        return unpacked


def _longest_of(dictionary: bytes | None) -> int:
    """The longest of values that are written one behind the other; all of it if they cannot be read."""
    if dictionary is None:
        return _LONG
    at, end, longest = 0, len(dictionary) - _LENGTH.size, 0
    if _are_alike(dictionary):
        return _LENGTH.unpack_from(dictionary)[0]
    while at <= end:
        (length,) = _LENGTH.unpack_from(dictionary, at)
        at += _LENGTH.size + length
        if length > longest:
            longest = length
    return longest


def _are_alike(dictionary: bytes) -> bool:
    """Whether all values of a dictionary are equally long."""
    size = _LENGTH.size + _LENGTH.unpack_from(dictionary)[0]
    if len(dictionary) % size:
        return False
    lengths = np.frombuffer(dictionary, np.uint8).reshape(-1, size)[:, : _LENGTH.size]
    return bool((lengths == lengths[0]).all())


def _pages(file: BinaryIO, chunk: pq.ColumnChunkMetaData) -> Iterator[_Page]:
    """The pages of one column in one group, as far as they can be read: Arrow gets no further."""
    begin, first = chunk.data_page_offset, chunk.dictionary_page_offset
    begin = first if first and 0 < first < begin else begin
    at, end = begin, begin + chunk.total_compressed_size
    for _ in range(_MOST_PAGES):
        found = _page(file, at) if 0 <= at < end else None
        if found is None:
            return
        yield found
        at = found.begin + found.packed
    yield _Page(_DATA, at, 0, _UNKNOWN, 1, _DELTA_BYTE_ARRAY)


def _page(file: BinaryIO, at: int) -> _Page | None:
    """The page whose header is at this place."""
    for size in _HEADER_SIZES:
        file.seek(at)
        data = file.read(size)
        try:
            fields, end = _struct(data, 0)
            head, sizes = fields[_HEADS.get(fields[1], 5)], (fields[3], fields[2])
            if min(sizes) < 0:
                return None
            return _Page(fields[1], at + end, *sizes, head[1], head[4 if fields[1] == _DATA_2 else 2])
        except (IndexError, KeyError, RecursionError, ValueError, struct.error):
            if len(data) < size:
                return None
    return None


def _struct(data: bytes, at: int) -> tuple[Fields, int]:
    """The fields of a struct in Thrift's compact protocol by their numbers, and the place behind it."""
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15)
    return fields, at + 1


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return zigzag(number), at


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == 1, at
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _integer(data, at)
        case 7:
            return None, at + 8
        case 8:
            size, at = read_varint(data, at)
            return None, at + size
        case 9 | 10:
            return _items(data, at)
        case 12:
            return _struct(data, at)
    raise ValueError(f"there is no kind {kind}")


def _items(data: bytes, at: int) -> tuple[None, int]:
    """A list, whose items nobody asks for."""
    head, at = data[at], at + 1
    count = head >> 4
    if count == 15:
        count, at = read_varint(data, at)
    for _ in range(count):
        if head & 15 in (1, 2):
            at += 1
        else:
            _, at = _value(data, at, head & 15)
    return None, at
