"""Copies in Kafka of Avro and of Protobuf follow a stream, also when it gets other columns."""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from dedup_platform.errors import SinkError
from dedup_platform.sinks.kafka_log import Log
from dedup_platform.sinks.opening import KEYS
from dedup_platform.stream import Attribute, KafkaSink, Publish
from dedup_platform.tables import DEDUPLICATED_EVENTS, SESSIONS, column_names
from dedup_platform.testing.servers import KafkaServer
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.reading import READERS
from dedup_platform_tests.sources.registries import Registry, schema_registry

TYPES = {
    "page": "string",
    "amount": "decimal(12,2)",
    "quantity": "long",
    "share": "double",
    "is_new": "boolean",
    "seen": "timestamp",
    "day": "date",
}
VALUES = {
    "page": "/ünï",
    "amount": "-12.50",
    "quantity": "-9007199254740993",
    "share": "0.1",
    "is_new": "true",
    "seen": "2024-01-02T10:00:00.123456Z",
    "day": "2024-01-02",
}
AGGREGATES = {"revenue": ("sum", "amount"), "first_seen": ("min", "seen"), "last_day": ("max", "day")}


class Topic:
    """A sink, and a consumer that knows the registry, or what messages name, and nothing else."""

    def __init__(self, brokers: str, registry: Registry | None, follows: str, **said: str) -> None:
        self.registry, self._follows = registry, follows
        where = {"kind": "kafka", "brokers": brokers, "topic": new_name("copies-"), "follows": follows}
        known = {"registry": registry.url} if registry else {}
        self.sink = KafkaSink.model_validate(where | known | said)
        self._log = Log(self.sink.topic, {"bootstrap.servers": brokers})

    def rows(self) -> list[Any]:
        """The topic folded by key."""
        newest = {message.key(): message for message in self._log._committed(self.sink.topic)}
        values = (self._value(message) for message in newest.values() if message.value() is not None)
        return [value["after"] if self.sink.envelope == "debezium" else value for value in values]

    def _value(self, message: Message) -> Any:
        value = message.value()
        assert isinstance(value, bytes)
        if self.registry is None:
            name = dict(message.headers() or ())["dedup_platform.schema"]
            assert isinstance(name, bytes)
            return READERS[self.sink.format](self._named()[name.decode()])(value)
        assert value[0] == 0
        subject, kind, text = self.registry.registered[int.from_bytes(value[1:5]) - 1]
        assert (subject, kind) == (f"{self.sink.topic}-value", self.sink.format.upper())
        assert kind == "AVRO" or value[5] == 0
        return READERS[self.sink.format](text)(value[5 if kind == "AVRO" else 6 :])

    def _named(self) -> Mapping[str, str]:
        told = {str(each.key(), "utf-8"): each.value() for each in self._log._committed(self._log.positions)}  # type: ignore[arg-type]
        return {
            key.removeprefix("schema/"): json.loads(value or b"")["schema"]
            for key, value in told.items()
            if key.startswith("schema/")
        }


class Copied(Followed):
    """A stream with attributes of all types, and a sink."""

    def __init__(self, folder: Path, topic: Topic) -> None:
        super().__init__(folder, attributes=TYPES, aggregates=AGGREGATES)
        self.topic = topic
        self.stream = self.stream.model_copy(update={"publish": Publish(sinks={"copy": topic.sink})})

    def add_attribute(self) -> None:
        """In the middle of those there are, as people write it into a file."""
        before = self.stream.fields.attributes
        attributes = {"colour": Attribute(field="colour"), **before}
        fields = self.stream.fields.model_copy(update={"attributes": attributes})
        self.stream = self.stream.model_copy(update={"fields": fields})

    def copy(self) -> None:
        self.platform.publish(EVENTS, "copy")

    def table(self) -> list[Any]:
        """The rows of the table, with the types that the format has."""
        loaded = self.platform.lake.catalog.load_table(EVENTS, self.topic.sink.follows)
        rows = loaded.scan().to_arrow().to_pylist()
        return rows if self.topic.sink.format == "avro" else [_as_texts(row) for row in rows]

    def is_equal(self) -> bool:
        names = column_names(self.stream, self.topic.sink.follows)
        key = KEYS[self.topic.sink.follows]
        pairs = [
            ({name: row.get(name) for name in names} for row in rows) for rows in (self.topic.rows(), self.table())
        ]
        found, expected = (sorted(each, key=lambda row: [str(row[name]) for name in key]) for each in pairs)
        return found == expected and bool(found)


