"""Messages of a topic as records: those that are one event each together, the others one after the other."""

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message

from dedup_platform.sources.batches import Delivered, Part, RecordChunk
from dedup_platform.sources.decoding import CREATE_TIME, Delivery, EventDecoder
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.records import UNFORESEEN, encoded, pass_on_intended
from dedup_platform.sources.repeated import Repeated, Values
from dedup_platform.sources.text.blocks import as_texts
from dedup_platform.sources.texts import quoted_texts
from dedup_platform.sources.times import FROM_YEAR_1
from dedup_platform.stream import KafkaSource, Stream

__all__ = ["MessageDeliveries", "offset_of", "stamped_at"]

_MICROSECONDS = 1000  # in a millisecond
_CREATE_TIME = encoded({CREATE_TIME: True})[1:-1]

Stamp = tuple[int, int]
"""What kind of time a message tells, and which: milliseconds since 1970."""


class MessageDeliveries:
    """Takes in messages of one stream's topics."""

    def __init__(self, stream: Stream, decoder: EventDecoder) -> None:
        self._source: KafkaSource = stream.kafka
        self._decoder = decoder
        self._reader = MessageReader(stream)

    def of(self, messages: Sequence[Message], source: str, partition: int) -> Iterator[Delivered | RecordChunk]:
        """The records of some messages of one partition, in order; `source` is what raw_events calls their topic."""
        if self._reader.reads_together(len(messages)):
            try:
                chunk = self._together(messages, source, partition)
            except UNFORESEEN as error:
                pass_on_intended(error)
                # Of which message it is shows when each is alone.
            else:
                yield chunk
                return
        for message in messages:
            yield from self._alone(message, source, partition)

    def _together(self, messages: Sequence[Message], source: str, partition: int) -> RecordChunk:
        count = len(messages)
        values = pl.Series([message.value() for message in messages], dtype=pl.Binary)
        payloads, contents, contexts = self._reader.together(values)
        stamps = [message.timestamp() for message in messages]
        deliveries = {stamp: self._delivery(stamp) for stamp in set(stamps)}
        return RecordChunk(
            payloads,
            contents,
            contexts=_all_joined(contexts, messages, stamps),
            deliveries=[deliveries[stamp] for stamp in stamps],
            sources=Repeated(source, count),
            partitions=Repeated(partition, count),
            offsets=_run([offset_of(message) for message in messages]),
            indexes=Repeated(0, count),
        )

    def _alone(self, message: Message, source: str, partition: int) -> Iterator[Delivered | RecordChunk]:
        value, offset = message.value(), offset_of(message)
        if value is not None and (batch := self._reader.batch(value)):
            contents, context = batch
            delivery = self._delivery(message.timestamp())
            first = 0
            for some in contents.batches(_joined(context, _facts(message))):
                count = len(some[1])
                offsets, indexes = Repeated(offset, count), range(first, first + count)
                yield RecordChunk.of_batch(some, delivery, source, partition, offsets, indexes)
                first += count
            return
        yield from self._each(message, source, partition)

    def part(self, message: Message, source: str, partition: int) -> Part:
        """The records of one message, read one by one."""

        def rest(last: Delivered | None, reason: str) -> Delivered:
            index = last[2][3] + 1 if last else 0
            payload, _, context = self._reader.rest(message.value() or b"", reason, is_begun=last is not None)
            delivery, place = self._delivery(message.timestamp()), (source, partition, offset_of(message), index)
            return (payload, reason, _joined(context, _facts(message))), delivery, place

        return Part(self._each(message, source, partition), rest)

    def _each(self, message: Message, source: str, partition: int) -> Iterator[Delivered]:
        facts, delivery = _facts(message), self._delivery(message.timestamp())
        value, offset = message.value(), offset_of(message)
        records = [self._reader.tombstone] if value is None else self._reader.records(value)
        for index, (payload, content, context) in enumerate(records):
            yield (payload, content, _joined(context, facts)), delivery, (source, partition, offset, index)

    def _delivery(self, stamp: Stamp) -> Delivery:
        has_append_time = stamp[0] == TIMESTAMP_LOG_APPEND_TIME
        return self._decoder.message_delivery(stamped_at(stamp), self._source.format, has_append_time)


def offset_of(message: Message) -> int:
    """Where a message that was read, or the end of a partition, stands."""
    offset = message.offset()
    assert offset is not None, "a message that was read, and the end of a partition, have an offset"
    return offset


def stamped_at(stamp: Stamp) -> int:
    """The time that a message tells, in microseconds since 1970.

    Producers may stamp with any number: what is no time that a table can hold is the nearest that is.
    """
    return min(max(stamp[1] * _MICROSECONDS, FROM_YEAR_1[0]), FROM_YEAR_1[-1])


def _run(offsets: Sequence[int]) -> Sequence[int]:
    """Growing offsets, as a range if they are one."""
    first, last = offsets[0], offsets[-1]
    return range(first, last + 1) if last - first == len(offsets) - 1 else offsets


def _facts(message: Message) -> str:
    """What a message tells beside its value, as the inside of a JSON object."""
    facts: dict[str, Any] = {}
    if (key := message.key()) is not None:
        try:
            facts["key"] = key.decode()
        except UnicodeDecodeError:
            facts["key_hex"] = key.hex()
    if message.timestamp()[0] == TIMESTAMP_CREATE_TIME:
        facts[CREATE_TIME] = True
    return encoded(facts)[1:-1] if facts else ""


def _joined(context: str, facts: str) -> str:
    return f"{context[:-1]},{facts}}}" if facts else context


def _all_joined(
    contexts: Values[str] | pl.Series, messages: Sequence[Message], stamps: Sequence[Stamp]
) -> Values[str] | pl.Series:
    """The contexts with the facts of each message."""
    keys = pl.Series([message.key() for message in messages], dtype=pl.Binary)
    kinds = {kind for kind, _ in stamps}
    if keys.null_count() == len(keys) and len(kinds) == 1 and isinstance(contexts, Repeated):
        return Repeated(_joined(contexts.value, _facts(messages[0])), len(messages))
    has_create_time = pl.Series([kind == TIMESTAMP_CREATE_TIME for kind, _ in stamps])
    facts = [*_key_facts(keys), pl.when(has_create_time).then(pl.lit("," + _CREATE_TIME))]
    begin = pl.lit(contexts.value) if isinstance(contexts, Repeated) else pl.lit(pl.Series(contexts, dtype=pl.String))
    return pl.select(
        pl.concat_str(begin.str.strip_suffix("}"), *(each.fill_null("") for each in facts), pl.lit("}"))
    ).to_series()


def _key_facts(keys: pl.Series) -> Iterator[pl.Expr]:
    """The facts that tell each key, each with a comma before it; null where there is none."""
    texts = as_texts(keys)
    yield pl.concat_str(pl.lit(',"key":'), pl.lit(quoted_texts(texts)))
    if texts.null_count() > keys.null_count():
        hexes = pl.select(pl.when(texts.is_null()).then(pl.lit(keys.bin.encode("hex")))).to_series()
        yield pl.concat_str(pl.lit(',"key_hex":"'), pl.lit(hexes), pl.lit('"'))
