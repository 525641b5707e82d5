"""Takes in a topic: ranges of offsets, with the positions after them in the same commit's summary."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import functions as F

from dedup_platform import tables
from dedup_platform.catalog import ancestry, summary
from dedup_platform.commits import Commit
from dedup_platform.errors import ConflictError, ConservationError, HeldBatchError, SourceError
from dedup_platform.ingest.intake import Intake, buckets_for
from dedup_platform.ingest.ranges import bounded, is_accepted, open_ranges, places_behind_losses, tasks, up_to
from dedup_platform.ingest.waiting import Waiting
from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import EPOCH
from dedup_platform.ledger import Head, Ledger
from dedup_platform.rawwork import Span
from dedup_platform.sources.kafka import Place, Positions, Range, Topic, TopicState, read_ranges
from dedup_platform.sources.kafka.reading import messages_of
from dedup_platform.stream import KafkaAppendTime, Stream

_LOG = logging.getLogger(__name__)

POSITIONS = "positions"
"""The property of a snapshot's summary that holds them."""
ACCEPTED = "accepted"
"""The property that holds positions up to which people accept all rejects."""

_FIRST_BYTES_A_SECOND = 4 * 2**20  # of a process that has not taken in any batch yet
_SAMPLE = 20  # messages that tell about how large they are
_MESSAGE_BYTES = 100.0  # what a message costs beside its value
_REBASES = 20


@dataclass(frozen=True)
class PartitionOffsets:
    """One partition of a topic: the next offset to read, the end of what is committed, and what the group was told."""

    partition: int
    next: int
    end: int
    group: int | None
    generation: int

    @property
    def waiting(self) -> int:
        """Offsets between the two."""
        return max(0, self.end - self.next)


