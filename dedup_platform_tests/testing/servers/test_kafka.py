"""The broker that tests get: it serves a real client, and keeps its log when it is killed."""

import time
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message, Producer, TopicPartition

from dedup_platform.errors import MissingPartError
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.servers import new_name, running

PATIENCE = 30


def produce(server: KafkaServer, topic: str, *values: bytes, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": server.brokers, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE) == 0


def consume(server: KafkaServer, topic: str, count: int, partition: int = 0) -> list[Message]:
    """The first `count` messages of a partition."""
    consumer = Consumer({"bootstrap.servers": server.brokers, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Message] = []
    until = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(count - len(found), timeout=1)
    consumer.close()
    return found


def test_messages_come_back_with_the_time_of_their_append(kafka_server: KafkaServer) -> None:
    topic = new_name()
    kafka_server.create_topic(topic)
    before = time.time() * 1000
    produce(kafka_server, topic, b"one", b"two", partition=7)
    found = consume(kafka_server, topic, 2, partition=7)
    assert [message.value() for message in found] == [b"one", b"two"]
    for message in found:
        kind, at = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before - 1 <= at <= time.time() * 1000


def test_topics_have_eight_partitions_unless_they_say_otherwise(kafka_server: KafkaServer) -> None:
    names = new_name(), new_name()
    kafka_server.create_topic(names[0])
    kafka_server.create_topic(names[1], partitions=3, retention_ms="1000")
    topics = kafka_server.admin().list_topics(timeout=PATIENCE).topics
    assert [len(topics[name].partitions) for name in names] == [8, 3]


def test_messages_of_nearly_ten_megabytes_are_taken(kafka_server: KafkaServer) -> None:
    topic = new_name()
    kafka_server.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_server.brokers, "message.max.bytes": 11_000_000})
    producer.produce(topic, b"x" * 10_000_000)
    assert producer.flush(PATIENCE) == 0
    [message] = consume(kafka_server, topic, 1)
    assert len(message.value() or b"") == 10_000_000


def test_a_killed_broker_comes_back_on_its_port_with_its_log(tmp_path: Path) -> None:
    with running(KafkaServer, tmp_path) as server:
        server.create_topic("kept", partitions=1)
        produce(server, "kept", b"before")
        port, pid = server.port, server.pid
        server.kill()
        assert not server.is_answering()
        with pytest.raises(KafkaException):
            server.admin().list_topics(timeout=1)
        server.restart()
        assert server.port == port
        assert server.pid not in (None, pid)
        produce(server, "kept", b"after")
        assert [message.value() for message in consume(server, "kept", 2)] == [b"before", b"after"]


def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingPartError, match=r"Kafka \(.*4\.1\.1\) is not installed; get it with: python -m "):
        KafkaServer(tmp_path)
