"""Topics of a real broker, made and filled by tests, and streams that read them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # passed on
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing.platforms import session_of
from dedup_platform.testing.servers import KafkaServer

START = datetime(2026, 11, 20, tzinfo=UTC)
NAME = "clicks"


def event(number: int, user: str = "ann", **more: Any) -> dict[str, Any]:
    """The event of this number: one each second."""
    return {"user": user, "id": f"e{number}", "at": (START + timedelta(seconds=number)).isoformat(), **more}


@dataclass
class Topic:
    """A topic of its own to each test."""

    server: KafkaServer
    name: str

    def produce(
        self,
        *values: Any,
        partition: int = 0,
        key: str | bytes | None = None,
        stamp: int | None = None,
        **settings: Any,
    ) -> None:
        """Append messages to one partition, and wait until they are there; what is neither bytes nor None is JSON.

        `stamp` are milliseconds since 1970.
        """
        stamped: dict[str, Any] = {} if stamp is None else {"timestamp": stamp}
        producer = Producer({"bootstrap.servers": self.server.brokers, "message.max.bytes": 9_000_000, **settings})
        for value in values:
            text = value if value is None or isinstance(value, bytes) else json.dumps(value)
            producer.produce(self.name, text, key=key, partition=partition, **stamped)
        assert producer.flush(30) == 0

    def produce_in_transaction(self, *values: Any, partition: int = 0, commit: bool) -> None:
        """Append messages in one transaction, which is then committed or aborted."""
        producer = self.transaction(*values, partition=partition)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def transaction(self, *values: Any, partition: int = 0) -> Producer:
        """Append messages in a transaction that stays open."""
        producer = Producer({"bootstrap.servers": self.server.brokers, "transactional.id": f"{self.name}.{partition}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.name, json.dumps(value), partition=partition)
        assert producer.flush(30) == 0
        return producer

    def add_partitions(self, total: int) -> None:
        """Let the topic have so many partitions."""
        admin = self.admin()
        admin.create_partitions([NewPartitions(self.name, total)])[self.name].result()

    def delete_before(self, offset: int, partition: int = 0) -> None:
        """Delete the first messages, as retention does."""
        admin = self.admin()
        [deleted] = admin.delete_records([TopicPartition(self.name, partition, offset)]).values()
        deleted.result()

    def delete(self) -> None:
        """Delete the topic, and wait until it is gone."""
        admin = self.admin()
        admin.delete_topics([self.name], operation_timeout=30)[self.name].result()

    def admin(self) -> AdminClient:
        """A client that administers the broker; whoever waits for its answers must hold it meanwhile."""
        return self.server.admin()

    def places(self) -> set[tuple[int, int]]:
        """Partition and offset of every committed message, by a consumer that shares nothing with the platform."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.brokers,
                "group.id": "counts",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found: set[tuple[int, int]] = set()
        try:
            partitions = consumer.list_topics(self.name, timeout=30).topics[self.name].partitions
            consumer.assign([TopicPartition(self.name, number, 0) for number in partitions])
            ended: set[int | None] = set()
            while len(ended) < len(partitions):
                for message in consumer.consume(10_000, 1.0):
                    if message.error():
                        ended.add(message.partition())
                    else:
                        found.add((int(message.partition() or 0), int(message.offset() or 0)))
        finally:
            consumer.close()
        return found

    def group_offsets(self, group: str) -> dict[int, int]:
        """What a consumer group has committed."""
        consumer = Consumer({"bootstrap.servers": self.server.brokers, "group.id": group, "enable.auto.commit": False})
        try:
            partitions = consumer.list_topics(self.name, timeout=30).topics[self.name].partitions
            told = consumer.committed([TopicPartition(self.name, number) for number in partitions], timeout=30)
        finally:
            consumer.close()
        return {each.partition: each.offset for each in told if each.offset >= 0}


def topic_stream(folder: Path, topic: Topic, *, fields: dict[str, Any] | None = None, **source: Any) -> Stream:
    """A stream of the topic; `fields` and `source` go before what is said here."""
    content = {
        "name": NAME,
        "source": {"kind": "kafka", "brokers": topic.server.brokers, "topic": topic.name, "format": "json", **source},
        "fields": {"entity_id": "user", "event_id": "id", "event_time": "at", **(fields or {})},
        "partitions": {"granularity": "day", "start": "2026-01-01"},
        "buckets": 2,
        "sessions": {"timeout": "30m"},
        # Events happen on a day of the test's choosing, and arrive when the test runs.
        "late": {"max_future": "36500d"},
    }
    path = folder / f"{NAME}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_stream(path)


def platform_of(home: Path, stream: Stream, spark: SparkSession, **settings: Any) -> Platform:
    """A platform with tables of its own in `home`, on a Spark session that runs already."""
    deployment = Settings(home=home, **settings)
    deployment.make_folders()
    session = session_of(deployment, spark)
    return Platform(deployment, {stream.name: stream}, spark=lambda: session)


def rows(platform: Platform, table: str = tables.RAW_EVENTS) -> list[dict[str, Any]]:
    """All rows of a table, in the order of their coordinates."""
    found: list[dict[str, Any]] = platform.read(NAME, table).toArrow().to_pylist()
    return sorted(
        found, key=lambda row: (row["source"], row["source_partition"], row["source_offset"], row["source_index"])
    )


def places_of(found: Iterable[dict[str, Any]]) -> list[tuple[int, int]]:
    """Partition and offset of each row."""
    return [(row["source_partition"], row["source_offset"]) for row in found]