class KafkaIntake(Intake):
    """Appends ranges of a topic's offsets to `raw_events`."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        super().__init__(lake, ledger)
        self._bytes_a_second: dict[str, float] = {}

    def waiting(self, stream: Stream, now: datetime) -> Waiting:  # noqa: ARG002
        """Compare the topic with the positions: a few questions to the brokers."""
        head = self.ledger.sync(stream.name).get(tables.RAW_EVENTS)
        state = self._topic(stream).state()
        _refuse_create_time(stream, state)
        positions = self._positions(stream, head.snapshot_id) if head else None
        if positions is None and stream.kafka.start == "latest":
            return Waiting(("the topic's end, where reading begins",), "0 messages", (), "latest")
        ranges = open_ranges(stream, positions, state)
        messages = sum(map(len, ranges))
        return Waiting(
            items=tuple(map(str, ranges)),
            amount=f"{messages:,} messages",
            reasons=(),
            watermark=" ".join(f"{each.partition}:{each.start.generation}:{each.end}" for each in ranges),
        )

    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Take in the next ranges. Raises LostRecordsError if the topic no longer holds what would come next."""
        topic = self._topic(stream)
        state = topic.state()
        _refuse_create_time(stream, state)
        heads = self._ready(stream)
        positions = self._positions(stream, heads[tables.RAW_EVENTS].snapshot_id) if heads else None
        if positions is None and stream.kafka.start == "latest":
            return self._begin_at_end(stream, state)
        ranges = open_ranges(stream, positions, state)
        if not ranges:
            if positions:
                self._tell_group(stream, topic, positions)
            return None
        accepted = self._accepted(stream, heads)
        ranges = [up_to(accepted, each) for each in ranges]
        size, oldest = self._sample(stream, ranges)
        if not heads:
            partitions = max(1, (now - oldest) / stream.partitions.length)
            heads = self._create(stream, size * sum(map(len, ranges)) / partitions)
        batch = bounded(ranges, self._most(stream, size))
        return self._append(stream, topic, state, heads[tables.RAW_EVENTS], batch, size)

    def accept(self, stream: Stream) -> Commit | None:
        """Go on behind what the topic has lost; where offsets began anew, at their beginning, as a new generation."""
        heads = self._ready(stream)
        positions = self._positions(stream, heads[tables.RAW_EVENTS].snapshot_id) if heads else None
        if positions is None:
            return None
        state = self._topic(stream).state()
        places = places_behind_losses(stream.kafka, positions, state)
        if not places:
            return None
        moved = positions.moved_to(state.topic_id, places)
        return self._commit_positions(stream, heads[tables.RAW_EVENTS], moved, "losses accepted")

    def offsets(self, stream: Stream) -> list[PartitionOffsets]:
        """How far each partition has been read, of all lanes. SourceError if the brokers cannot be asked."""
        head = self.ledger.sync(stream.name).get(tables.RAW_EVENTS)
        positions = self._positions(stream, head.snapshot_id) if head else None
        topic = self._topic(stream)
        extents = topic.state().extents
        told = topic.group_offsets(group_of(stream), extents)
        places = positions.places if positions else {}
        return [
            PartitionOffsets(
                partition=number,
                next=places.get(number, Place(0)).offset,
                end=extent.stable_end,
                group=told.get(number),
                generation=places.get(number, Place(0)).generation,
            )
            for number, extent in sorted(extents.items())
        ]

    def standing(self, stream: Stream) -> str:
        """The places of this lane's partitions, and those that people accepted."""
        heads = self.ledger.sync(stream.name)
        positions = self._positions(stream, heads[tables.RAW_EVENTS].snapshot_id) if heads else None
        own = [each for each in (positions.places if positions else {}).items() if stream.kafka.lane.owns(each[0])]
        return f"{sorted(own)} {sorted(self._accepted(stream, heads).items())}"

    def accept_batch(self, stream: Stream, batch: str) -> Commit:
        """Record in the lake that all up to these offsets may be taken in, whatever share of it is rejected."""
        started = time.monotonic()
        head = self._ready(stream)[tables.RAW_EVENTS].snapshot_id
        properties = {ACCEPTED: batch, "reason": "batch accepted"}
        staged = self.lake.stage_nothing(stream, tables.RAW_EVENTS, head, properties)
        self.lake.publish(staged)
        return self._commit(stream, staged, "batch accepted", started)

    def _accepted(self, stream: Stream, heads: Mapping[str, Head]) -> dict[int, Place]:
        """Up to where people accept all rejects of each partition, as far as snapshots did not expire."""
        accepted: dict[int, Place] = {}
        if heads:
            table = self.lake.catalog.load_table(stream.name, tables.RAW_EVENTS)
            for snapshot in ancestry(table, heads[tables.RAW_EVENTS].snapshot_id):
                text = summary(snapshot, ACCEPTED)
                if text and (positions := Positions.from_text(text)).topic == stream.kafka.topic:
                    accepted = {**positions.places, **accepted}
        return accepted

    def _check_share(self, stream: Stream, state: TopicState, batch: Sequence[Range], spans: Iterable[Span]) -> None:
        """Refuse a batch too much of which would be rejected, but for the ranges whose rejects people accepted."""
        known = self._accepted(stream, self.ledger.sync(stream.name))
        passed = [each for each in batch if is_accepted(known, each)]
        accepted = {(each.start.source(stream.kafka.topic), each.partition) for each in passed}
        if reason := self._hold_back(stream, spans, accepted):
            ends = {each.partition: Place(each.end, each.start.generation) for each in batch}
            raise HeldBatchError(reason, Positions(stream.kafka.topic, state.topic_id, ends).to_text())

    def _topic(self, stream: Stream) -> Topic:
        return Topic(stream.kafka, self._options)

    @property
    def _options(self) -> Mapping[str, str]:
        return self.lake.catalog.settings.kafka

    def _ready(self, stream: Stream) -> dict[str, Head]:
        """The heads of the stream's tables, none if there are none; positions that snapshots lost are derived first."""
        heads = self.ledger.sync(stream.name)
        if heads and self._are_lost(stream, heads[tables.RAW_EVENTS].snapshot_id):
            self._derive_positions(stream, heads[tables.RAW_EVENTS])
            heads = self.ledger.sync(stream.name)
        return heads

    def _positions(self, stream: Stream, snapshot_id: int) -> Positions | None:
        table = self.lake.catalog.load_table(stream.name, tables.RAW_EVENTS)
        told = (summary(snapshot, POSITIONS) for snapshot in ancestry(table, snapshot_id))
        found = (Positions.from_text(text) for text in told if text)
        return next((each for each in found if each.topic == stream.kafka.topic), None)

    def _are_lost(self, stream: Stream, snapshot_id: int) -> bool:
        table = self.lake.catalog.load_table(stream.name, tables.RAW_EVENTS)
        oldest = list(ancestry(table, snapshot_id))[-1]
        return oldest.parent_snapshot_id is not None and self._positions(stream, snapshot_id) is None

    def _derive_positions(self, stream: Stream, head: Head) -> None:
        """Rule 1: if no snapshot tells the positions, the coordinates in raw do, never zero."""
        topic = stream.kafka.topic
        rows = self.lake.read(stream, tables.RAW_EVENTS, head.snapshot_id)
        of_topic = (F.col("source") == topic) | F.col("source").startswith(f"{topic}@")
        newest = rows.where(of_topic).groupBy("source", "source_partition").agg(F.max("source_offset").alias("offset"))
        places: dict[int, Place] = {}
        for row in newest.collect():
            generation = int(row.source.removeprefix(topic).removeprefix("@") or 0)
            if generation >= places.get(row.source_partition, Place(0)).generation:
                places[row.source_partition] = Place(row.offset + 1, generation)
        self._commit_positions(stream, head, Positions(topic, None, places), "derived positions")

    def _begin_at_end(self, stream: Stream, state: TopicState) -> Commit:
        """Where reading begins is a position too: committed at first sight, so that nothing is passed over later."""
        heads = self._ready(stream) or self._create(stream, 0)
        ends = {number: Place(extent.stable_end) for number, extent in state.extents.items()}
        positions = Positions(stream.kafka.topic, state.topic_id, ends)
        return self._commit_positions(stream, heads[tables.RAW_EVENTS], positions, "begins at the end")

    def _create(self, stream: Stream, bytes_a_partition: float) -> dict[str, Head]:
        self.lake.create(stream, stream.buckets or buckets_for(bytes_a_partition))
        return self._ready(stream)

    def _commit_positions(self, stream: Stream, head: Head, positions: Positions, reason: str) -> Commit:
        started = time.monotonic()
        properties = {POSITIONS: positions.to_text(), "reason": reason}
        staged = self.lake.stage_nothing(stream, tables.RAW_EVENTS, head.snapshot_id, properties)
        self.lake.publish(staged)
        return self._commit(stream, staged, reason, started)

    def _append(
        self, stream: Stream, topic: Topic, state: TopicState, head: Head, batch: Sequence[Range], size: float
    ) -> Commit:
        started = time.monotonic()
        positions = self._after(stream, head.snapshot_id, state, batch)
        cut = tasks(batch, size)
        read = partial(read_ranges, stream, cut, dict(self._options))
        properties = {POSITIONS: positions.to_text(), "reason": "ingest"}
        staged, spans = self._stage(stream, head, len(cut), read, properties)
        try:
            self._count_records(staged, spans)
            _check_offsets(stream, spans, batch)
            self._check_share(stream, state, batch, spans)
        except Exception:
            self.lake.discard(staged)
            raise
        staged = self._publish(stream, staged, state, batch)
        seconds = time.monotonic() - started
        self._bytes_a_second[stream.name] = sum(map(len, batch)) * size / seconds
        done = self._commit(stream, staged, f"{sum(map(len, batch))} offsets", started, spans)
        self._tell_group(stream, topic, self._positions(stream, staged.snapshot_id))
        return done

    def _after(self, stream: Stream, snapshot_id: int, state: TopicState, batch: Sequence[Range]) -> Positions:
        """The positions after a batch: those of the snapshot that it builds on, of all lanes, moved on."""
        before = self._positions(stream, snapshot_id) or Positions(stream.kafka.topic, state.topic_id, {})
        places = {each.partition: Place(each.end, each.start.generation) for each in batch}
        return before.moved_to(state.topic_id, places)

    def _publish(self, stream: Stream, staged: Staged, state: TopicState, batch: Sequence[Range]) -> Staged:
        """Publish; if only others committed meanwhile (another lane, a replay), put the same files on top of theirs."""
        for _ in range(_REBASES):
            try:
                self.lake.publish(staged)
            except ConflictError:
                head = self.ledger.sync(stream.name)[tables.RAW_EVENTS].snapshot_id
                now = self._positions(stream, head)
                places = now.places if now else {}
                if any(places.get(each.partition, each.start) != each.start for each in batch):
                    raise
                properties = {POSITIONS: self._after(stream, head, state, batch).to_text(), "reason": "ingest"}
                staged = self.lake.rebase(stream, staged, head, properties)
            else:
                return staged
        raise ConflictError(f"{stream.name}: other writers committed first {_REBASES} times in a row. Run again.")

    def _tell_group(self, stream: Stream, topic: Topic, positions: Positions | None) -> None:
        """Copy the positions to the consumer group, for those who watch its lag; what it says decides nothing."""
        group = group_of(stream)
        own = {number: place.offset for number, place in (positions.places if positions else {}).items()}
        own = {number: offset for number, offset in own.items() if stream.kafka.lane.owns(number)}
        try:
            if own and topic.group_offsets(group, own) != own:
                topic.commit_group(group, own)
        except SourceError as error:
            _LOG.warning("%s: the offsets of the consumer group %s are not up to date: %s", stream.name, group, error)

    def _sample(self, stream: Stream, ranges: Sequence[Range]) -> tuple[float, datetime]:
        """About how many bytes a message has, and when the first came, by the beginning of the longest range."""
        longest = max(ranges, key=len)
        start = longest.start
        few = Range(longest.partition, start, min(longest.end, start.offset + _SAMPLE))
        found = list(messages_of(stream.kafka, self._options, few))
        if not found:
            return _MESSAGE_BYTES, datetime.now(UTC)
        size = sum(len(message.value() or b"") + _MESSAGE_BYTES for message in found) / len(found)
        return size, EPOCH + timedelta(milliseconds=min(message.timestamp()[1] for message in found))

    def _most(self, stream: Stream, size: float) -> int:
        """How many messages of about this size a batch may read."""
        source = stream.kafka
        speed = self._bytes_a_second.get(stream.name, _FIRST_BYTES_A_SECOND)
        in_time = speed * source.transaction_timeout.total_seconds()
        return max(1, min(source.max_batch_records, int(min(source.max_batch_bytes, in_time) / size)))


