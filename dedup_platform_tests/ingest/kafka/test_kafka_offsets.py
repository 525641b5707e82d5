"""Where a stream stands in its topics, whatever of the lake is lost: nothing is read twice, nothing is passed over."""

import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform.errors import ConflictError, LostRecordsError
from dedup_platform.ingest.kafka_offsets import TOPICS
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.layout import Layout
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import SUMMARY, head
from dedup_platform.lake.staged import Staged
from dedup_platform.maintenance.upkeep import Maintenance
from dedup_platform.platform import Platform
from dedup_platform.sources.kafka import Place, Positions
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform_tests.ingest.kafka.logs import Broker, Log, opened, places, stream_of
from dedup_platform_tests.ingest.kafka.topics import NAME, START
from dedup_platform_tests.variants import some

Open = Callable[..., Platform]


@pytest.fixture
def one() -> Log:
    return Log("one", {0: [0, 1, 2], 1: [3]})


@pytest.fixture
def two() -> Log:
    return Log("two", {0: [10, 11, 12, 13, 14]})


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: Log, two: Log) -> Open:
    """Opens a platform that remembers nothing, with a stream of one of the logs."""
    Broker(monkeypatch, one, two)
    return lambda log, **source: opened(tmp_path / "home", stream_of(log, **source))


# Another topic


@pytest.mark.parametrize("expired", some([False, True], quick=[True]))
def test_another_topic_begins_as_the_stream_says_also_when_history_has_expired(
    reading: Open, one: Log, two: Log, expired: bool
) -> None:
    reading(one).ingest(NAME)
    if expired:
        expire(reading(one))
    platform = reading(two, start="latest")
    platform.ingest(NAME)
    assert places(platform) == rows_of(one)
    two.events[0].append(15)
    platform.ingest(NAME)
    assert places(platform) == [*rows_of(one), ("two", 0, 5)]


@pytest.mark.parametrize("expired", some([False, True], quick=[True]))
def test_another_topic_of_which_retention_took_the_beginning_has_lost_nothing_yet(
    reading: Open, one: Log, two: Log, expired: bool
) -> None:
    reading(one).ingest(NAME)
    if expired:
        expire(reading(one))
    two.first = {0: 2}
    platform = reading(two)
    platform.ingest(NAME)
    assert places(platform) == [*rows_of(one), ("two", 0, 2), ("two", 0, 3), ("two", 0, 4)]


@pytest.mark.parametrize(
    "lost", some([(), ("history",), ("receipts",), ("history", "receipts")], quick=[(), ("history", "receipts")])
)
def test_another_topic_and_back(reading: Open, one: Log, two: Log, lost: tuple[str, ...], tmp_path: Path) -> None:
    reading(one, start="latest").ingest(NAME)
    one.events[0].append(20)
    reading(one).ingest(NAME)
    reading(two).ingest(NAME)
    lose(lost, reading(two), tmp_path)
    one.events[0].append(21)
    one.events[1].append(22)
    platform = reading(one)
    platform.ingest(NAME)
    assert places(platform) == [("one", 0, 3), ("one", 0, 4), ("one", 1, 1), *rows_of(two)]
    assert platform.ingest(NAME) == []


# What is lost


@pytest.mark.parametrize(
    "lost", some([("history",), ("receipts",), ("history", "receipts")], quick=[("history", "receipts")])
)
def test_a_topic_that_was_begun_at_its_end_goes_on_from_there(
    reading: Open, one: Log, lost: tuple[str, ...], tmp_path: Path
) -> None:
    reading(one, start="latest").ingest(NAME)
    lose(lost, reading(one), tmp_path)
    one.events[1].append(20)
    platform = reading(one, start="latest")
    platform.ingest(NAME)
    assert places(platform) == [("one", 1, 1)]


