"""The same deliveries by a topic, by files on S3 and by local files give the same events and sessions, ids included."""

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.tables import COORDINATES, DEDUPLICATED_EVENTS, SESSIONS
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.ingest.kafka.conftest import NewTopic
from dedup_platform_tests.ingest.kafka.topics import NAME, START, platform_of
from dedup_platform_tests.ingest.s3.landing import Landing

BATCHES = 3
Deliver = Callable[[int, list[str]], None]


def deliveries(seed: int) -> list[list[str]]:
    """Batches of lines: events of three days, late ones, copies; no two records have one arrival time."""
    chance = random.Random(seed)
    events = []
    for number in range(120):
        happened = START + timedelta(seconds=chance.randrange(3 * 86_400))
        user = chance.choice(["ann", "bob", "cem", None])
        events.append({"user": user, "id": f"e{number}", "at": happened.isoformat()})
    records = [*events, *chance.sample(events, 20)]
    chance.shuffle(records)
    arrivals = [START + timedelta(days=3, milliseconds=7 * number) for number in range(len(records))]
    lines = [json.dumps(each | {"seen": at.isoformat()}) for each, at in zip(records, arrivals, strict=True)]
    return [lines[first::BATCHES] for first in range(BATCHES)]


def stream_file(folder: Path, source: dict[str, Any]) -> Path:
    content = {
        "name": NAME,
        "source": {"format": "json", **source},
        "fields": {"entity_id": "user", "event_id": "id", "event_time": "at", "arrival_time": "seen"},
        "partitions": {"granularity": "day", "start": "2026-01-01"},
        "buckets": 2,
        "sessions": {"timeout": "2h"},
    }
    folder.mkdir(parents=True)
    path = folder / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


def by_local_files(folder: Path, spark: SparkSession) -> tuple[Platform, Deliver]:
    stream = load_stream(stream_file(folder, {"kind": "files", "path": "landing/*.json", "settle": "0s"}))
    landing = folder / "landing"
    landing.mkdir()

    def deliver(number: int, lines: list[str]) -> None:
        (landing / f"{number}.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return platform_of(folder / "home", stream, spark), deliver


def by_topic(folder: Path, spark: SparkSession, new_topic: NewTopic) -> tuple[Platform, Deliver]:
    topic = new_topic(partitions=3)
    source = {"kind": "kafka", "brokers": topic.server.brokers, "topic": topic.name}
    stream = load_stream(stream_file(folder, source))

    def deliver(_: int, lines: list[str]) -> None:
        for partition in range(3):
            topic.produce(*(line.encode() for line in lines[partition::3]), partition=partition)

    return platform_of(folder / "home", stream, spark), deliver


def outcome(platform: Platform, table: str) -> list[str]:
    """The rows of a table without their coordinates, which tell the source."""
    rows = platform.read(NAME, table).drop(*COORDINATES).toArrow().to_pylist()
    return sorted(map(repr, rows))


def by_s3(folder: Path, spark: SparkSession, server: S3Server) -> tuple[Platform, Deliver]:
    landing = Landing.on(server)
    path = f"s3://{landing.bucket}/landing/*.json"
    stream = load_stream(stream_file(folder, {"kind": "files", "path": path, "settle": "0s"}))

    def deliver(number: int, lines: list[str]) -> None:
        landing.put(f"landing/{number}.json", "".join(f"{line}\n" for line in lines).encode())

    return platform_of(folder / "home", stream, spark, **landing.places), deliver


@pytest.fixture(params=[0, pytest.param(1, marks=pytest.mark.thorough)])
def batches(request: pytest.FixtureRequest) -> list[list[str]]:
    return deliveries(request.param)


def test_a_topic_files_on_s3_and_local_files_give_the_same(
    batches: list[list[str]], tmp_path: Path, spark: SparkSession, new_topic: NewTopic, s3_server: S3Server
) -> None:
    ways = [
        by_local_files(tmp_path / "files", spark),
        by_topic(tmp_path / "topic", spark, new_topic),
        by_s3(tmp_path / "s3", spark, s3_server),
    ]
    for number, lines in enumerate(batches):
        for platform, deliver in ways:
            deliver(number, lines)
            platform.ingest(NAME)
            platform.repair(NAME)
        for table in (DEDUPLICATED_EVENTS, SESSIONS):
            files, topic, objects = (outcome(platform, table) for platform, _ in ways)
            assert files == topic == objects
    assert all(wrong_rows(platform, NAME) == [] for platform, _ in ways)
