"""Column chunks with one value in all rows, or with numbers that rise by one, made of pages that are encoded once.

Encoding a value ten million times takes as long as copying all the other columns of those rows. Any number of rows is
some whole pages and some whose rows are powers of two, of which there are few.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dedup_platform.lake.parquet_footer import (
    BINARY,
    I64,
    STRUCT,
    Struct,
    chunk_begins,
    elements,
    read_footer,
    value,
)

__all__ = ["RepeatedValues", "RisingNumbers"]

_PAGE_ROWS = 2**14
_NUMBER_BYTES = 8

# Ids of fields in parquet-format's `parquet.thrift`.
_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3
_VALUES, _BYTES, _COMPRESSED, _DATA_AT = 5, 6, 7, 9
_STATISTICS, _PAGE_COUNTS, _SIZES = 12, 13, 16
_NULLS, _MOST, _LEAST = 3, 5, 6

Chunk = tuple[bytes, Struct]
"""Its bytes, and what a footer says of it, as of one that begins at some other place."""


class RepeatedValues:
    """Makes chunks of columns that have the same value in all rows."""

    def __init__(self, schema: pa.Schema, values: Mapping[str, Any]) -> None:
        """Of all columns of the schema; each has one value."""
        self._pages = _encoded(schema, [values[field.name] for field in schema])

    def chunks(self, rows: int) -> list[Chunk]:
        """One for each column, for so many rows, at least one; they are not compressed."""
        whole, left = divmod(rows, _PAGE_ROWS)
        some = [(self._pages[_PAGE_ROWS], whole), *((self._pages[each], 1) for each in _powers(left))]
        return [
            _chunk(rows, dictionary + b"".join(pages[number][1] * times for pages, times in some), column)
            for number, (dictionary, _, column) in enumerate(self._pages[_PAGE_ROWS])
        ]


class RisingNumbers:
    """Makes chunks of a column of numbers, each of which is one more than the one before."""

    def __init__(self, field: pa.Field) -> None:
        pages = _encoded(pa.schema([field]), [0], use_dictionary=False, write_statistics=False)
        self._before = {rows: page[: -rows * _NUMBER_BYTES] for rows, [(_, page, _)] in pages.items()}
        [(_, _, self._column)] = pages[_PAGE_ROWS]

    def chunk(self, first: int, rows: int) -> Chunk:
        """One that begins with this number, for so many rows, at least one; it is not compressed."""
        # Not packed as differences: Iceberg's own reader in Spark knows them from 1.10 on only. Not compressed: that
        # takes half as long as to copy all other columns, and saves a sixteenth of the bytes.
        numbers = memoryview(pa.arange(first, first + rows).buffers()[1])
        whole, left = divmod(rows, _PAGE_ROWS)
        parts, at = list[bytes | memoryview](), 0
        for each in (*[_PAGE_ROWS] * whole, *_powers(left)):
            parts += [self._before[each], numbers[at : (at := at + each * _NUMBER_BYTES)]]
        nulls_least_most = {
            _NULLS: (I64, 0),
            _LEAST: (BINARY, bytes(numbers[:_NUMBER_BYTES])),
            _MOST: (BINARY, bytes(numbers[-_NUMBER_BYTES:])),
        }
        return _chunk(rows, b"".join(parts), {**self._column, _STATISTICS: (STRUCT, nulls_least_most)})


def _powers(rows: int) -> list[int]:
    """The powers of two that are so many together."""
    return [1 << bit for bit in range(rows.bit_length()) if rows >> bit & 1]


def _chunk(rows: int, content: bytes, column: Struct) -> Chunk:
    # What counts pages, or bytes of values, would have to be counted anew; nobody needs it here.
    told = {field: each for field, each in column.items() if field not in (_PAGE_COUNTS, _SIZES)}
    told |= {field: (I64, len(content)) for field in (_BYTES, _COMPRESSED)}
    told[_VALUES] = (I64, rows)
    statistics = value(told, _STATISTICS, {})
    if value(statistics, _NULLS):
        told[_STATISTICS] = (STRUCT, {**statistics, _NULLS: (I64, rows)})
    return content, told


def _encoded(schema: pa.Schema, values: list[Any], **options: Any) -> dict[int, list[tuple[bytes, bytes, Struct]]]:
    """Rows of a page -> of each column: its dictionary, if it has one, such a page, and its chunk in the footer."""
    content = pa.BufferOutputStream()
    sizes = [_PAGE_ROWS, *(1 << bit for bit in range((_PAGE_ROWS - 1).bit_length()))]
    columns = [pa.repeat(pa.scalar(each, field.type), _PAGE_ROWS) for each, field in zip(values, schema, strict=True)]
    rows = pa.table(columns, schema=schema)
    with pq.ParquetWriter(content, schema, compression="none", store_decimal_as_integer=True, **options) as writer:
        for size in sizes:
            writer.write_table(rows.slice(0, size), row_group_size=size)
    file = content.getvalue()
    groups = elements(read_footer(pa.BufferReader(file)), _GROUPS)
    written = memoryview(file)
    return {
        size: [_cut(written, value(column, _CHUNK)) for column in elements(group, _COLUMNS)]
        for size, group in zip(sizes, groups, strict=True)
    }


def _cut(file: memoryview, column: Struct) -> tuple[bytes, bytes, Struct]:
    begins, data = chunk_begins(column), value(column, _DATA_AT)
    return bytes(file[begins:data]), bytes(file[data : begins + value(column, _COMPRESSED)]), column
