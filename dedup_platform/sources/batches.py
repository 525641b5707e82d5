"""Rows of `raw_events` as Arrow batches of bounded size."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dedup_platform import tables
from dedup_platform.sources.decoding import Delivery, EventDecoder, Row
from dedup_platform.sources.records import Content
from dedup_platform.stream import Stream, decimal_of

__all__ = ["Coordinate", "Delivered", "RawBatches", "arrow_type"]

Coordinate = tuple[str, int, int, int]
"""source, source_partition, source_offset, source_index"""

Delivered = tuple[tuple[bytes | None, Content, str], Delivery, Coordinate]
"""A record (a tombstone has no payload), what it shares with others of its delivery, and where it stands."""

_MAX_ROWS = 8192
_MAX_BYTES = 4 * 2**20

_ARROW_TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "binary": pa.binary(),
}


class RawBatches:
    """Decodes the records of a stream into batches with the columns of its `raw_events`."""

    def __init__(self, stream: Stream) -> None:
        columns = tables.columns(stream, tables.RAW_EVENTS)
        self._schema = pa.schema([(column.name, arrow_type(str(column.type))) for column in columns])
        self.decoder = EventDecoder(stream)

    def of(self, delivered: Iterable[Delivered]) -> Iterator[pa.RecordBatch]:
        """Batches of at most `_MAX_ROWS` records or about `_MAX_BYTES` of their bytes; a larger record is one alone."""
        size = 0
        rows: list[Row] = []
        kept: list[tuple[bytes | None, str, str, int, int, int]] = []
        for (payload, content, context), delivery, coordinate in delivered:
            rows.append(self.decoder.decode(content, delivery))
            kept.append((payload, context, *coordinate))
            size += len(payload or b"") + len(context)
            if size >= _MAX_BYTES or len(rows) == _MAX_ROWS:
                yield self._batch(rows, kept)
                rows, kept, size = [], [], 0
        if rows:
            yield self._batch(rows, kept)

    def _batch(self, rows: list[Row], kept: list[tuple[bytes | None, str, str, int, int, int]]) -> pa.RecordBatch:
        *event, reasons = zip(*rows, strict=True)
        values = (*event, *zip(*kept, strict=True), reasons)
        columns = [pa.array(column, field.type) for field, column in zip(self._schema, values, strict=True)]
        return pa.record_batch(columns, schema=self._schema)


def arrow_type(column_type: str) -> pa.DataType:
    """The type in which Arrow takes the values of a `Row` for a column of this type."""
    size = decimal_of(column_type)
    return pa.decimal128(*size) if size else _ARROW_TYPES[column_type]
