"""Files of Protobuf: messages, each with its length (a varint) before it."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl

from dedup_platform.sources.binary_columns import EncodedBytes
from dedup_platform.sources.compression import DamageError, Packed
from dedup_platform.sources.contents import Batch, listed
from dedup_platform.sources.frame_sizes import MAX_BYTES, MAX_ROWS
from dedup_platform.sources.pieces import VARINT_BYTES, Pieces, read_varint
from dedup_platform.sources.protobuf.records import ProtobufMessages
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, context_text, damaged

__all__ = ["delimited_batches", "delimited_messages"]

_KEPT_BYTES = MAX_RECORD_BYTES + 2**16
"""Of a message that is one event: so long a one is too long, whatever of a schema registry stands before it."""
_FACTS = {"format": "protobuf"}

Read = Callable[[bytes], Iterator[Record]]


def delimited_messages(content: Packed, read: Read, hold_batches: bool) -> Iterator[Record]:
    """The records of one open file; `read` reads a message, which may hold many events."""
    pieces = Pieces(content.unpacked())
    try:
        while not pieces.are_at_end:
            yield from read(_message(pieces, hold_batches))
    except DamageError as damage:
        yield damaged(pieces.rest, damage, **_FACTS)


def delimited_batches(content: Packed, messages: ProtobufMessages, read: Read) -> Iterator[Batch]:
    """The same records, those together that were read together."""
    pieces = Pieces(content.unpacked())
    try:
        while not pieces.are_at_end:
            yield from _batches(_Block.of(pieces, messages.hold_batches), messages, read)
    except DamageError as damage:
        yield listed([damaged(pieces.rest, damage, **_FACTS)])


class _Block:
    """Some messages of a file, which lie between these places of its content."""

    def __init__(self, content: bytes, begins: Sequence[int], ends: Sequence[int]) -> None:
        self._content = content
        self._begins, self._ends = begins, ends

    @classmethod
    def of(cls, pieces: Pieces, hold_batches: bool) -> "_Block":
        """The next messages, at least one. DamageError as for the next one."""
        begins, ends = _whole_messages(pieces.ahead(MAX_BYTES))
        if begins:
            return cls(pieces.take(ends[-1]), begins, ends)
        message = _message(pieces, hold_batches)
        return cls(message, [0], [len(message)])

    def __iter__(self) -> Iterator[bytes]:
        return (self._content[begin:end] for begin, end in zip(self._begins, self._ends, strict=True))

    def series(self) -> pl.Series:
        """The messages as binary values."""
        begins, ends = np.array(self._begins), np.array(self._ends)
        return EncodedBytes(self._content).slices(begins, ends - begins)


def _message(pieces: Pieces, hold_batches: bool) -> bytes:
    """The next message, or the beginning of one that is a single event and too long."""
    size = pieces.take_varint()
    return pieces.take(size) if hold_batches else pieces.take_beginning(size, _KEPT_BYTES)


def _whole_messages(content: bytes) -> tuple[list[int], list[int]]:
    """Where messages begin and end, as far as their lengths are beyond doubt whatever follows the content."""
    begins: list[int] = []
    ends: list[int] = []
    at, length = 0, len(content)
    last = length - VARINT_BYTES
    for _ in range(MAX_ROWS):
        if at > last:
            break
        size, begin = content[at], at + 1
        if size > 127:
            # Most lengths have two bytes at most.
            size, begin = size - 128 + (content[begin] << 7), begin + 1
            if content[begin - 1] > 127:
                try:
                    size, begin = read_varint(content, at)
                except ValueError:
                    break
        at = begin + size
        if at > length:
            break
        begins.append(begin)
        ends.append(at)
    return begins, ends


def _batches(block: _Block, messages: ProtobufMessages, read: Read) -> Iterator[Batch]:
    if messages.hold_batches:
        yield from _events(block, messages, read)
        return
    payloads = block.series()
    if payloads.bin.size().is_between(1, MAX_RECORD_BYTES).all():
        yield from _together(payloads, messages)
    else:
        yield from _alone(record for message in block for record in read(message))


def _events(block: _Block, messages: ProtobufMessages, read: Read) -> Iterator[Batch]:
    """The events in the messages of a block."""
    waiting: list[bytes] = []
    for message in block:
        events = messages.events(message)
        if events is not None:
            waiting += events
            continue
        if waiting:
            yield from _together(pl.Series(waiting, dtype=pl.Binary), messages)
            waiting = []
        yield from _alone(read(message))
    if waiting:
        yield from _together(pl.Series(waiting, dtype=pl.Binary), messages)


def _together(payloads: pl.Series, messages: ProtobufMessages) -> Iterator[Batch]:
    return messages.contents(payloads).batches(context_text(**_FACTS))


def _alone(records: Iterator[Record]) -> Iterator[Batch]:
    if read := list(records):
        yield listed(read)
