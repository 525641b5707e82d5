"""What may lie in a topic, and what may happen to it: every message is a row, once, or an error says what is lost."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from dedup_platform.errors import LostRecordsError, SourceChangedError, SourceError
from dedup_platform.ingest.batch_sizes import sample
from dedup_platform.ingest.offset_ranges import check_offsets
from dedup_platform.lake.snapshots import head
from dedup_platform.lake.staged import Staged
from dedup_platform.maintenance import procedures
from dedup_platform.platform import Platform
from dedup_platform.sources.kafka import topic as asking
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.ingest.kafka.conftest import NewTopic, Reading
from dedup_platform_tests.ingest.kafka.topics import NAME, event, places_of, platform_of, rows, topic_stream
from dedup_platform_tests.variants import some

GROUP = f"dedup_platform.{NAME}"


def test_every_message_is_one_row_and_the_group_is_told(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        topic.produce(*(event(number) for number in range(partition * 10, partition * 10 + 5)), partition=partition)
    platform = reading(topic)
    waiting = platform.source.waiting(NAME)
    assert waiting.amount == "15 messages"
    assert waiting.since is not None
    assert abs(waiting.since - datetime.now(UTC)) < timedelta(minutes=10)
    [commit] = platform.ingest(NAME)
    assert commit.rows_written == 15
    assert set(places_of(rows(platform))) == topic.places()
    assert topic.group_offsets(GROUP) == {0: 5, 1: 5, 2: 5}
    assert not platform.source.waiting(NAME).items
    assert platform.ingest(NAME) == []
    platform.repair(NAME)
    assert wrong_rows(platform, NAME) == []
    assert [(each.partition, each.next, each.end, each.group) for each in platform.source.offsets(NAME)] == [
        (partition, 5, 5, 5) for partition in range(3)
    ]


def test_arrival_is_when_the_broker_appended_it(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    before = datetime.now(UTC) - timedelta(seconds=1)
    topic.produce(event(1))
    platform = reading(topic)
    platform.ingest(NAME)
    [row] = rows(platform)
    assert before < row["arrival_time"] < datetime.now(UTC) + timedelta(seconds=1)


def test_keys_and_tombstones_are_kept(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1), key="ann")
    topic.produce(event(2), key=b"\xff\x00")
    topic.produce(None, key="gone")
    platform = reading(topic)
    platform.ingest(NAME)
    text, binary, tombstone = rows(platform)
    assert json.loads(text["payload_context"]) == {"format": "json", "key": "ann"}
    assert json.loads(binary["payload_context"]) == {"format": "json", "key_hex": "ff00"}
    assert (tombstone["payload"], tombstone["rejection_reason"]) == (None, "tombstone")
    assert json.loads(tombstone["payload_context"])["key"] == "gone"
    platform.repair(NAME)
    assert len(rows(platform, DEDUPLICATED_EVENTS)) == 2


def test_empty_and_broken_messages_are_rejected_among_good_ones(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1), b"", b"{broken", b"\xff\xfe", event(2))
    platform = reading(topic)
    platform.ingest(NAME)
    assert [row["rejection_reason"] for row in rows(platform)] == [None, *["malformed_record"] * 3, None]
    assert [row["payload"] for row in rows(platform)][1:4] == [b"", b"{broken", b"\xff\xfe"]


def test_a_message_of_8_megabytes(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(max_message_bytes="9000000")
    topic.produce(event(1), event(2, note="x" * 8_000_000), event(3))
    platform = reading(topic)
    platform.ingest(NAME)
    assert [len(row["payload"]) > 8_000_000 for row in rows(platform)] == [False, True, False]
    assert [row["rejection_reason"] for row in rows(platform)] == [None] * 3


def test_aborted_transactions_are_not_read(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1))
    topic.produce_in_transaction(event(2), event(3), commit=False)
    topic.produce_in_transaction(event(4), commit=True)
    platform = reading(topic)
    platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e1", "e4"]
    assert set(places_of(rows(platform))) == topic.places()


def test_offsets_that_hold_no_message_are_passed_once(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce_in_transaction(event(1), event(2), commit=False)
    platform = reading(topic)
    [commit] = platform.ingest(NAME)
    assert commit.rows_written == 0
    assert not platform.source.waiting(NAME).items
    topic.produce(event(3))
    platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e3"]


def test_an_open_transaction_is_waited_for(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1))
    transaction = topic.transaction(event(2))
    topic.produce(event(3))
    platform = reading(topic)
    platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e1"]
    transaction.commit_transaction(30)
    platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e1", "e2", "e3"]


def test_a_topic_that_stamps_create_time_is_refused(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(message_timestamp_type="CreateTime")
    topic.produce(event(1, seen="2026-11-20T01:00:00Z"))
    with pytest.raises(
        SourceError, match=r"CreateTime.*message\.timestamp\.type to LogAppendTime.*fields\.arrival_time"
    ):
        reading(topic).ingest(NAME)
    platform = reading(topic, fields={"arrival_time": "seen"})
    platform.ingest(NAME)
    [row] = rows(platform)
    assert row["arrival_time"] == datetime(2026, 11, 20, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "stamp", some([253402300800000, 2**63 - 1, -(10**15), -(2**62)], quick=[253402300800000, -(2**62)])
)
def test_no_stamp_stops_a_topic(new_topic: NewTopic, reading: Reading, stamp: int) -> None:
    topic = new_topic(
        message_timestamp_type="CreateTime",
        message_timestamp_before_max_ms=str(2**63 - 1),
        message_timestamp_after_max_ms=str(2**63 - 1),
    )
    topic.produce(event(1), {"user": "no event"}, None, stamp=stamp)
    topic.produce(event(2))
    platform = reading(topic, fields={"arrival_time": "at"})
    platform.ingest(NAME)
    assert [row["rejection_reason"] for row in rows(platform)] == [None, "unreadable_arrival_time", "tombstone", None]
    platform.repair(NAME)
    assert wrong_rows(platform, NAME) == []


def test_messages_from_before_a_topic_stamped_append_time_are_rejected(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(message_timestamp_type="CreateTime")
    topic.produce(event(1))
    change = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[change])
    admin = topic.admin()
    admin.incremental_alter_configs([resource])[resource].result()
    topic.produce(event(2))
    platform = reading(topic)
    platform.ingest(NAME)
    assert [row["rejection_reason"] for row in rows(platform)] == ["unreadable_arrival_time", None]


def test_an_added_partition_is_read_from_its_beginning(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1))
    platform = reading(topic, start="latest")
    platform.ingest(NAME)
    topic.add_partitions(2)
    topic.produce(event(2), partition=1)
    platform.ingest(NAME)
    assert places_of(rows(platform)) == [(1, 0)]
    assert topic.group_offsets(GROUP) == {0: 1, 1: 1}


def test_what_retention_took_stops_the_stream_until_a_person_accepts(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(partitions=2)
    topic.produce(event(1))
    platform = reading(topic)
    platform.ingest(NAME)
    topic.produce(*map(event, range(2, 7)))
    topic.produce(event(7), partition=1)
    topic.delete_before(4)
    expected = f"offsets 1 to 3 of partition 0 of topic {topic.name} are gone.*`dedup-platform offsets accept {NAME}`"
    for step in (platform.ingest, platform.source.waiting):
        with pytest.raises(LostRecordsError, match=expected):
            step(NAME)
    assert places_of(rows(platform)) == [(0, 0)]
    assert platform.source.accept_losses(NAME) is not None
    assert platform.source.accept_losses(NAME) is None
    platform.ingest(NAME)
    assert places_of(rows(platform)) == [(0, 0), (0, 4), (0, 5), (1, 0)]
    assert topic.group_offsets(GROUP) == {0: 6, 1: 1}


def test_a_topic_that_begins_later_than_0_has_lost_nothing_yet(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(*map(event, range(4)))
    topic.delete_before(2)
    platform = reading(topic)
    platform.ingest(NAME)
    assert places_of(rows(platform)) == [(0, 2), (0, 3)]


def test_a_topic_that_was_created_again_is_another_one(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1), event(2))
    platform = reading(topic)
    platform.ingest(NAME)
    topic.delete()
    topic.server.create_topic(topic.name, 1)
    topic.produce(*map(event, (2, 3, 4)))
    expected = f"topic {topic.name} was deleted and created again: what followed offset 1 of partition 0 is gone"
    with pytest.raises(LostRecordsError, match=expected):
        platform.ingest(NAME)
    platform.source.accept_losses(NAME)
    platform.ingest(NAME)
    assert [(row["source"], row["source_offset"]) for row in rows(platform)] == [
        *((topic.name, offset) for offset in range(2)),
        *((f"{topic.name}@1", offset) for offset in range(3)),
    ]
    platform.repair(NAME)
    assert sorted(row["event_id"] for row in rows(platform, DEDUPLICATED_EVENTS)) == ["e1", "e2", "e3", "e4"]
    assert wrong_rows(platform, NAME) == []


def test_a_topic_that_is_created_again_while_it_is_read_is_not_taken_for_itself(
    new_topic: NewTopic, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    topic.produce(*map(event, range(3)))
    platform = reading(topic)
    # The tables are there.
    platform.ingest(NAME)
    topic.produce(event(3))

    def after_it_is_another(*of: Any) -> Any:
        monkeypatch.undo()
        topic.delete()
        topic.server.create_topic(topic.name, 1)
        topic.produce(*map(event, range(10, 15)))
        return sample(*of)

    monkeypatch.setattr("dedup_platform.ingest.kafka.sample", after_it_is_another)
    with pytest.raises(SourceChangedError, match=f"topic {topic.name} was deleted and created again while it was read"):
        platform.ingest(NAME)
    with pytest.raises(LostRecordsError, match="was deleted and created again: what followed offset 2"):
        platform.ingest(NAME)
    platform.source.accept_losses(NAME)
    platform.ingest(NAME)
    assert sorted(row["event_id"] for row in rows(platform)) == sorted(
        f"e{number}" for number in [*range(3), *range(10, 15)]
    )


def test_a_topic_that_is_deleted_once_it_is_read_is_kept(
    new_topic: NewTopic, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    topic.produce(event(1))

    def once_it_is_read(*of: Any) -> None:
        check_offsets(*of)
        topic.delete()

    monkeypatch.setattr("dedup_platform.ingest.kafka.check_offsets", once_it_is_read)
    platform = reading(topic)
    with pytest.raises(SourceError, match="there is no such topic"):
        platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e1"]


def test_from_the_end_on_means_from_the_first_look_on(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1))
    platform = reading(topic, start="latest")
    assert platform.source.waiting(NAME).items
    platform.ingest(NAME)
    assert rows(platform) == []
    topic.produce(event(2))
    platform.ingest(NAME)
    assert [row["event_id"] for row in rows(platform)] == ["e2"]


def test_batches_are_bounded_and_fair(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(partitions=3)
    for partition, messages in enumerate((2, 20, 20)):
        topic.produce(*map(event, range(messages)), partition=partition)
    platform = reading(topic, max_batch_records=12)
    commits = platform.ingest(NAME)
    assert [commit.rows_written for commit in commits] == [12, 12, 12, 6]
    assert set(places_of(rows(platform))) == topic.places()


def test_large_messages_make_small_batches(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(*(event(number, note="x" * 10_000) for number in range(40)))
    platform = reading(topic, max_batch_bytes=101_500)
    assert [commit.rows_written for commit in platform.ingest(NAME)] == [9, 9, 9, 9, 4]


def test_lanes_share_a_table(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(partitions=4)
    for partition in range(4):
        topic.produce(*map(event, range(partition, partition + 3)), partition=partition)
    even, odd = (reading(topic, lane={"index": index, "of": 2}) for index in range(2))
    even.ingest(NAME)
    assert {place[0] for place in places_of(rows(even))} == {0, 2}
    odd.ingest(NAME)
    assert set(places_of(rows(odd))) == topic.places()
    assert topic.group_offsets(GROUP) == dict.fromkeys(range(4), 3)


def test_the_lane_that_loses_a_race_puts_its_files_on_top_of_the_winners(
    new_topic: NewTopic, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    for partition in range(2):
        topic.produce(event(partition), partition=partition)
    one, other = (reading(topic, lane={"index": index, "of": 2}) for index in range(2))
    one.ingest(NAME)
    for partition in range(2):
        topic.produce(event(partition + 10), event(99), partition=partition)
    publish = one.lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.undo()
        other.ingest(NAME)
        publish(staged)

    monkeypatch.setattr(one.lake, "publish", late)
    [commit] = one.ingest(NAME)
    assert commit.rows_written == 2
    assert set(places_of(rows(one))) == topic.places()
    assert topic.group_offsets(GROUP) == {0: 3, 1: 3}
    one.repair(NAME)
    assert wrong_rows(one, NAME) == []


def test_of_two_ingests_of_one_lane_the_loser_reads_again(
    new_topic: NewTopic, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    topic.produce(event(1))
    one, other = reading(topic), reading(topic)
    one.ingest(NAME)
    topic.produce(event(2), event(3))
    publish = one.lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.undo()
        other.ingest(NAME)
        publish(staged)

    monkeypatch.setattr(one.lake, "publish", late)
    assert one.ingest(NAME) == []
    assert places_of(rows(one)) == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_whose_table_got_other_buckets_meanwhile_is_read_again(
    new_topic: NewTopic, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    stream = topic_stream(tmp_path, topic).model_copy(update={"buckets": 0})
    one, other = (platform_of(tmp_path / "home", stream, spark) for _ in range(2))
    events = [event(number, user=f"user {number}") for number in range(12)]
    topic.produce(*events)
    one.ingest(NAME)
    topic.produce(*events, *(event(number + 100, user=f"user {number}") for number in range(12)))
    publish = one.lake.publish

    def late(staged: Staged) -> None:
        monkeypatch.undo()
        other.change_buckets(NAME, 8)
        publish(staged)

    monkeypatch.setattr(one.lake, "publish", late)
    [commit] = one.ingest(NAME)
    assert commit.rows_written == 24
    one.repair(NAME)
    counts = {table: one.rows(NAME, table) for table in (RAW_EVENTS, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)}
    assert counts == {RAW_EVENTS: 36, DEDUPLICATED_EVENTS: 24, DUPLICATE_EVENTS: 12}


def test_positions_that_no_snapshot_tells_are_derived_from_raw(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic(partitions=2)
    topic.produce(event(1), event(2))
    topic.produce(event(3), partition=1)
    platform = reading(topic)
    platform.ingest(NAME)
    forget_positions(platform)
    topic.produce(event(4))
    [commit] = reading(topic).ingest(NAME)
    assert commit.rows_written == 1
    assert set(places_of(rows(platform))) == topic.places()


def test_another_topic_is_a_new_one_although_history_has_expired(new_topic: NewTopic, reading: Reading) -> None:
    first, at_its_end, trimmed = (new_topic() for _ in range(3))
    for topic in (first, at_its_end, trimmed):
        topic.produce(*map(event, range(3)))
    trimmed.delete_before(2)
    platform = reading(first)
    platform.ingest(NAME)
    forget_positions(platform)
    for topic, start in ((at_its_end, "latest"), (trimmed, "earliest")):
        reading(topic, start=start).ingest(NAME)
    found = [(row["source"], row["source_offset"]) for row in rows(platform)]
    assert found == [*((first.name, offset) for offset in range(3)), (trimmed.name, 2)]


def test_the_group_is_told_again_if_whoever_published_died_before(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(event(1))
    platform = reading(topic)
    platform.source._ingest._kafka._tell_group = lambda *_: None  # type: ignore[method-assign]
    platform.ingest(NAME)
    assert topic.group_offsets(GROUP) == {}
    reading(topic).ingest(NAME)
    assert topic.group_offsets(GROUP) == {0: 1}


def test_messages_that_a_person_has_left_out_are_not_read(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.produce(*map(event, range(5)))
    platform = reading(topic)
    for offsets in (range(1), range(2, 4)):
        platform.source.skip_offsets(NAME, 0, offsets)
    platform.ingest(NAME)
    assert places_of(rows(platform)) == [(0, 1), (0, 4)]
    assert topic.group_offsets(GROUP) == {0: 5}
    platform.repair(NAME)
    assert wrong_rows(platform, NAME) == []


def test_a_topic_that_is_not_there(new_topic: NewTopic, reading: Reading) -> None:
    topic = new_topic()
    topic.name = "nowhere"
    with pytest.raises(SourceError, match=r"topic nowhere at .*: there is no such topic; create it, or correct"):
        reading(topic).ingest(NAME)


def test_brokers_that_do_not_answer(new_topic: NewTopic, reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "SECONDS_TO_ANSWER", 1.0)
    topic = new_topic()
    platform = reading(topic, brokers="127.0.0.1:9")
    with pytest.raises(SourceError, match=f"topic {topic.name} at 127.0.0.1:9: the brokers do not answer"):
        platform.ingest(NAME)


def forget_positions(platform: Platform) -> None:
    """Expire every snapshot of raw that tells positions."""
    lake, stream = platform.lake, platform.stream(NAME)
    lake.publish(
        lake.stage_nothing(stream, RAW_EVENTS, head(lake.catalog.load_table(NAME, RAW_EVENTS)).snapshot_id, {})
    )
    table = lake.catalog.load_table(NAME, RAW_EVENTS)
    old = {each.snapshot_id for each in table.snapshots()} - {head(table).snapshot_id}
    procedures.expire_snapshots(lake, stream, RAW_EVENTS, old)
