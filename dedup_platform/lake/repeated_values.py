"""Column chunks with one value in all rows, made of one page that stands there again and again.

Encoding a value ten million times takes as long as copying all the other columns of those rows.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dedup_platform.lake.parquet_footer import I64, STRUCT, Struct, chunk_begins, elements, read_footer, value

__all__ = ["RepeatedValues"]

_PAGE_ROWS = 2**14

# Ids of fields in parquet-format's `parquet.thrift`.
_GROUPS, _COLUMNS, _CHUNK = 4, 1, 3
_VALUES, _BYTES, _COMPRESSED, _DATA_AT = 5, 6, 7, 9
_STATISTICS, _PAGE_COUNTS, _SIZES = 12, 13, 16
_NULLS = 3

Chunk = tuple[bytes, Struct]
"""Its bytes, and what a footer says of it, as of one that begins at some other place."""


class RepeatedValues:
    """Makes chunks of columns that have the same value in all rows."""

    def __init__(self, schema: pa.Schema, values: Mapping[str, Any]) -> None:
        """Of all columns of the schema; each has one value."""
        self._schema, self._values = schema, values
        self._whole = self._pages(_PAGE_ROWS)

    def chunks(self, rows: int) -> list[Chunk]:
        """One for each column, for so many rows, at least one; they are not compressed."""
        times, left = divmod(rows, _PAGE_ROWS)
        if not left:
            times, left = times - 1, _PAGE_ROWS
        last = self._pages(left)
        return [
            self._chunk(rows, first + page * times + end, column)
            for (first, page, column), (_, end, _) in zip(self._whole, last, strict=True)
        ]

    def _chunk(self, rows: int, content: bytes, column: Struct) -> Chunk:
        # What counts pages, or bytes of values, would have to be multiplied; nobody needs it here.
        told = {field: each for field, each in column.items() if field not in (_PAGE_COUNTS, _SIZES)}
        told |= {field: (I64, len(content)) for field in (_BYTES, _COMPRESSED)}
        told[_VALUES] = (I64, rows)
        statistics = value(told, _STATISTICS, {})
        if value(statistics, _NULLS):
            told[_STATISTICS] = (STRUCT, {**statistics, _NULLS: (I64, rows)})
        return content, told

    def _pages(self, rows: int) -> list[tuple[bytes, bytes, Struct]]:
        """Of each column: its dictionary, if it has one, then a page of so many rows; and its chunk in the footer."""
        content = pa.BufferOutputStream()
        columns = [pa.repeat(pa.scalar(self._values[field.name], field.type), rows) for field in self._schema]
        with pq.ParquetWriter(content, self._schema, compression="none", store_decimal_as_integer=True) as writer:
            writer.write_table(pa.table(columns, schema=self._schema), row_group_size=rows)
        written = content.getvalue()
        [group] = elements(read_footer(pa.BufferReader(written)), _GROUPS)
        return [_cut(written.to_pybytes(), value(column, _CHUNK)) for column in elements(group, _COLUMNS)]


def _cut(file: bytes, column: Struct) -> tuple[bytes, bytes, Struct]:
    begins, data = chunk_begins(column), value(column, _DATA_AT)
    return file[begins:data], file[data : begins + value(column, _COMPRESSED)], column
