"""Rows of `raw_events` as frames of bounded size."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl

from dedup_platform.sources.batch_decoding import BatchDecoder, typed
from dedup_platform.sources.contents import Contents, JoinedContents, ListedContents
from dedup_platform.sources.decoding import Delivery
from dedup_platform.sources.records import Record
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, columns

__all__ = ["Chunk", "RawBatches", "chunks"]

_MAX_ROWS = 8192
_MAX_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Chunk:
    """Records that stand one after the other at a source, and all that raw_events keeps of them. At least one."""

    payloads: Sequence[bytes | None]
    contents: Contents
    contexts: Sequence[str]
    delivery: Delivery
    source: str
    partition: int
    offsets: Sequence[int]
    indexes: Sequence[int]

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def size(self) -> int:
        """Bytes of payloads."""
        return sum(map(len, filter(None, self.payloads)))


def chunks(records: Iterable[Record], delivery: Delivery, source: str, partition: int) -> Iterator[Chunk]:
    """Records of one file with the offsets 0, 1, ... in chunks of a size that fits a frame."""
    some: list[Record] = []
    first = size = 0
    for record in records:
        some.append(record)
        size += len(record[0])
        if size >= _MAX_BYTES or len(some) == _MAX_ROWS:
            yield _chunk(some, delivery, source, partition, first)
            first, some, size = first + len(some), [], 0
    if some:
        yield _chunk(some, delivery, source, partition, first)


def _chunk(some: list[Record], delivery: Delivery, source: str, partition: int, first: int) -> Chunk:
    payloads, contents, contexts = zip(*some, strict=True)
    offsets = range(first, first + len(some))
    return Chunk(payloads, ListedContents(contents), contexts, delivery, source, partition, offsets, [0] * len(some))


class RawBatches:
    """Decodes the records of a stream into frames with the columns of its `raw_events`."""

    def __init__(self, stream: Stream) -> None:
        self._types = {column.name: str(column.type) for column in columns(stream, RAW_EVENTS)}
        self._decoder = BatchDecoder(stream)
        self.decoder = self._decoder.single

    def of(self, delivered: Iterable[Chunk]) -> Iterator[pl.DataFrame]:
        """Frames of whole chunks, of `_MAX_ROWS` records or `_MAX_BYTES` of payloads as soon as there are so many."""
        rows = size = 0
        batch: list[Chunk] = []
        for chunk in delivered:
            batch.append(chunk)
            rows += len(chunk)
            size += chunk.size
            if size >= _MAX_BYTES or rows >= _MAX_ROWS:
                yield self._frame(batch)
                batch, rows, size = [], 0, 0
        if batch:
            yield self._frame(batch)

    def _frame(self, batch: Sequence[Chunk]) -> pl.DataFrame:
        contents = JoinedContents([chunk.contents for chunk in batch])
        decoded = self._decoder.decode(contents, _each(batch, (chunk.delivery for chunk in batch)))
        kept: dict[str, Iterable[Any]] = {
            "payload": chain.from_iterable(chunk.payloads for chunk in batch),
            "payload_context": chain.from_iterable(chunk.contexts for chunk in batch),
            "source": _each(batch, (chunk.source for chunk in batch)),
            "source_partition": _each(batch, (chunk.partition for chunk in batch)),
            "source_offset": chain.from_iterable(chunk.offsets for chunk in batch),
            "source_index": chain.from_iterable(chunk.indexes for chunk in batch),
        }
        beside = [typed(list(values), self._types[name]).alias(name) for name, values in kept.items()]
        return decoded.hstack(beside).select(*self._types)


def _each(batch: Sequence[Chunk], values: Iterable[Any]) -> list[Any]:
    """A value of every chunk, for each of its records."""
    return [value for chunk, of_chunk in zip(batch, values, strict=True) for value in [of_chunk] * len(chunk)]
