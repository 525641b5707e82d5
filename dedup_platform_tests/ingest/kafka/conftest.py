"""A topic and a stream for each test."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform.platform import Platform
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.ingest.kafka.topics import Topic, platform_of, topic_stream

NewTopic = Callable[..., Topic]
Reading = Callable[..., Platform]

_numbers = count()


@pytest.fixture
def new_topic(kafka_server: KafkaServer) -> NewTopic:
    """Creates a topic that no other test has; its settings as `KafkaServer.create_topic` takes them."""

    def make(partitions: int = 1, **config: str) -> Topic:
        topic = Topic(kafka_server, f"clicks-{next(_numbers)}")
        kafka_server.create_topic(topic.name, partitions, **config)
        return topic

    return make


@pytest.fixture
def reading(tmp_path: Path, spark: SparkSession) -> Reading:
    """Opens a platform with a stream of a topic, as `topic_stream` takes it; all share the tables of one home."""

    def make(topic: Topic, **settings: Any) -> Platform:
        return platform_of(tmp_path / "home", topic_stream(tmp_path, topic, **settings), spark)

    return make
