"""Which offsets come next: every open one once, and nothing that is lost is passed over without a word."""

from collections.abc import Mapping

import pytest
from hypothesis import given, strategies as st

from dedup_platform.errors import LostRecordsError
from dedup_platform.ingest.offset_ranges import bounded, open_ranges, places_behind_losses, tasks
from dedup_platform.sources.kafka import OffsetExtent, Place, Positions, Range, TopicState
from dedup_platform.stream import Lane, Stream

STREAM = Stream.model_validate(
    {
        "name": "clicks",
        "source": {"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "clicks", "format": "json"},
        "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"},
        "partitions": {"granularity": "day", "start": "2026-01-01"},
        "sessions": {"timeout": "30m"},
    }
)

EXTENTS = st.tuples(*[st.integers(0, 50)] * 3).map(lambda each: OffsetExtent(*sorted(each)))
STATES = st.builds(
    TopicState, st.sampled_from("ab"), st.just(value=True), st.dictionaries(st.integers(0, 5), EXTENTS, min_size=1)
)
PLACES = st.dictionaries(st.integers(0, 5), st.builds(Place, st.integers(0, 50), st.integers(0, 2)))
POSITIONS = st.builds(Positions, st.just("clicks"), st.sampled_from(["a", "b", None]), PLACES)
RANGES = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 100), st.integers(1, 500))).map(
    lambda found: [Range(number, Place(first), first + length) for number, (first, length) in sorted(found.items())]
)


def stream(**source: object) -> Stream:
    return STREAM.model_copy(update={"source": STREAM.kafka.model_copy(update=source)})


def state(extents: Mapping[int, tuple[int, int, int]], topic_id: str = "a") -> TopicState:
    return TopicState(topic_id, True, {number: OffsetExtent(*extent) for number, extent in extents.items()})


def positions(offsets: Mapping[int, int], topic_id: str | None = "a") -> Positions:
    return Positions("clicks", topic_id, {number: Place(offset) for number, offset in offsets.items()})


def offsets(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(each.partition, offset) for each in ranges for offset in range(each.start.offset, each.end)]


def lost(known: Positions, now: TopicState, **source: object) -> str:
    with pytest.raises(LostRecordsError) as caught:
        open_ranges(stream(**source), known, now)
    return str(caught.value)


def test_what_is_committed_and_not_read_is_open() -> None:
    now = state({0: (0, 5, 9), 1: (0, 3, 3), 2: (2, 4, 4)})
    assert open_ranges(STREAM, None, now) == [Range(0, Place(0), 5), Range(1, Place(0), 3), Range(2, Place(2), 4)]
    assert open_ranges(STREAM, positions({0: 4, 1: 3, 2: 2}), now) == [Range(0, Place(4), 5), Range(2, Place(2), 4)]


def test_a_partition_that_is_new_is_read_from_0() -> None:
    assert open_ranges(STREAM, positions({0: 1}), state({0: (0, 1, 1), 1: (0, 2, 2)})) == [Range(1, Place(0), 2)]
    assert "offsets 0 to 4 of partition 1 of topic clicks are gone" in lost(
        positions({0: 1}), state({0: (0, 1, 1), 1: (5, 7, 7)})
    )


def test_retention_that_took_nothing_unread_is_no_loss() -> None:
    assert open_ranges(STREAM, positions({0: 5}), state({0: (5, 6, 6)})) == [Range(0, Place(5), 6)]
    assert "offsets 5 to 5 of" in lost(positions({0: 5}), state({0: (6, 6, 6)}))


def test_a_log_that_ends_before_what_was_read() -> None:
    assert "partition 0 of topic clicks ends at offset 4, but was read up to 5" in lost(
        positions({0: 5}), state({0: (0, 4, 4)})
    )
    assert open_ranges(STREAM, positions({0: 5}), state({0: (0, 4, 5)})) == []


def test_a_topic_that_began_anew_is_another_one_to_every_lane() -> None:
    known, now = positions({0: 5, 1: 7}), state({0: (0, 9, 9), 1: (0, 9, 9)}, "b")
    told = lost(known, now, lane=Lane(index=1, of=2))
    assert "what followed offset 6 of partition 1 is gone" in told
    assert "partition 0" not in told
    places = places_behind_losses(stream(lane=Lane(index=1, of=2)).kafka, known, now)
    assert places == {0: Place(0, 1), 1: Place(0, 1)}


def test_a_partition_that_is_gone_can_be_given_up() -> None:
    known, now = positions({0: 5, 1: 7}), state({0: (0, 5, 5)})
    assert "partition 1 of topic clicks is gone, from offset 7 on" in lost(known, now)
    behind = known.moved_to("a", places_behind_losses(STREAM.kafka, known, now))
    assert open_ranges(STREAM, behind, now) == []


@given(known=POSITIONS, now=STATES)
def test_behind_its_losses_a_stream_goes_on(known: Positions, now: TopicState) -> None:
    places = places_behind_losses(STREAM.kafka, known, now)
    open_ranges(STREAM, known.moved_to(now.topic_id, places), now)
    try:
        open_ranges(STREAM, known, now)
    except LostRecordsError:
        assert places
    else:
        assert not places


@given(now=STATES, lanes=st.integers(1, 4))
def test_lanes_share_what_is_open(now: TopicState, lanes: int) -> None:
    shared = [open_ranges(stream(lane=Lane(index=index, of=lanes)), None, now) for index in range(lanes)]
    assert sorted(offsets([each for lane in shared for each in lane])) == offsets(open_ranges(STREAM, None, now))


@given(ranges=RANGES, most=st.integers(1, 2000))
def test_a_batch_is_the_beginnings_of_the_ranges(ranges: list[Range], most: int) -> None:
    batch = bounded(ranges, most)
    assert sum(map(len, batch)) == min(most, sum(map(len, ranges)))
    starts = {each.partition: each.start for each in ranges}
    assert all(each.start == starts[each.partition] for each in batch)
    taken = {each.partition: len(each) for each in batch}
    cut = [taken.get(each.partition, 0) for each in ranges if taken.get(each.partition, 0) < len(each)]
    assert max(cut, default=0) - min(cut, default=0) <= 1


@given(ranges=RANGES, size=st.sampled_from([1.0, 100.0, 50_000.0, 10_000_000.0]))
def test_tasks_hold_every_offset_once(ranges: list[Range], size: float) -> None:
    cut = tasks(ranges, size)
    assert offsets([each for task in cut for each in task]) == offsets(ranges)
    assert len(cut) <= 17
    assert all(task for task in cut)
