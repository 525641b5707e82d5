"""Topics in memory, and platforms that read them without a broker and without Spark: for what depends on neither."""

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, TopicPartition
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.ingest import intake, kafka
from dedup_platform.ingest.append import Appended, Appending
from dedup_platform.planning.moments import EPOCH
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.sources.kafka import OffsetExtent, TopicState, reading
from dedup_platform.stream import Stream
from dedup_platform_tests.ingest.kafka.topics import NAME, START, event


@dataclass
class Log:
    """A topic: the numbers of the events in each partition, and the first offset that is kept of each."""

    name: str
    events: dict[int, list[int]]
    first: dict[int, int] = field(default_factory=dict)
    topic_id: str = "a"

    def state(self) -> TopicState:
        extents = {
            number: OffsetExtent(self.first.get(number, 0), len(events), len(events))
            for number, events in self.events.items()
        }
        return TopicState(self.topic_id, True, extents)


@dataclass
class Message:
    """A message, or that the partition ends there."""

    at: int
    number: int | None

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self.number is None else None

    def offset(self) -> int:
        return self.at

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def value(self) -> bytes:
        return json.dumps(event(self.number or 0)).encode()

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_LOG_APPEND_TIME, int((START - EPOCH).total_seconds() * 1000)


class Broker:
    """Answers for its logs in the place of a broker; tasks run where they are asked for, in the place of Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *logs: Log) -> None:
        self._logs = {log.name: log for log in logs}
        monkeypatch.setattr(kafka, "Topic", lambda source, _: _Asked(self._logs[source.topic]))
        monkeypatch.setattr(reading, "Consumer", lambda _: _Consumer(self._logs))
        monkeypatch.setattr(intake, "append", _append)


@dataclass
class _Asked:
    log: Log

    def state(self) -> TopicState:
        return self.log.state()

    def id_now(self) -> str:
        return self.log.topic_id

    def group_offsets(self, _: str, offsets: Mapping[int, int]) -> Mapping[int, int]:
        return offsets


class _Consumer:
    def __init__(self, logs: Mapping[str, Log]) -> None:
        self._logs = logs
        self._left: list[Message] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        [place] = places
        events = self._logs[place.topic].events[place.partition]
        self._left = [Message(offset, events[offset]) for offset in range(place.offset, len(events))]
        self._left.append(Message(len(events), None))

    def poll(self, _: float) -> Message | None:
        return self._left.pop(0) if self._left else None

    def consume(self, *_: object) -> list[Message]:
        left, self._left = self._left, []
        return left

    def close(self) -> None:
        self._left = []


def _append(_: object, appending: Appending) -> list[Appended]:
    done = [each for task in range(appending.tasks) for each in pickle.loads(appending.read_and_write(b"%d" % task))]
    for each in done:
        appending.files.partitioned(each.file)
    return done


def stream_of(log: Log, **source: Any) -> Stream:
    """A stream of a log; `source` goes before what is said here."""
    return Stream.model_validate(
        {
            "name": NAME,
            "source": {"kind": "kafka", "brokers": "127.0.0.1:9", "topic": log.name, "format": "json", **source},
            "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"},
            "partitions": {"granularity": "day", "start": "2026-01-01"},
            "buckets": 2,
            "sessions": {"timeout": "30m"},
            "late": {"max_future": "36500d"},
        }
    )


def opened(home: Path, stream: Stream) -> Platform:
    """A platform that remembers nothing."""
    return Platform(Settings(home=home), {NAME: stream}, lambda: cast("SparkSession", None))


def places(platform: Platform) -> list[tuple[str, int, int]]:
    """Source, partition and offset of every row of raw, in their order."""
    stream = platform.stream(NAME)
    columns = ("source", "source_partition", "source_offset")
    frames = platform.lake.batches(stream, tables.RAW_EVENTS, platform.lake.current(stream, tables.RAW_EVENTS), columns)
    return sorted(row for frame in frames for row in frame.iter_rows())