def _as_texts(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if type(value) in (Decimal, date) else value for name, value in row.items()}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as registry:
        yield registry


@pytest.mark.parametrize(
    ("format_", "envelope", "follows", "has_registry"),
    [
        ("avro", "debezium", SESSIONS, True),
        ("avro", "row", DEDUPLICATED_EVENTS, False),
        ("protobuf", "debezium", DEDUPLICATED_EVENTS, True),
        ("protobuf", "row", SESSIONS, False),
    ],
)
def test_the_topic_is_the_table_also_with_another_column(
    tmp_path: Path, kafka_server: KafkaServer, registry: Registry, format_: str, envelope: str, follows: str, *,
    has_registry: bool,
) -> None:  # fmt: skip
    known = registry if has_registry else None
    topic = Topic(kafka_server.brokers, known, follows, format=format_, envelope=envelope)
    with replaced(has_spark=False):
        copied = Copied(tmp_path, topic)
        for number in range(2):
            copied.take_in(
                copied.event(f"{number}", 45 * number, **VALUES), copied.event(f"n{number}", 45 * number + 5)
            )
            copied.copy()
            assert copied.is_equal()
        copied.add_attribute()
        copied.take_in(copied.event("late", 25, **VALUES, colour="red"), copied.event("other", 600, entity="o"))
        copied.copy()
        assert copied.is_equal()
        if follows == DEDUPLICATED_EVENTS:
            assert [row["colour"] for row in topic.rows() if row.get("colour")] == ["red"]
            assert len(registry.registered) == (2 if has_registry else 0)


def test_a_registry_that_was_down_costs_nothing(tmp_path: Path, kafka_server: KafkaServer, registry: Registry) -> None:
    topic = Topic(kafka_server.brokers, registry, SESSIONS, format="avro")
    with replaced(has_spark=False):
        copied = Copied(tmp_path, topic)
        copied.take_in(copied.event("a", 0))
        registry.status, registry.reason = 409, "incompatible"
        with pytest.raises(SinkError, match=r"events: sink copy: .*answers 409 .*: incompatible\. Name another topic"):
            copied.copy()
        assert copied.platform.sinks.health(EVENTS, "copy").state == "failing"
        copied.take_in(copied.event("b", 60), copied.event("late", 25))
        registry.status = 200
        copied.copy()
        assert copied.is_equal()
        assert copied.platform.sinks.health(EVENTS, "copy").state == "normal"


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_the_schema_can_be_asked_for(
    tmp_path: Path, kafka_server: KafkaServer, registry: Registry, format_: str
) -> None:
    topic = Topic(kafka_server.brokers, registry, SESSIONS, format=format_)
    with replaced(has_spark=False):
        copied = Copied(tmp_path, topic)
        told = copied.platform.sinks.schema(EVENTS, "copy")
        copied.take_in(copied.event("a", 0))
        copied.copy()
        assert copied.platform.sinks.schema(EVENTS, "copy") == told
        assert [text for _, _, text in registry.registered] == [told]
        json_sink = topic.sink.model_copy(update={"format": "json", "registry": None})
        copied.stream = copied.stream.model_copy(update={"publish": Publish(sinks={"copy": json_sink})})
        assert copied.platform.sinks.schema(EVENTS, "copy") is None
