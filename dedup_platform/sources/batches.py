"""Rows of `raw_events` as frames of bounded size."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from dedup_platform.sources.batch_decoding import BatchDecoder, content_at, typed
from dedup_platform.sources.contents import Batch, Contents, ListedContents, joined_contents
from dedup_platform.sources.decoding import Delivery
from dedup_platform.sources.frame_sizes import MAX_BYTES, MAX_CONTEXT_BYTES, MAX_ROWS
from dedup_platform.sources.records import UNFORESEEN, Content, pass_on_intended, unprocessable, values_in
from dedup_platform.sources.repeated import Repeated, Runs, Values, repeated_each
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, columns

__all__ = ["Coordinate", "Delivered", "Input", "Part", "RawBatches", "RecordChunk", "number_after", "size_of"]

RECORD_BYTES = 16

Coordinate = tuple[str, int, int, int]
"""source, source_partition, source_offset, source_index"""

Delivered = tuple[tuple[bytes | None, Content, str], Delivery, Coordinate]
"""A record (a tombstone has no payload), what it shares with others of its delivery, and where it stands."""


@dataclass(frozen=True)
class RecordChunk:
    """Records that were read together: what `Delivered` has of one, a column at a time. At least one.

    Payloads are a list or, so that none becomes an object, a series of binary values; offsets are best a range.
    """

    payloads: Sequence[bytes | None] | pl.Series
    contents: Contents
    contexts: Values[str] | pl.Series
    deliveries: Values[Delivery]
    sources: Values[str]
    partitions: Values[int]
    offsets: Values[int]
    indexes: Values[int]

    @cached_property
    def payload_bytes(self) -> int:
        """The size of all payloads."""
        return _bytes_in(self.payloads)

    @cached_property
    def context_length(self) -> int:
        """The length of all payload_contexts."""
        return _length_of(self.contexts)

    @property
    def size(self) -> int:
        """What its records count for: see `size_of`."""
        return self.payload_bytes + self.context_length + RECORD_BYTES * len(self.contents)

    def singles(self) -> Iterator[Delivered]:
        """The records one by one; one whose content raises what nobody foresaw is rejected for that."""
        places = zip(self.sources, self.partitions, self.offsets, self.indexes, strict=True)
        shared = zip(self.payloads, self.contexts, self.deliveries, places, strict=True)
        for number, (payload, context, delivery, place) in enumerate(shared):
            yield (payload, content_at(self.contents, number), context), delivery, place

    @classmethod
    def of_batch(
        cls,
        batch: Batch,
        delivery: Delivery,
        source: str,
        partition: int,
        offsets: Values[int],
        indexes: Values[int],
    ) -> "RecordChunk":
        """Records of one delivery that were read together."""
        count = len(batch[1])
        return cls(
            *batch,
            deliveries=Repeated(delivery, count),
            sources=Repeated(source, count),
            partitions=Repeated(partition, count),
            offsets=offsets,
            indexes=indexes,
        )

    @classmethod
    def of(cls, delivered: Sequence[Delivered]) -> "RecordChunk":
        """Records that were read one by one."""
        records, deliveries, coordinates = zip(*delivered, strict=True)
        payloads, contents, contexts = zip(*records, strict=True)
        return cls(payloads, ListedContents(contents), contexts, deliveries, *zip(*coordinates, strict=True))


@dataclass(frozen=True)
class Part:
    """A file, or one message: if it cannot be read to its end, one rejected record stands for the rest."""

    records: Iterator[Delivered]
    """One by one, none of them read before it is asked for."""
    rest: Callable[[Delivered | None, str], Delivered]
    """The record that stands for what follows the last one that could be read, with the reason."""


@dataclass(frozen=True)
class Input:
    """What one task reads as a whole: a file, or a range of messages. Both ways give the same records in one order."""

    together: Callable[[], Iterator[Delivered | RecordChunk]]
    parts: Callable[[], Iterator[Part]]
    is_file: bool


def size_of(delivered: Delivered) -> int:
    """What one record counts for: its payload and payload_context, and what it takes whatever it holds."""
    payload, _, context = delivered[0]
    return len(payload or b"") + len(context) + RECORD_BYTES


def number_after(each: Delivered | RecordChunk) -> int:
    """The number in its file that follows that of these records."""
    if not isinstance(each, RecordChunk):
        return each[2][2] + 1
    return (each.offsets.value if isinstance(each.offsets, Repeated) else each.offsets[-1]) + 1


class RawBatches:
    """Decodes the records of a stream into frames with the columns of its `raw_events`."""

    def __init__(self, stream: Stream) -> None:
        self._types = {column.name: str(column.type) for column in columns(stream, RAW_EVENTS)}
        self._is_avro = stream.source.format == "avro"
        self._decoder = BatchDecoder(stream)
        self.decoder = self._decoder.single

    def of(self, delivered: Iterable[Delivered | RecordChunk]) -> Iterator[pl.DataFrame]:
        """Frames of `MAX_ROWS` records or `MAX_BYTES` that they hold, and of at most `MAX_CONTEXT_BYTES` of contexts.

        What exceeds that alone is one alone.
        """
        rows = size = told = 0
        batch: list[RecordChunk] = []
        singles: list[Delivered] = []
        for each in delivered:
            length = each.context_length if isinstance(each, RecordChunk) else len(each[0][2])
            if size >= MAX_BYTES or rows >= MAX_ROWS or (rows and told + length > MAX_CONTEXT_BYTES):
                yield from self._frames(batch, singles)
                batch, singles, rows, size, told = [], [], 0, 0, 0
            told += length
            if isinstance(each, RecordChunk):
                if singles:
                    batch.append(RecordChunk.of(singles))
                    singles = []
                batch.append(each)
                rows += len(each.payloads)
                size += each.payload_bytes
            else:
                singles.append(each)
                rows += 1
                size += self.held(each)
        if rows:
            yield from self._frames(batch, singles)

    def held(self, single: Delivered) -> int:
        """About how many bytes a record counts for while it waits for others."""
        payload, content, _ = single[0]
        # A value takes a byte of a payload, but for the nulls of Avro.
        return max(len(payload or b""), values_in(content) if self._is_avro else 0)

    def _frames(self, batch: list[RecordChunk], singles: list[Delivered]) -> Iterator[pl.DataFrame]:
        """One frame; several of fewer records, or of rejected ones, if an error comes that nobody foresaw."""
        chunks = [*batch, RecordChunk.of(singles)] if singles else batch
        try:
            frame = self._frame(chunks)
        except UNFORESEEN as error:
            pass_on_intended(error)
            yield from self._halved([single for chunk in chunks for single in chunk.singles()])
        else:
            yield frame

    def _halved(self, singles: list[Delivered]) -> Iterator[pl.DataFrame]:
        try:
            frame = self._frame([RecordChunk.of(singles)])
        except UNFORESEEN as error:
            half = len(singles) // 2
            if half:
                pass_on_intended(error)
                yield from self._halved(singles[:half])
                yield from self._halved(singles[half:])
            else:
                [((payload, _, context), delivery, place)] = singles
                rejected: Delivered = (payload, unprocessable(error), context), delivery, place
                yield self._frame([RecordChunk.of([rejected])])
        else:
            yield frame

    def _frame(self, chunks: Sequence[RecordChunk]) -> pl.DataFrame:
        contents = joined_contents(chunk.contents for chunk in chunks)
        decoded = self._decoder.decode(contents, Runs(chunk.deliveries for chunk in chunks))
        kept: dict[str, Sequence[Values[Any] | pl.Series]] = {
            "payload": [chunk.payloads for chunk in chunks],
            "payload_context": [chunk.contexts for chunk in chunks],
            "source": [chunk.sources for chunk in chunks],
            "source_partition": [chunk.partitions for chunk in chunks],
            "source_offset": [chunk.offsets for chunk in chunks],
            "source_index": [chunk.indexes for chunk in chunks],
        }
        beside = [_column(parts, self._types[name]).alias(name) for name, parts in kept.items()]
        return decoded.hstack(beside).select(*self._types)


def _bytes_in(payloads: Sequence[bytes | None] | pl.Series) -> int:
    if isinstance(payloads, pl.Series):
        return int(payloads.bin.size().sum())
    return sum(map(len, filter(None, payloads)))


def _length_of(contexts: Values[str] | pl.Series) -> int:
    match contexts:
        case Repeated(context, count):
            return len(context) * count
        case pl.Series():
            return int(contexts.str.len_chars().sum())
        case _:
            return sum(map(len, contexts))


def _column(parts: Sequence[Values[Any] | pl.Series], column_type: str) -> pl.Series:
    repeated = [part for part in parts if isinstance(part, Repeated)]
    if len(repeated) < len(parts):
        return pl.concat([_series(part, column_type) for part in parts])
    values = typed([part.value for part in repeated], column_type)
    return repeated_each(values, [part.count for part in repeated])


def _series(part: Values[Any] | pl.Series, column_type: str) -> pl.Series:
    match part:
        case pl.Series():
            return part
        case range():
            return pl.int_range(part.start, part.stop, eager=True).cast(typed([], column_type).dtype)
        case Repeated(value, count):
            return typed([value], column_type).new_from_index(0, count)
        case _:
            return typed(part, column_type)
