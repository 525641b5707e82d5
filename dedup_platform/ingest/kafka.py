"""Takes in a topic: ranges of offsets, with the positions after them in the same commit's receipt."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from dedup_platform import tables
from dedup_platform.errors import ConflictError, HeldBatchError, SourceChangedError, SourceError, UnknownOffsetsError
from dedup_platform.ingest.append import Span
from dedup_platform.ingest.batch_sizes import first_stamp, most, sample
from dedup_platform.ingest.intake import Intake, buckets_for
from dedup_platform.ingest.kafka_offsets import Standings
from dedup_platform.ingest.offset_ranges import (
    beginning,
    behind_skipped,
    bounded,
    check_offsets,
    has_skipped,
    is_accepted,
    open_ranges,
    places_behind_losses,
    tasks,
    up_to,
    up_to_skipped,
)
from dedup_platform.ingest.one_by_one import Inputs
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import PositionsReceipt, SummaryValues, new_receipt_name
from dedup_platform.lake.snapshots import POSITIONS
from dedup_platform.lake.staged import Staged
from dedup_platform.ledger import Head, Ledger
from dedup_platform.sources.kafka import (
    Place,
    Positions,
    Range,
    Skipped,
    Standing,
    Topic,
    TopicState,
    ranges_of_task,
    read_ranges,
)
from dedup_platform.stream import KafkaAppendTime, Stream

_LOG = logging.getLogger(__name__)

_REBASES = 20
_LOOKED_AT, _FEW = 3, 300
"""Partitions, and messages of each, that are looked at before anything is taken in."""


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
        self._standings = Standings(lake)
        self._speeds: dict[str, float] = {}

    def waiting(self, stream: Stream, now: datetime) -> Waiting:  # noqa: ARG002
        """Compare the topic with the positions: a few questions to the brokers."""
        positions = self._positions(stream, self._standing(stream, self.ledger.sync(stream.name)))
        state = self._topic(stream).state()
        _refuse_create_time(stream, state)
        if positions is None and stream.kafka.start == "latest":
            return Waiting(("the topic's end, where reading begins",), "0 messages", (), "latest")
        ranges = open_ranges(stream, positions, state)
        messages = sum(map(len, ranges))
        return Waiting(
            items=tuple(map(str, ranges)),
            amount=f"{messages:,} messages",
            reasons=(),
            watermark=" ".join(f"{each.partition}:{each.start.generation}:{each.end}" for each in ranges),
            # Producers' clocks may tell anything.
            since=first_stamp(stream.kafka, self._options, ranges) if state.stamps_append_time else None,
        )

    def first_inputs(self, stream: Stream, now: datetime) -> list[Inputs]:  # noqa: ARG002
        """The first messages that wait in a few partitions."""
        positions = self._positions(stream, self._standing(stream, self.ledger.sync(stream.name)))
        waiting = open_ranges(stream, positions, self._topic(stream).state())[:_LOOKED_AT]
        few = [replace(each, end=min(each.end, each.start.offset + _FEW)) for each in waiting]
        how = (dict(self._options), self.lake.catalog.settings.registry_login)
        return [partial(ranges_of_task, stream, [[each]], *how) for each in few]

    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Take in the next ranges. Raises LostRecordsError if the topic no longer holds what would come next."""
        topic = self._topic(stream)
        state = topic.state()
        _refuse_create_time(stream, state)
        heads, standing = self._ready(stream)
        known = self._positions(stream, standing)
        before = standing.at(known or beginning(stream.kafka, state))
        if known is None and stream.kafka.start == "latest":
            # Where reading begins is a position too: committed at first sight, so that nothing is passed over later.
            if not heads:
                return self._create(stream, 0, now)
            return self._commit_standing(stream, heads[tables.RAW_EVENTS], before, "begins at the end")
        ranges = open_ranges(stream, self._positions(stream, before), state)
        if not ranges:
            self._tell_group(stream, topic, known)
            return None
        behind = [(each, behind_skipped(_skipped(stream, standing, each), each)) for each in ranges]
        if places := {each.partition: place for each, place in behind if place != each.start}:
            return self._move_to(stream, heads[tables.RAW_EVENTS], before, state, places, "behind skipped offsets")
        accepted = standing.accepted_of(stream.kafka.topic)
        ranges = [up_to_skipped(_skipped(stream, standing, each), up_to(accepted, each)) for each in ranges]
        size, oldest = sample(stream.kafka, self._options, ranges)
        if not heads:
            partitions = max(1, (now - oldest) / stream.partitions.length)
            return self._create(stream, size * sum(map(len, ranges)) / partitions, now)
        batch = bounded(ranges, most(stream.kafka, size, self._speeds.get(stream.name)))
        commit = self._append(stream, topic, state, heads[tables.RAW_EVENTS], before, batch, size)
        messages = sum(map(len, batch))
        self._tell(stream, "messages", messages, sum(map(len, ranges)) - messages)
        return commit

    def accept(self, stream: Stream) -> Commit | None:
        """Go on behind what the topic has lost; where offsets began anew, at their beginning, as a new generation."""
        heads, standing = self._ready(stream)
        positions = self._positions(stream, standing)
        if positions is None:
            return None
        state = self._topic(stream).state()
        places = places_behind_losses(stream.kafka, positions, state)
        if not places:
            return None
        return self._move_to(stream, heads[tables.RAW_EVENTS], standing, state, places, "losses accepted")

    def skip(self, stream: Stream, partition: int, offsets: range) -> Commit:
        """Record in the lake that these offsets are never to be read, whether or not they are next.

        UnknownOffsetsError if they are read already, of another lane, or not in the topic (yet).
        """
        topic, state = stream.kafka.topic, self._topic(stream).state()
        heads, standing = self._ready(stream)
        if not heads:
            self.lake.create(stream, stream.buckets or 1)
            heads, standing = self._ready(stream)
        standing = standing.at(self._positions(stream, standing) or beginning(stream.kafka, state))
        waiting = open_ranges(stream, self._positions(stream, standing), state)
        place = next((each for each in waiting if each.partition == partition), None)
        if place is None or not offsets or not place.start.offset <= offsets.start < offsets.stop <= place.end:
            raise UnknownOffsetsError(
                f"{stream.name}: partition {partition} of topic {topic}: not all of the offsets {offsets.start} to "
                f"{offsets.stop - 1} wait to be read; what waits: {', '.join(map(str, waiting)) or 'nothing'}"
            )
        skipped = Skipped(topic, partition, place.start.generation, offsets.start, offsets.stop)
        return self._commit_standing(stream, heads[tables.RAW_EVENTS], standing.skipping([skipped]), "skipped")

    def skipped(self, stream: Stream) -> list[str]:
        """What people had left out, in words."""
        return [str(each) for each in self._standing(stream, self.ledger.sync(stream.name)).skipped]

    def offsets(self, stream: Stream) -> list[PartitionOffsets]:
        """How far each partition has been read, of all lanes. SourceError if the brokers cannot be asked."""
        known = self._positions(stream, self._standing(stream, self.ledger.sync(stream.name)))
        topic = self._topic(stream)
        state = topic.state()
        extents = state.extents
        told = topic.group_offsets(group_of(stream), extents)
        places = (known or beginning(stream.kafka, state)).places
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

    def change_token(self, stream: Stream) -> str:
        """The places of this lane's partitions, and those that people accepted."""
        standing = self._standing(stream, self.ledger.sync(stream.name))
        positions = self._positions(stream, standing)
        own = [each for each in (positions.places if positions else {}).items() if stream.kafka.lane.owns(each[0])]
        return f"{sorted(own)} {sorted(standing.accepted_of(stream.kafka.topic).items())} {standing.skipped}"

    def accept_batch(self, stream: Stream, batch: str, now: datetime) -> Commit:  # noqa: ARG002
        """Record in the lake that all up to these offsets may be taken in, whatever share of it is rejected."""
        heads, standing = self._ready(stream)
        accepting = standing.accepting(Positions.from_text(batch))
        return self._commit_standing(stream, heads[tables.RAW_EVENTS], accepting, "batch accepted")

    def _check_share(self, stream: Stream, state: TopicState, batch: Sequence[Range], spans: Iterable[Span]) -> None:
        """Refuse a batch too much of which would be rejected, but for the ranges whose rejects people accepted."""
        known = self._standing(stream, self.ledger.sync(stream.name)).accepted_of(stream.kafka.topic)
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

    def _ready(self, stream: Stream) -> tuple[dict[str, Head], Standing]:
        """The heads of the stream's tables, none if there are none, and the standing as of them.

        Positions that are no longer told are derived first, and committed.
        """
        heads = self.ledger.sync(stream.name)
        standing = self._standing(stream, heads)
        if heads and self._positions(stream, standing) is None:
            head = heads[tables.RAW_EVENTS]
            if found := self._standings.found_again(stream, head.snapshot_id):
                self._commit_standing(stream, head, found, "derived positions")
                heads = self.ledger.sync(stream.name)
                standing = self._standing(stream, heads)
        return heads, standing

    def _standing(self, stream: Stream, heads: Mapping[str, Head]) -> Standing:
        return self._standings.at(stream, heads[tables.RAW_EVENTS].snapshot_id) if heads else Standing()

    def _positions(self, stream: Stream, standing: Standing) -> Positions | None:
        return standing.positions.get(stream.kafka.topic)

    def _create(self, stream: Stream, bytes_a_partition: float, now: datetime) -> Commit | None:
        """Create the tables, and look again: another ingest may have created them, and taken in what we saw."""
        self.lake.create(stream, stream.buckets or buckets_for(bytes_a_partition))
        return self.next_batch(stream, now)

    def _move_to(
        self, stream: Stream, head: Head, standing: Standing, state: TopicState, places: Mapping[int, Place], why: str
    ) -> Commit:
        """Go on at these places, without what lies before them."""
        positions = standing.positions[stream.kafka.topic]
        return self._commit_standing(stream, head, standing.at(positions.moved_to(state.topic_id, places)), why)

    def _commit_standing(self, stream: Stream, head: Head, standing: Standing, reason: str) -> Commit:
        started = time.monotonic()
        name = new_receipt_name()
        properties: SummaryValues = {POSITIONS: name, "reason": reason}
        staged = self.lake.stage_nothing(stream, tables.RAW_EVENTS, head.snapshot_id, properties)
        self._publish(stream, staged, name, standing, standing)
        return self._commit(stream, staged, reason, started)

    def _append(
        self,
        stream: Stream,
        topic: Topic,
        state: TopicState,
        head: Head,
        before: Standing,
        batch: Sequence[Range],
        size: float,
    ) -> Commit:
        started = time.monotonic()
        cut = tasks(batch, size)
        how = (stream, cut, dict(self._options), self.lake.catalog.settings.registry_login)
        read, inputs = partial(read_ranges, *how), partial(ranges_of_task, *how)
        name = new_receipt_name()
        staged, spans = self._stage(stream, head, len(cut), read, inputs, {POSITIONS: name, "reason": "ingest"})
        try:
            self._count_records(staged, spans)
            check_offsets(stream, spans, batch)
            _check_same(stream, topic, state)
            self._check_share(stream, state, batch, spans)
        except Exception:
            self.lake.discard(staged)
            raise
        staged, after = self._publish_batch(stream, staged, name, before, state, batch)
        seconds = time.monotonic() - started
        self._speeds[stream.name] = sum(map(len, batch)) * size / seconds
        done = self._commit(stream, staged, f"{sum(map(len, batch))} offsets", started, spans)
        self._tell_group(stream, topic, self._positions(stream, after))
        return done

    def _publish_batch(
        self, stream: Stream, staged: Staged, name: str, before: Standing, state: TopicState, batch: Sequence[Range]
    ) -> tuple[Staged, Standing]:
        """Publish; if only others committed meanwhile (another lane, a replay), put the same files on top of theirs."""
        for _ in range(_REBASES):
            after = self._after(stream, before, state, batch)
            try:
                self._publish(stream, staged, name, before, after)
            except ConflictError:
                heads = self.ledger.sync(stream.name)
                before = self._standing(stream, heads)
                if not self._follows(stream, before, batch):
                    raise
                name = new_receipt_name()
                properties: SummaryValues = {POSITIONS: name, "reason": "ingest"}
                staged = self.lake.rebase(stream, staged, heads[tables.RAW_EVENTS].snapshot_id, properties)
            else:
                return staged, after
        raise ConflictError(f"{stream.name}: other writers committed first {_REBASES} times in a row. Run again.")

    def _publish(self, stream: Stream, staged: Staged, name: str, before: Standing, after: Standing) -> None:
        """Publish with the receipt that the staged snapshot names. `before` is where the stream stood without it."""
        self.lake.catalog.write_receipt(stream.name, PositionsReceipt(name=name, **after.to_value()))
        properties = self._standings.table_properties(stream, staged.base, before)
        self.lake.publish(replace(staged, table_properties=properties))

    def _after(self, stream: Stream, before: Standing, state: TopicState, batch: Sequence[Range]) -> Standing:
        """Where the stream stands after a batch: where it was, in all lanes, and moved on."""
        positions = before.positions[stream.kafka.topic]
        places = {each.partition: Place(each.end, each.start.generation) for each in batch}
        return before.at(positions.moved_to(state.topic_id, places))

    def _follows(self, stream: Stream, standing: Standing, batch: Sequence[Range]) -> bool:
        """Whether a batch is what comes next of its partitions, and nobody had any of it left out meanwhile."""
        positions = self._positions(stream, standing)
        places = positions.places if positions else {}
        is_next = positions is not None and all(places.get(each.partition, Place(0)) == each.start for each in batch)
        return is_next and not any(has_skipped(_skipped(stream, standing, each), each) for each in batch)

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


def _check_same(stream: Stream, topic: Topic, state: TopicState) -> None:
    """Refuse what may have been read of a topic of the same name that took the place of the one that was looked at."""
    if topic.id_now() not in (None, state.topic_id):
        raise SourceChangedError(
            f"{stream.name}: topic {stream.kafka.topic} was deleted and created again while it was read; nothing of "
            "it was taken in. Run again."
        )


def group_of(stream: Stream) -> str:
    """The consumer group that is told the positions of a stream."""
    return stream.kafka.group or f"dedup_platform.{stream.name}"


def _skipped(stream: Stream, standing: Standing, each: Range) -> list[range]:
    return standing.skipped_of(stream.kafka.topic, each.partition, each.start.generation)


def _refuse_create_time(stream: Stream, state: TopicState) -> None:
    if isinstance(stream.arrival_time, KafkaAppendTime) and not state.stamps_append_time:
        raise SourceError(
            f"topic {stream.kafka.topic}",
            "its messages are stamped with CreateTime, their producers' clocks, so it does not tell when they arrived: "
            "set its message.timestamp.type to LogAppendTime, or name the field that tells in fields.arrival_time",
        )
