"""Rows of `raw_events` as frames of bounded size."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl

from dedup_platform.sources.batch_decoding import BatchDecoder, typed
from dedup_platform.sources.contents import Contents, JoinedContents, ListedContents
from dedup_platform.sources.decoding import Delivery
from dedup_platform.sources.records import Content
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, columns

__all__ = ["Chunk", "Coordinate", "Delivered", "RawBatches"]

_MAX_ROWS = 8192
_MAX_BYTES = 4 * 2**20


Coordinate = tuple[str, int, int, int]
"""source, source_partition, source_offset, source_index"""

Delivered = tuple[tuple[bytes | None, Content, str], Delivery, Coordinate]
"""A record (a tombstone has no payload), what it shares with others of its delivery, and where it stands."""


@dataclass(frozen=True)
class Chunk:
    """Records that were read together: what `Delivered` has of one, a column at a time. At least one."""

    payloads: Sequence[bytes | None]
    contents: Contents
    contexts: Sequence[str]
    deliveries: Sequence[Delivery]
    sources: Sequence[str]
    partitions: Sequence[int]
    offsets: Sequence[int]
    indexes: Sequence[int]

    @classmethod
    def of(cls, delivered: Sequence[Delivered]) -> "Chunk":
        """Records that were read one by one."""
        records, deliveries, coordinates = zip(*delivered, strict=True)
        payloads, contents, contexts = zip(*records, strict=True)
        return cls(payloads, ListedContents(contents), contexts, deliveries, *zip(*coordinates, strict=True))


class RawBatches:
    """Decodes the records of a stream into frames with the columns of its `raw_events`."""

    def __init__(self, stream: Stream) -> None:
        self._types = {column.name: str(column.type) for column in columns(stream, RAW_EVENTS)}
        self._decoder = BatchDecoder(stream)
        self.decoder = self._decoder.single

    def of(self, delivered: Iterable[Delivered | Chunk]) -> Iterator[pl.DataFrame]:
        """Frames of `_MAX_ROWS` records or `_MAX_BYTES` of payloads; what exceeds that alone is one alone."""
        rows = size = 0
        batch: list[Chunk] = []
        singles: list[Delivered] = []
        for each in delivered:
            if isinstance(each, Chunk):
                if singles:
                    batch.append(Chunk.of(singles))
                    singles = []
                batch.append(each)
                rows += len(each.payloads)
                size += sum(map(len, filter(None, each.payloads)))
            else:
                singles.append(each)
                rows += 1
                size += len(each[0][0] or b"")
            if size >= _MAX_BYTES or rows >= _MAX_ROWS:
                yield self._frame(batch, singles)
                batch, singles, rows, size = [], [], 0, 0
        if rows:
            yield self._frame(batch, singles)

    def _frame(self, batch: list[Chunk], singles: list[Delivered]) -> pl.DataFrame:
        chunks = [*batch, Chunk.of(singles)] if singles else batch
        contents = JoinedContents([chunk.contents for chunk in chunks])
        decoded = self._decoder.decode(contents, _joined(chunk.deliveries for chunk in chunks))
        kept = {
            "payload": _joined(chunk.payloads for chunk in chunks),
            "payload_context": _joined(chunk.contexts for chunk in chunks),
            "source": _joined(chunk.sources for chunk in chunks),
            "source_partition": _joined(chunk.partitions for chunk in chunks),
            "source_offset": _joined(chunk.offsets for chunk in chunks),
            "source_index": _joined(chunk.indexes for chunk in chunks),
        }
        beside = [typed(values, self._types[name]).alias(name) for name, values in kept.items()]
        return decoded.hstack(beside).select(*self._types)


def _joined(parts: Iterable[Sequence[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))
