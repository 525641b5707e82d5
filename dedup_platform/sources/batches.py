"""Rows of `raw_events` as frames of bounded size."""

from collections.abc import Iterable, Iterator

import polars as pl

from dedup_platform.sources.batch_decoding import BatchDecoder, typed
from dedup_platform.sources.decoding import Delivery
from dedup_platform.sources.records import Content
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, columns

__all__ = ["Coordinate", "Delivered", "RawBatches"]

Coordinate = tuple[str, int, int, int]
"""source, source_partition, source_offset, source_index"""

Delivered = tuple[tuple[bytes | None, Content, str], Delivery, Coordinate]
"""A record (a tombstone has no payload), what it shares with others of its delivery, and where it stands."""

_MAX_ROWS = 8192
_MAX_BYTES = 4 * 2**20
_KEPT = ("payload", "payload_context", "source", "source_partition", "source_offset", "source_index")


class RawBatches:
    """Decodes the records of a stream into frames with the columns of its `raw_events`."""

    def __init__(self, stream: Stream) -> None:
        self._types = {column.name: str(column.type) for column in columns(stream, RAW_EVENTS)}
        self._decoder = BatchDecoder(stream)
        self.decoder = self._decoder.single

    def of(self, delivered: Iterable[Delivered]) -> Iterator[pl.DataFrame]:
        """Frames of at most `_MAX_ROWS` records or about `_MAX_BYTES` of their bytes; a larger record is one alone."""
        size = 0
        batch: list[Delivered] = []
        for each in delivered:
            batch.append(each)
            payload, _, context = each[0]
            size += len(payload or b"") + len(context)
            if size >= _MAX_BYTES or len(batch) == _MAX_ROWS:
                yield self._frame(batch)
                batch, size = [], 0
        if batch:
            yield self._frame(batch)

    def _frame(self, batch: list[Delivered]) -> pl.DataFrame:
        records, deliveries, coordinates = zip(*batch, strict=True)
        payloads, contents, contexts = zip(*records, strict=True)
        kept = zip(_KEPT, (payloads, contexts, *zip(*coordinates, strict=True)), strict=True)
        beside = [typed(values, self._types[name]).alias(name) for name, values in kept]
        return self._decoder.decode(contents, deliveries).hstack(beside).select(*self._types)
