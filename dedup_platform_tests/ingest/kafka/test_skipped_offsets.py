"""Offsets of a topic that a person has left out: they are never read, and all others are, once, whatever happens."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dedup_platform.errors import UnknownOffsetsError
from dedup_platform.lake.staged import Staged
from dedup_platform.platform import Platform
from dedup_platform_tests.ingest.kafka.logs import Broker, Log, opened, places, stream_of
from dedup_platform_tests.ingest.kafka.topics import NAME

Open = Callable[..., Platform]


@pytest.fixture
def log() -> Log:
    return Log("log", {0: list(range(6)), 1: [10, 11]})


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log) -> Open:
    """Opens a platform that remembers nothing, with a stream of the log."""
    Broker(monkeypatch, log)
    return lambda **source: opened(tmp_path / "home", stream_of(log, **source))


def skip(platform: Platform, partition: int, *offsets: range) -> None:
    for each in offsets:
        platform.source.skip_offsets(NAME, partition, each)


def read_of(platform: Platform, partition: int) -> list[int]:
    """Offsets of a partition that are in raw, after all that waits was taken in."""
    platform.ingest(NAME)
    assert not platform.source.waiting(NAME).items
    return [offset for _, number, offset in places(platform) if number == partition]


LEFT_OUT = {
    "next": [range(1)],
    "the first ones": [range(3)],
    "in the middle": [range(2, 4)],
    "the last one": [range(5, 6)],
    "all": [range(6)],
    "the next, then one later": [range(1), range(4, 5)],
    "two that touch": [range(2, 3), range(3, 4)],
    "one that touches the next, in another order": [range(1, 3), range(1)],
    "two that overlap": [range(1, 4), range(2, 5)],
    "one inside of another": [range(1, 5), range(2, 3)],
    "the same twice": [range(2, 3), range(2, 3)],
}


@pytest.mark.parametrize("offsets", LEFT_OUT.values(), ids=list(LEFT_OUT))
@pytest.mark.parametrize(("most", "begun"), [(2, False), (1000, True)], ids=["no tables yet", "read before"])
def test_offsets_that_wait_are_left_out_and_all_others_are_read(
    reading: Open, log: Log, offsets: list[range], most: int, begun: bool
) -> None:
    platform = reading(max_batch_records=most)
    before = 2 if begun else 0
    if begun:
        log.events[0][:0] = [20, 21]
        rest, log.events[0] = log.events[0], log.events[0][:2]
        platform.ingest(NAME)
        log.events[0] = rest
    skip(platform, 0, *(range(each.start + before, each.stop + before) for each in offsets))
    left_out = {offset + before for each in offsets for offset in each}
    assert read_of(platform, 0) == [offset for offset in range(len(log.events[0])) if offset not in left_out]
    assert read_of(platform, 1) == [0, 1]
    assert platform.ingest(NAME) == []


WRONG = {
    "read already": (0, range(1, 2)),
    "partly read": (0, range(2, 4)),
    "not there yet": (0, range(6, 7)),
    "partly there": (0, range(5, 7)),
    "of no partition": (7, range(1)),
    "none": (0, range(4, 4)),
}


@pytest.mark.parametrize(("partition", "offsets"), WRONG.values(), ids=list(WRONG))
def test_what_does_not_wait_cannot_be_skipped(reading: Open, log: Log, partition: int, offsets: range) -> None:
    rest, log.events[0] = log.events[0], log.events[0][:3]
    platform = reading()
    platform.ingest(NAME)
    log.events[0] = rest
    with pytest.raises(UnknownOffsetsError, match=r"wait to be read; what waits: partition 0: offsets 3 to 5"):
        platform.source.skip_offsets(NAME, partition, offsets)
    assert platform.source.skipped(NAME) == []


def test_offsets_of_another_lane_cannot_be_skipped(reading: Open) -> None:
    lane = reading(lane={"index": 0, "of": 2})
    with pytest.raises(UnknownOffsetsError):
        skip(lane, 1, range(1))


def test_what_is_skipped_is_told_by_the_lake(reading: Open, tmp_path: Path) -> None:
    platform = reading()
    skip(platform, 0, range(2, 4), range(5, 6))
    for file in (tmp_path / "home").glob("control.db*"):
        file.unlink()
    platform = reading()
    told = ["offsets 2 to 3 of partition 0 of topic log", "offset 5 of partition 0 of topic log"]
    assert platform.source.skipped(NAME) == told
    assert list(platform.status(NAME).skipped) == told
    assert read_of(platform, 0) == [0, 1, 4]
    assert platform.source.skipped(NAME) == told, "also when all around it is read"


def test_skipped_offsets_are_no_loss_once_they_are_gone(reading: Open, log: Log) -> None:
    platform = reading()
    platform.ingest(NAME)
    log.events[0] += [30, 31]
    skip(platform, 0, range(6, 7))
    platform.ingest(NAME)
    log.first[0] = 7
    log.events[0].append(32)
    assert read_of(platform, 0) == [0, 1, 2, 3, 4, 5, 7, 8]


def test_offsets_of_a_topic_that_began_anew_are_others(reading: Open, log: Log) -> None:
    platform = reading()
    platform.ingest(NAME)
    log.events[0] += [30, 31]
    skip(platform, 0, range(6, 7))
    log.topic_id, log.events = "b", {0: list(range(40, 48)), 1: []}
    platform.source.accept_losses(NAME)
    platform.ingest(NAME)
    assert [place for place in places(platform) if place[0] == "log@1"] == [("log@1", 0, each) for each in range(8)]


def test_an_ingest_that_is_at_an_offset_when_it_is_skipped_reads_again_without_it(
    reading: Open, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, other = reading(), reading()
    platform.ingest(NAME)
    log.events[0] += [30, 31, 32]
    publish = platform.lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.setattr(platform.lake, "publish", publish)
        skip(other, 0, range(7, 8))
        publish(staged)

    monkeypatch.setattr(platform.lake, "publish", late)
    assert read_of(platform, 0) == [*range(7), 8]


def test_a_stream_that_fails_at_an_offset_is_tried_at_once_when_that_is_skipped(reading: Open) -> None:
    platform = reading()
    before = platform.source._ingest.change_token(platform.stream(NAME))
    skip(platform, 0, range(3, 4))
    assert platform.source._ingest.change_token(platform.stream(NAME)) != before
