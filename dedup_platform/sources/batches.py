"""Rows of `raw_events` as Arrow batches of bounded size."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dedup_platform import tables
from dedup_platform.sources.decoding import Delivery, EventDecoder, Row
from dedup_platform.sources.records import Record
from dedup_platform.stream import Stream, decimal_of

__all__ = ["RawBatches", "arrow_type"]

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

    def of_file(
        self, records: Iterable[Record], delivery: Delivery, source: str, generation: int
    ) -> Iterator[pa.RecordBatch]:
        """The batches of one file, numbering its records from 0 on."""
        offset = size = 0
        rows: list[Row] = []
        payloads: list[bytes] = []
        contexts: list[str] = []
        for payload, content, context in records:
            rows.append(self.decoder.decode(content, delivery))
            payloads.append(payload)
            contexts.append(context)
            size += len(payload) + len(context)
            if size >= _MAX_BYTES or len(rows) == _MAX_ROWS:
                yield self._batch(rows, payloads, contexts, source, generation, offset)
                offset, size = offset + len(rows), 0
                rows, payloads, contexts = [], [], []
        if rows:
            yield self._batch(rows, payloads, contexts, source, generation, offset)

    def _batch(
        self, rows: list[Row], payloads: list[bytes], contexts: list[str], source: str, generation: int, offset: int
    ) -> pa.RecordBatch:
        count = len(rows)
        *event, reasons = zip(*rows, strict=True)
        coordinates = (
            pa.repeat(source, count),
            pa.repeat(pa.scalar(generation, pa.int32()), count),
            range(offset, offset + count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
        )
        values = (*event, payloads, contexts, *coordinates, reasons)
        return pa.record_batch(
            [
                column if isinstance(column, pa.Array) else pa.array(column, field.type)
                for field, column in zip(self._schema, values, strict=True)
            ],
            schema=self._schema,
        )


def arrow_type(column_type: str) -> pa.DataType:
    """The type in which Arrow takes the values of a `Row` for a column of this type."""
    size = decimal_of(column_type)
    return pa.decimal128(*size) if size else _ARROW_TYPES[column_type]
