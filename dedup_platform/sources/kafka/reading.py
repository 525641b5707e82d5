"""Ranges of a topic's offsets as rows of `raw_events`, read by consumers in Spark's Python workers.

Each range is read by a consumer of its own with a static assignment: no consumer group, so no rebalance can move a
partition in mid-batch. Ranges are explicit, so a task that Spark repeats gives the same rows.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from dedup_platform.errors import SourceError
from dedup_platform.sources.batches import Delivered, Input, Part, RawBatches, RecordChunk
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.frame_sizes import MAX_BYTES, MAX_ROWS
from dedup_platform.sources.kafka.client import SECONDS_TO_ANSWER, described, failures_named, properties
from dedup_platform.sources.kafka.deliveries import MessageDeliveries, offset_of
from dedup_platform.sources.kafka.positions import Place
from dedup_platform.sources.registry import log_in
from dedup_platform.stream import KafkaSource, Stream

__all__ = ["Range", "messages_of", "ranges_of_task", "read_ranges", "size_of"]

_AT_ONCE = 100
"""Messages that are taken from the client together: few, as each may be large."""


@dataclass(frozen=True)
class Range:
    """The offsets of one partition from a place on, up to and without `end`."""

    partition: int
    start: Place
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start.offset)

    def __str__(self) -> str:
        return f"partition {self.partition}: offsets {self.start.offset} to {self.end - 1}"


def read_ranges(
    stream: Stream, tasks: Sequence[Sequence[Range]], options: Mapping[str, str], login: str | None, number: int
) -> Iterator[pl.DataFrame]:
    """The committed messages of one task's ranges, in frames with exactly the columns of `raw_events`.

    `options` are the settings of the connection, `login` is that of the stream's schema registry.
    Whatever a message holds becomes rows, rejected ones if need be. SourceError if the brokers stay away, or an offset
    is gone.
    """
    batches = RawBatches(stream)
    ranges = _ranges(stream, tasks[number], options, login, batches.decoder)
    yield from batches.of(delivered for range_ in ranges for delivered in range_.together())


def ranges_of_task(
    stream: Stream, tasks: Sequence[Sequence[Range]], options: Mapping[str, str], login: str | None, number: int
) -> Iterator[Input]:
    """The ranges of one task, each by itself; what is said of `read_ranges` holds."""
    return _ranges(stream, tasks[number], options, login, EventDecoder(stream))


def _ranges(
    stream: Stream, ranges: Sequence[Range], options: Mapping[str, str], login: str | None, decoder: EventDecoder
) -> Iterator[Input]:
    log_in(stream.source, login)
    deliveries = MessageDeliveries(stream, decoder)
    for range_ in ranges:
        of_range = (stream.kafka, options, deliveries, range_)
        yield Input(partial(_together, *of_range), partial(_parts, *of_range), is_file=False)


def _together(
    source: KafkaSource, options: Mapping[str, str], deliveries: MessageDeliveries, range_: Range
) -> Iterator[Delivered | RecordChunk]:
    for messages in _portions(messages_of(source, options, range_)):
        yield from deliveries.of(messages, range_.start.source(source.topic), range_.partition)


def _parts(
    source: KafkaSource, options: Mapping[str, str], deliveries: MessageDeliveries, range_: Range
) -> Iterator[Part]:
    for message in messages_of(source, options, range_):
        yield deliveries.part(message, range_.start.source(source.topic), range_.partition)


def messages_of(source: KafkaSource, options: Mapping[str, str], range_: Range) -> Iterator[Message]:
    """The committed messages of one range, in order; offsets that hold none are passed over.

    Raises SourceError if an offset is gone, or nothing comes for `SECONDS_TO_ANSWER` before the range's end.
    """
    with failures_named(source):
        consumer = Consumer({**_FETCHING, **properties(source, options), **_READING})
        try:
            consumer.assign([TopicPartition(source.topic, range_.partition, range_.start.offset)])
            yield from _until_end(source, consumer, range_)
        finally:
            consumer.close()


_FETCHING: dict[str, Any] = {
    # Of what is compressed. The client unpacks all of an answer before it gives any, to a thousand times as much where
    # it repeats itself; a batch of a producer's that is larger comes alone.
    "fetch.message.max.bytes": 16 * 1024,
    # It does not count headers, so little may wait; and it asks on soon: else it rests for a second when enough waits.
    "queued.min.messages": 100,
    "fetch.queue.backoff.ms": 1,
}
_READING: dict[str, Any] = {
    "group.id": "dedup_platform",  # is asked for, and not used: nothing is subscribed to or committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}


def _until_end(source: KafkaSource, consumer: Consumer, range_: Range) -> Iterator[Message]:
    last, ended_at = time.monotonic(), None
    while True:
        # To ask for many waits until there are so many; what came already comes at once.
        first = consumer.poll(1.0)
        for message in [first, *consumer.consume(_AT_ONCE, 0.0)] if first else []:
            if (error := message.error()) and error.code() != KafkaError._PARTITION_EOF:
                raise SourceError(described(source), _lost(error, range_))
            if (offset := offset_of(message)) >= range_.end:
                return
            if error:
                # A new leader may not know yet what was committed when the range was chosen.
                ended_at = offset
                continue
            last, ended_at = time.monotonic(), None
            yield message
            if offset == range_.end - 1:
                return
        if time.monotonic() - last > SECONDS_TO_ANSWER:
            raise SourceError(described(source), _silence(range_, ended_at))


def _silence(range_: Range, ended_at: int | None) -> str:
    if ended_at is None:
        return f"{range_}: nothing came for {SECONDS_TO_ANSWER:.0f} s"
    ends = f"the broker says that the partition ends at offset {ended_at}"
    return f"{range_}: {ends}, and nothing more came for {SECONDS_TO_ANSWER:.0f} s"


def _lost(error: KafkaError, range_: Range) -> str:
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return f"partition {range_.partition}: offset {range_.start.offset} is gone"
    return f"partition {range_.partition}: {error.str()}"


def size_of(message: Message) -> int:
    """How many bytes it holds: keys become rows as values do, and headers, which nobody looks at, are there, too."""
    return len(message.value() or b"") + len(message.key() or b"") + _size_of_headers(message)


def _size_of_headers(message: Message) -> int:
    try:
        headers: Any = message.headers() or ()
    except (SystemError, UnicodeDecodeError):  # a name is no UTF-8: they cannot be asked for at all
        return 0
    return sum(len(name) + len(value or b"") for name, value in headers)


def _portions(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """As many messages as make a frame of rows, if each is one of them."""
    portion: list[Message] = []
    size = 0
    for message in messages:
        portion.append(message)
        size += size_of(message)
        if size >= MAX_BYTES or len(portion) >= MAX_ROWS:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