def test_what_is_lost_is_told_again_once(reading: Open, one: Log, tmp_path: Path) -> None:
    reading(one).ingest(NAME)
    lose(("receipts",), reading(one), tmp_path)
    reading(one).ingest(NAME)
    before = newest(reading(one)).snapshot_id
    assert reading(one).ingest(NAME) == []
    assert newest(reading(one)).snapshot_id == before


def test_a_topic_that_was_created_again_stays_known_as_another_one(reading: Open, one: Log, tmp_path: Path) -> None:
    reading(one).ingest(NAME)
    one.topic_id, one.events = "b", {0: [30, 31, 32, 33, 34], 1: []}
    reading(one).source.accept_losses(NAME)
    lose(("history", "receipts"), reading(one), tmp_path)
    platform = reading(one)
    platform.ingest(NAME)
    assert places(platform)[4:] == [("one@1", 0, offset) for offset in range(5)]
    one.topic_id = "c"
    with pytest.raises(LostRecordsError, match="topic one was deleted and created again"):
        platform.ingest(NAME)


def test_a_partition_that_came_later_is_read_from_0_whatever_is_lost(reading: Open, one: Log, tmp_path: Path) -> None:
    reading(one, start="latest").ingest(NAME)
    one.events[2] = [40]
    lose(("history", "receipts"), reading(one), tmp_path)
    platform = reading(one, start="latest")
    platform.ingest(NAME)
    assert places(platform) == [("one", 2, 0)]


@pytest.mark.parametrize("most", [1, 1000])
def test_partitions_that_a_first_batch_leaves_out_are_begun_with_it(reading: Open, one: Log, most: int) -> None:
    one.events[2], one.first = [50, 51], {0: 1, 1: 1, 2: 2}
    platform = reading(one, max_batch_records=most)
    platform.ingest(NAME)
    assert places(platform) == [("one", 0, 1), ("one", 0, 2)]
    one.first[1] = 2
    one.events[1].append(52)
    with pytest.raises(LostRecordsError, match="offsets 1 to 1 of partition 1"):
        platform.ingest(NAME)


# Tables that were rolled back


def test_positions_are_rolled_back_with_the_rows(reading: Open, one: Log) -> None:
    platform = reading(one)
    platform.ingest(NAME)
    before = newest(platform)
    one.events[0].append(60)
    platform.ingest(NAME)
    roll_back(platform, before)
    platform.ingest(NAME)
    assert places(platform) == rows_of(one)


def test_before_its_first_commit_a_topic_is_read_from_where_it_was_begun(reading: Open, one: Log) -> None:
    platform = reading(one, start="latest")
    platform.lake.create(platform.stream(NAME), 2)
    before = newest(platform)
    platform.ingest(NAME)
    one.events[0].append(60)
    platform.ingest(NAME)
    roll_back(platform, before)
    platform.ingest(NAME)
    assert places(platform) == [("one", 0, 3)]


