"""How large rows of a Parquet file may be, as its pages tell: footers may say anything.

Of a dictionary a value of a megabyte is repeated by a bit, and values that share their beginnings (DELTA_BYTE_ARRAY)
repeat them by a byte.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from dedup_platform.sources.thrift import Fields, struct_at

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
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_LENGTH = struct.Struct("<I")
_END = b"PAR1"
_MOST_FOOTER = 16 * 2**20
_BYTE_ARRAY = 6
_UNREADABLE = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError, struct.error)


def largest_row(file: BinaryIO) -> int:
    """About as many bytes as a row may have, if all that is long in the file meets in it; very many if nobody knows.

    Its footer is read here, since what Arrow tells of a column ends the process if there is a fault in it.
    """
    try:
        footer = _footer(file)
        lengths = [each.get(2) or 0 for each in footer[2] if not each.get(5)]
        return max((sum(_in_columns(file, group, lengths)) for group in footer.get(4) or ()), default=0)
    except _UNREADABLE:
        return _UNKNOWN


def _footer(file: BinaryIO) -> Fields:
    file.seek(-len(_END) - _LENGTH.size, os.SEEK_END)
    told = file.read()
    (size,) = _LENGTH.unpack_from(told)
    if not told.endswith(_END) or size > _MOST_FOOTER:
        raise ValueError("is no footer, or one that is too long")
    file.seek(-len(told) - size, os.SEEK_END)
    return struct_at(file.read(size))[0]


@dataclass(frozen=True)
class _Chunk:
    """A column in one group."""

    is_of_texts: bool
    codec: int
    size: int
    """Of its pages, packed."""
    begin: int
    dictionary: int
    name: int
    """How many bytes its name has."""

    @classmethod
    def of(cls, said: Fields) -> "_Chunk":
        """As a group says it."""
        column = said[3]
        begin, size, dictionary = column[9], column[7], column.get(11) or 0
        if min(begin, size, dictionary) < 0:
            raise ValueError("is nowhere")
        return cls(column[1] == _BYTE_ARRAY, column[4], size, begin, dictionary, sum(map(len, column[3])))


def _in_columns(file: BinaryIO, group: Fields, lengths: list[int]) -> Iterator[int]:
    """What a row of one group may have of each column: the longest value as often as the mean row has one."""
    rows = max(1, group[3])
    for said, length in zip(group[1], lengths, strict=True):
        chunk = _Chunk.of(said)
        values = longest = 0
        for page in _pages(file, chunk):
            values += page.values if page.kind != _DICTIONARY else 0
            if page.kind != _DICTIONARY or chunk.is_of_texts:
                longest = max(longest, page.longest(file, chunk.codec))
        yield (max(longest, length) + _VALUE_BYTES) * max(1, values // rows) + chunk.name


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

    def longest(self, file: BinaryIO, codec: int) -> int:
        """How long the values are that come of it: at most, or if they are not long, in the mean."""
        if self.kind == _DICTIONARY:
            is_to_be_seen = _SHORT < self.size <= _LONG
            return _longest_of(self._content(file, codec)) if is_to_be_seen else self.size
        return self.size if self.encoding == _DELTA_BYTE_ARRAY else self.size // max(1, self.values)

    def _content(self, file: BinaryIO, codec: int) -> bytes | None:
        file.seek(self.begin)
        content = file.read(self.packed)
        if not codec:
            return content
        try:
            unpacked = pa.decompress(content, self.size, _CODECS[codec], asbytes=True)
        except (pa.ArrowException, KeyError, OSError, ValueError):
            return None
        return unpacked


def _longest_of(dictionary: bytes | None) -> int:
    """The longest of values that are written one behind the other; all of it if they cannot be read."""
    if dictionary is None or len(dictionary) < _LENGTH.size:
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


def _pages(file: BinaryIO, chunk: _Chunk) -> Iterator[_Page]:
    """The pages of one column in one group, as far as they can be read: Arrow gets no further."""
    at = chunk.dictionary if 0 < chunk.dictionary < chunk.begin else chunk.begin
    end = at + chunk.size
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
            fields, end = struct_at(data)
            head, sizes = fields[_HEADS.get(fields[1], 5)], (fields[3], fields[2])
            told = fields[1], at + end, *sizes, head[1], head[4 if fields[1] == _DATA_2 else 2]
            return None if any(type(each) is not int or each < 0 for each in told) else _Page(*told)
        except _UNREADABLE:
            if len(data) < size:
                return None
    return None