def group_of(stream: Stream) -> str:
    """The consumer group that is told the positions of a stream."""
    return stream.kafka.group or f"dedup_platform.{stream.name}"


def _refuse_create_time(stream: Stream, state: TopicState) -> None:
    if isinstance(stream.arrival_time, KafkaAppendTime) and not state.stamps_append_time:
        raise SourceError(
            f"topic {stream.kafka.topic}",
            "its messages are stamped with CreateTime, their producers' clocks, so it does not tell when they arrived: "
            "set its message.timestamp.type to LogAppendTime, or name the field that tells in fields.arrival_time",
        )


def _check_offsets(stream: Stream, spans: Iterable[Span], batch: Sequence[Range]) -> None:
    """Every record is from a range of this batch; offsets without a record are no error, they need not hold any."""
    topic = stream.kafka.topic
    asked = {(each.start.source(topic), each.partition): (each.start.offset, each.end) for each in batch}
    for span in spans:
        start, end = asked.get((span.source, span.source_partition), (0, 0))
        if not start <= span.first_offset <= span.last_offset < end:
            raise ConservationError(
                f"{stream.name}: partition {span.source_partition} gave the offsets {span.first_offset} to "
                f"{span.last_offset} for the range from {start} to {end - 1}. Nothing was published."
            )