def test_a_batch_is_not_put_on_top_of_a_table_that_was_rolled_back_meanwhile(
    reading: Open, one: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = reading(one)
    platform.lake.create(platform.stream(NAME), 2)
    before = newest(platform)
    platform.ingest(NAME)
    one.events[0].append(60)
    publish = platform.lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.setattr(platform.lake, "publish", publish)
        roll_back(reading(one), before)
        publish(staged)

    monkeypatch.setattr(platform.lake, "publish", late)
    platform.ingest(NAME)
    assert places(platform) == rows_of(one)


# What commits carry


def test_a_summary_is_as_long_whatever_the_number_of_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = []
    for count in (1, 300):
        log = Log(f"topic-{count:03}", {number: [number] for number in range(count)})
        Broker(monkeypatch, log)
        platform = opened(tmp_path / str(count), stream_of(log))
        platform.ingest(NAME)
        stream = platform.stream(NAME)
        batch = Positions(log.name, "a", dict.fromkeys(log.events, Place(5))).to_text()
        platform.source._ingest.accept_batch(stream, batch, platform.clock())
        log.topic_id = "b"
        platform.source.accept_losses(NAME)
        shutil.rmtree(tmp_path / str(count) / "warehouse" / NAME / "receipts")
        opened(tmp_path / str(count), stream).ingest(NAME)
        told = [told_by(each) for each in table(platform).metadata.snapshots]
        assert {each[f"{SUMMARY}reason"] for each in told if each} == {
            "ingest",
            "batch accepted",
            "losses accepted",
            "derived positions",
        }
        lengths.append(max(len(json.dumps(each)) for each in told))
    assert lengths[0] == lengths[1] < 150


def test_only_what_is_new_of_a_topic_changes_the_table_s_own_properties(reading: Open, one: Log, two: Log) -> None:
    seen = []
    for log in (one, two, one):
        for number in (70, 71):
            log.events[0].append(number)
            platform = reading(log)
            platform.ingest(NAME)
            seen.append(table(platform).properties[TOPICS])
    assert seen[0] == seen[1]
    assert seen[2:] == [seen[2]] * 4
    assert [each["next"] for each in json.loads(seen[2])["topics"]] == [{"0": [0, 0], "1": [0, 0]}, {"0": [0, 0]}]


def test_the_receipts_of_snapshots_that_expire_go_with_them(
    reading: Open, one: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    platform = reading(one)
    for number in range(4):
        one.events[0].append(number)
        platform.ingest(NAME)
    monkeypatch.setattr("dedup_platform.maintenance.upkeep.procedures.expire_snapshots", forget)
    stream = platform.stream(NAME)
    rules = stream.maintenance.model_copy(update={"min_snapshots": 1, "snapshot_age": timedelta(0)})
    settled = stream.model_copy(update={"maintenance": rules})
    Maintenance(platform.lake, platform.ledger)._expire(settled, RAW_EVENTS, datetime.now(UTC) + timedelta(days=1))
    assert receipts(tmp_path) == {told_by(newest(platform))[f"{SUMMARY}positions"]}
    assert reading(one).ingest(NAME) == []


# Tables of the version before


def test_what_the_version_before_wrote_is_read(reading: Open, one: Log, two: Log) -> None:
    platform = reading(one)
    old(platform, positions=Positions("two", "a", {0: Place(3)}))
    old(platform, accepted=Positions("one", "a", {0: Place(2), 1: Place(1)}))
    old(platform, positions=Positions("one", "a", {0: Place(1), 1: Place(0)}))
    old(platform, accepted=Positions("one", "a", {0: Place(3)}))
    assert "(0, Place(offset=3" in platform.source._ingest.change_token(platform.stream(NAME))
    assert "(1, Place(offset=1" in platform.source._ingest.change_token(platform.stream(NAME))
    platform.ingest(NAME)
    assert places(platform) == rows_of(one)[1:]
    expire(platform)
    platform = reading(two)
    platform.ingest(NAME)
    assert places(platform) == [*rows_of(one)[1:], ("two", 0, 3), ("two", 0, 4)]


def test_a_topic_that_the_version_before_forgot_is_found_in_raw(reading: Open, one: Log, two: Log) -> None:
    reading(one).ingest(NAME)
    reading(two).ingest(NAME)
    platform = reading(two)
    old(platform, positions=Positions("two", "a", {0: Place(5)}))
    expire(platform)
    with table(platform).transaction() as changing:
        changing.remove_properties(TOPICS)
    one.events[0].append(80)
    platform = reading(one, start="latest")
    platform.ingest(NAME)
    assert places(platform) == [*rows_of(one), *rows_of(two)]


# Two at once


def test_whoever_creates_the_tables_looks_again(reading: Open, one: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    platform, other = reading(one), reading(one)
    create = platform.lake.create

    def late(stream: Stream, buckets: int) -> None:
        monkeypatch.setattr(platform.lake, "create", create)
        other.ingest(NAME)
        create(stream, buckets)

    monkeypatch.setattr(platform.lake, "create", late)
    platform.ingest(NAME)
    assert places(platform) == rows_of(one)


def test_two_lanes_begin_at_once(reading: Open, one: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    one.first = {0: 1}
    lanes = [reading(one, lane={"index": index, "of": 2}) for index in range(2)]
    lanes[0].lake.create(lanes[0].stream(NAME), 2)
    publish = lanes[0].lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.setattr(lanes[0].lake, "publish", publish)
        lanes[1].ingest(NAME)
        publish(staged)

    monkeypatch.setattr(lanes[0].lake, "publish", late)
    lanes[0].ingest(NAME)
    assert places(lanes[0]) == rows_of(one)[1:]


def test_files_of_another_number_of_buckets_are_not_put_on_top(
    reading: Open, one: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = reading(one)
    platform.ingest(NAME)
    one.events[0].append(90)
    publish = platform.lake.publish
    before = places(platform)

    def late(staged: Staged) -> None:
        swap_raw(platform, publish)
        publish(staged)

    monkeypatch.setattr(platform.lake, "publish", late)
    with pytest.raises(ConflictError, match="its number of buckets changed while files were written"):
        platform.source._ingest.next_batch(platform.stream(NAME), START)
    assert places(platform) == before


def swap_raw(platform: Platform, publish: Callable[[Staged], None]) -> None:
    """Give `raw_events`, and no other table, another number of buckets. No row is moved: none is looked at."""
    stream = platform.stream(NAME)
    layout = Layout(platform.lake, stream, RAW_EVENTS, 8)
    base, _ = layout.now()
    publish(layout.stage(base, [], [], {"reason": "buckets"}))


# What happens to lakes


def rows_of(log: Log) -> list[tuple[str, int, int]]:
    return [(log.name, number, offset) for number, events in log.events.items() for offset in range(len(events))]


def table(platform: Platform) -> Table:
    return platform.lake.catalog.load_table(NAME, RAW_EVENTS)


def newest(platform: Platform) -> Snapshot:
    return head(table(platform))


def told_by(snapshot: Snapshot) -> Mapping[str, str]:
    assert snapshot.summary
    return {key: told for key, told in snapshot.summary.additional_properties.items() if key.startswith(SUMMARY)}


def receipts(folder: Path) -> set[str]:
    return {path.name for path in (folder / "home" / "warehouse" / NAME / "receipts").iterdir()}


def lose(what: tuple[str, ...], platform: Platform, folder: Path) -> None:
    if "history" in what:
        expire(platform)
    if "receipts" in what:
        shutil.rmtree(folder / "home" / "warehouse" / NAME / "receipts", ignore_errors=True)


def expire(platform: Platform) -> None:
    """Expire every snapshot of raw that tells positions."""
    lake, stream = platform.lake, platform.stream(NAME)
    lake.publish(lake.stage_nothing(stream, RAW_EVENTS, newest(platform).snapshot_id, {}))
    forget(lake, stream, RAW_EVENTS, [each.snapshot_id for each in table(platform).snapshots()])


def forget(lake: Lakehouse, stream: Stream, name: str, snapshot_ids: list[int]) -> None:
    """In the place of Spark's procedure; files stay."""
    loaded = lake.catalog.load_table(stream.name, name)
    old = [each for each in snapshot_ids if each != head(loaded).snapshot_id]
    loaded.maintenance.expire_snapshots().by_ids(old).commit()


def roll_back(platform: Platform, to: Snapshot) -> None:
    table(platform).manage_snapshots().rollback_to_snapshot(to.snapshot_id).commit()


def old(platform: Platform, **told: Positions) -> None:
    """Commit what the version before wrote into summaries."""
    lake, stream = platform.lake, platform.stream(NAME)
    lake.create(stream, 2)
    properties = {name: each.to_text() for name, each in told.items()}
    lake.publish(
        lake.stage_nothing(stream, RAW_EVENTS, newest(platform).snapshot_id, cast("SummaryValues", properties))
    )
