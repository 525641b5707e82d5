"""Which offsets of a topic come next: what is open, what is lost, and how a batch of it is cut. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

from dedup_platform.errors import ConservationError, LostRecordsError
from dedup_platform.ingest.append import Span
from dedup_platform.sources.kafka import OffsetExtent, Place, Positions, Range, TopicState
from dedup_platform.stream import KafkaSource, Stream

__all__ = [
    "beginning",
    "behind_skipped",
    "bounded",
    "check_offsets",
    "has_skipped",
    "is_accepted",
    "open_ranges",
    "places_behind_losses",
    "tasks",
    "up_to",
    "up_to_skipped",
]

_NEVER_READ = Place(0)
_TASK_BYTES = 48 * 2**20  # a range that is larger is cut, so that several cores can read one partition
_TASKS = 16


def beginning(source: KafkaSource, state: TopicState) -> Positions:
    """Where the reading of a topic begins that was never read: in all of its partitions, also those of other lanes.

    From then on, whatever retention takes before it was read is lost.
    """
    is_first = source.start == "earliest"
    places = {
        number: Place(extent.first if is_first else extent.stable_end) for number, extent in state.extents.items()
    }
    return Positions(source.topic, state.topic_id, places)


def open_ranges(stream: Stream, positions: Positions | None, state: TopicState) -> list[Range]:
    """What is committed and not read yet, of this lane. LostRecordsError if what would come next is gone."""
    source = stream.kafka
    positions = positions or beginning(source, state)
    losses = list(_losses(source, positions, state))
    if losses:
        accept = f"`dedup-platform offsets accept {stream.name}` goes on without it"
        raise LostRecordsError(f"{stream.name}: {'; '.join(losses)}. Nothing is read until a person decides: {accept}")
    found = []
    for number, extent in sorted(state.extents.items()):
        start = positions.places.get(number, _NEVER_READ)
        if source.lane.owns(number) and extent.stable_end > start.offset:
            found.append(Range(number, start, extent.stable_end))
    return found


def places_behind_losses(source: KafkaSource, positions: Positions, state: TopicState) -> dict[int, Place]:
    """Where to go on behind what is lost: offsets that began anew are read from their beginning."""
    if _is_another(positions, state):
        # The topic is another one to all lanes.
        numbers = sorted({*positions.places, *state.extents})
        return {each: _anew(positions.places.get(each, _NEVER_READ), state.extents.get(each)) for each in numbers}
    found = {}
    for number, place in _places(source, positions, state):
        extent = state.extents.get(number)
        if extent is None or extent.end < place.offset:
            if place.offset:
                found[number] = _anew(place, extent)
        elif extent.first > place.offset:
            found[number] = Place(extent.first, place.generation)
    return found


def _losses(source: KafkaSource, positions: Positions, state: TopicState) -> Iterator[str]:
    """What is gone of this lane's partitions, from where to where."""
    topic = f"topic {source.topic}"
    for number, place in _places(source, positions, state):
        extent = state.extents.get(number)
        if _is_another(positions, state):
            what = f"{topic} was deleted and created again"
            yield f"{what}: what followed offset {place.offset - 1} of partition {number} is gone"
        elif extent is None:
            if place.offset:
                yield f"partition {number} of {topic} is gone, from offset {place.offset} on"
        elif extent.end < place.offset:
            what = f"partition {number} of {topic} ends at offset {extent.end}"
            yield f"{what}, but was read up to {place.offset}: its log was cut off or began anew"
        elif extent.first > place.offset:
            yield f"offsets {place.offset} to {extent.first - 1} of partition {number} of {topic} are gone (retention)"


def _places(source: KafkaSource, positions: Positions, state: TopicState) -> Iterator[tuple[int, Place]]:
    """The places in all partitions of this lane, those included that are new."""
    for number in sorted({*positions.places, *state.extents}):
        if source.lane.owns(number):
            yield number, positions.places.get(number, _NEVER_READ)


def _is_another(positions: Positions, state: TopicState) -> bool:
    return positions.topic_id not in (None, state.topic_id)


def _anew(place: Place, extent: OffsetExtent | None) -> Place:
    return Place(extent.first if extent else 0, place.generation + 1)


def up_to(accepted: Mapping[int, Place], each: Range) -> Range:
    """The part of a range that people accepted, if they accepted its beginning; else all of it."""
    place = accepted.get(each.partition, Place(0))
    is_cut = place.generation == each.start.generation and each.start.offset < place.offset < each.end
    return Range(each.partition, each.start, place.offset) if is_cut else each


def is_accepted(accepted: Mapping[int, Place], each: Range) -> bool:
    """Whether people accepted all rejects of a range."""
    place = accepted.get(each.partition, Place(0))
    return place.generation == each.start.generation and each.end <= place.offset


def up_to_skipped(skipped: Iterable[range], each: Range) -> Range:
    """The part of a range that lies before what people had left out; all of it if it begins with that, or has none."""
    ends = [offsets.start for offsets in skipped if each.start.offset < offsets.start < each.end]
    return Range(each.partition, each.start, min(ends, default=each.end))


def behind_skipped(skipped: Iterable[range], each: Range) -> Place:
    """Where to go on in a range that may begin with what people had left out, in order; at its beginning if not."""
    first = each.start.offset
    for offsets in skipped:
        if first in offsets:
            first = min(offsets.stop, each.end)
    return Place(first, each.start.generation)


def has_skipped(skipped: Iterable[range], each: Range) -> bool:
    """Whether a range holds any of what people had left out."""
    return any(offsets.start < each.end and each.start.offset < offsets.stop for offsets in skipped)


def bounded(ranges: Sequence[Range], most: int) -> list[Range]:
    """The beginnings of the ranges, as even as they allow, with `most` offsets together."""
    batch: list[Range] = []
    left = sorted(ranges, key=len)
    for place, each in enumerate(left):
        share = -(-most // (len(left) - place))
        taken = min(len(each), share)
        most -= taken
        if taken:
            batch.append(Range(each.partition, each.start, each.start.offset + taken))
    return sorted(batch, key=lambda each: each.partition)


def tasks(batch: Sequence[Range], size: float) -> list[list[Range]]:
    """The same offsets, divided into tasks of about equal size: a partition may be several, or several be one."""
    total = sum(map(len, batch))
    wanted = min(_TASKS, ceil(total * size / _TASK_BYTES))
    most = max(1, ceil(total / max(1, wanted)))
    cut: list[list[Range]] = [[]]
    free = most
    for each in batch:
        first = each.start.offset
        while first < each.end:
            taken = min(free, each.end - first)
            cut[-1].append(Range(each.partition, Place(first, each.start.generation), first + taken))
            first, free = first + taken, free - taken
            if not free:
                cut.append([])
                free = most
    return cut if cut[-1] else cut[:-1]


def check_offsets(stream: Stream, spans: Iterable[Span], batch: Sequence[Range]) -> None:
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
