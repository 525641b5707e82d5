"""Which batches are held, at the boundary and beyond, what accepting them commits, and what else lets them pass."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import HeldBatchError
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import HeldClock, make_stream, temporary_platform
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.servers import new_name

GOOD = json.dumps({"entity": "a", "id": "1", "happened": "2024-03-01T10:00:00", "arrived": "2024-03-01T10:00:00"})


@dataclass(frozen=True)
class Lake:
    """A stream of files that holds batches."""

    home: Path
    stream: Stream
    spark: SparkSession

    def platform(self) -> Platform:
        clock = HeldClock(datetime.now(UTC) + timedelta(days=1))
        return temporary_platform(self.home, self.stream, self.spark, clock, in_process=True)

    def deliver(self, name: str, good: int, broken: int) -> None:
        (self.stream.files.root / name).write_text(f"{GOOD}\n" * good + "broken\n" * broken)

    def rows(self) -> int:
        return self.platform().rows(self.stream.name, tables.RAW_EVENTS)

    def saying(self, reject: str) -> "Lake":
        """The same lake under a stream file with another `reject`."""
        text = self.stream.origin.read_text().split("reject:")[0]
        self.stream.origin.write_text(f"{text}reject: {reject}\n" if reject else text)
        return Lake(self.home, load_stream(self.stream.origin), self.spark)


@pytest.fixture
def lake(tmp_path: Path, spark: SparkSession) -> Lake:
    return Lake(tmp_path / "home", make_stream(tmp_path, start="2024-03-01"), spark).saying(
        "{max_ratio: 0.5, min_records: 2}"
    )


@pytest.mark.parametrize(
    ("good", "broken", "held"),
    [(2, 2, False), (2, 3, True), (0, 1, False), (0, 2, True)],
    ids=["at the ratio", "above the ratio", "below the smallest number", "at the smallest number"],
)
def test_a_batch_is_held_above_the_ratio_if_enough_records_are_rejected(
    lake: Lake, good: int, broken: int, held: bool
) -> None:
    lake.deliver("first.json", good, broken)
    if held:
        with pytest.raises(HeldBatchError, match="malformed_record"):
            lake.platform().ingest("events")
    else:
        lake.platform().ingest("events")
    assert lake.rows() == (0 if held else good + broken)


def test_without_reject_nothing_is_held(lake: Lake) -> None:
    lake.deliver("first.json", 0, 200)
    lake.saying("").platform().ingest("events")
    assert lake.rows() == 200


def test_a_stream_file_that_allows_more_lets_the_batch_be_tried_at_once(lake: Lake) -> None:
    lake.deliver("first.json", 1, 3)
    with pytest.raises(HeldBatchError):
        lake.platform().ingest("events")
    assert lake.platform().source.look("events") is None
    mended = lake.saying("{max_ratio: 0.9, min_records: 2}")
    assert mended.platform().source.look("events") is not None
    mended.platform().ingest("events")
    assert (mended.platform().source.health("events").state, lake.rows()) == ("normal", 4)


def test_what_was_accepted_is_a_commit_and_outlives_the_control_database(lake: Lake) -> None:
    lake.deliver("first.json", 0, 3)
    platform = lake.platform()
    with pytest.raises(HeldBatchError):
        platform.ingest("events")
    platform.source.accept_batch("events")
    platform.ledger.engine.dispose()
    (lake.home / "control.db").unlink()
    # A file that came later is judged by itself, though it is read in the same batch.
    lake.deliver("second.json", 3, 1)
    lake.platform().ingest("events")
    assert lake.rows() == 7


def test_a_held_batch_of_a_topic_is_accepted_up_to_its_offsets(
    kafka_server: KafkaServer, tmp_path: Path, spark: SparkSession
) -> None:
    topic = new_name()
    kafka_server.create_topic(topic, partitions=2)
    lake = Lake(tmp_path / "home", topic_stream(tmp_path, kafka_server, topic), spark)
    send(kafka_server, topic, 0, "broken", "broken", "broken")
    send(kafka_server, topic, 1, good(1), good(2))
    with pytest.raises(HeldBatchError, match="3 of 5 records"):
        lake.platform().ingest("events")
    assert lake.rows() == 0

    assert lake.platform().source.accept_batch("events") is not None
    send(kafka_server, topic, 0, "broken", "broken")
    platform = lake.platform()
    assert platform.source.look("events") is not None, "somebody acted"
    with pytest.raises(HeldBatchError, match="2 of 2 records"):
        platform.ingest("events")
    assert lake.rows() == 5, "what was accepted is in, what came later is held"
    [first, second] = platform.source.offsets("events")
    assert (first.next, first.end, second.next) == (3, 5, 2)

    platform.source.accept_batch("events")
    platform.ingest("events")
    assert (lake.rows(), platform.source.health("events").state) == (7, "normal")


def topic_stream(folder: Path, server: KafkaServer, topic: str) -> Stream:
    content = {
        "name": "events",
        "source": {"kind": "kafka", "brokers": server.brokers, "topic": topic, "format": "json"},
        "fields": {"entity_id": "entity", "event_id": "id", "event_time": "happened"},
        "partitions": {"granularity": "day", "start": "2024-03-01"},
        "buckets": 1,
        "sessions": {"timeout": "30m"},
        "reject": {"max_ratio": 0.5, "min_records": 2},
    }
    path = folder / "events.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_stream(path)


def good(number: int) -> str:
    return json.dumps({"entity": "a", "id": str(number), "happened": "2024-03-01T10:00:00"})


def send(server: KafkaServer, topic: str, partition: int, *messages: str) -> None:
    producer = Producer({"bootstrap.servers": server.brokers})
    for message in messages:
        producer.produce(topic, message.encode(), partition=partition)
    assert producer.flush(10) == 0
