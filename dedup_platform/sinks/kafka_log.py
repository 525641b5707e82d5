"""What a sink in Kafka knows of itself: read from the topic of its positions, and from its own topic."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, astuple, dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # passed on

from dedup_platform.sinks.sink import Batch, Position, Refusal, SinkState, Totals
from dedup_platform.sources.kafka.client import Asking

_SECONDS = 30.0
_POSITION = "position"
_REFUSED = "refused/"
_SCHEMA = "schema/"
_COMPACTED = {"cleanup.policy": "compact", "segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.01"}

Places = Mapping[int, int]
"""Partition -> offset."""
Schemas = Mapping[str, Mapping[str, str]]
"""Name -> the text of a schema (`schema`), and what it is of (`format`)."""


@dataclass(frozen=True)
class LogState:
    """What the topic of positions tells."""

    position: Position | None = None
    began: Places = field(default_factory=dict)
    """Where the topic ended when the sink began: what was there before and did not come again is to go."""
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    of: str = ""
    """The stream and the table whose changes the topic has."""
    totals: Totals = field(default_factory=Totals)
    moved_at: datetime | None = None
    schemas: Schemas = field(default_factory=dict)
    """Those of messages that bear no id of a registry, and name one of these."""
    topic_id: str = ""
    """Which topic of this name it is about: one that was deleted and created again has another id."""

    def after(self, batch: Batch, began: Places, schemas: Schemas) -> "LogState":
        """What it tells after a batch, whose messages have one of these schemas."""
        began = {} if batch.completes else began
        refused, totals = batch.still_refused(self.refused), self.totals.after(batch)
        schemas = {**self.schemas, **schemas}
        return LogState(batch.after, began, refused, self.of, totals, schemas=schemas, topic_id=self.topic_id)

    def told(self) -> SinkState:
        """What the sink knows of itself by it."""
        return SinkState(self.position, dict(self.refused), self.totals, self.moved_at)

    def records(self, after: "LogState") -> Iterator[tuple[str, str | None]]:
        """Keys and values that lead from this to another one."""
        position = astuple(after.position) if after.position else None
        told = {"of": after.of, "position": position, "began": after.began, "topic": after.topic_id}
        yield _POSITION, json.dumps(told | {"totals": asdict(after.totals)})
        for name in after.schemas.keys() - self.schemas.keys():
            yield _SCHEMA + name, json.dumps(after.schemas[name])
        for key in self.refused.keys() - after.refused.keys():
            yield _REFUSED + key, None
        for key, each in after.refused.items():
            if self.refused.get(key) != each:
                yield _REFUSED + key, json.dumps(asdict(each))


class Log:
    """A topic and the one beside it that holds its positions."""

    def __init__(self, topic: str, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self.positions = f"{topic}.positions"
        self._options = dict(options)

    def create(self) -> None:
        """Create the topics where they are missing: the rows' with what brokers take for a new one."""
        wanted = [
            NewTopic(self.topic, num_partitions=-1, replication_factor=-1),
            NewTopic(self.positions, num_partitions=1, replication_factor=-1, config=_COMPACTED),
        ]
        asking = Asking(self._options)  # whose end would end its requests
        admin = asking.admin
        asking.answer(admin.describe_cluster(request_timeout=_SECONDS))
        there = admin.list_topics(timeout=_SECONDS).topics
        wanted = [each for each in wanted if each.topic not in there]
        if self.positions in there:
            self._check_compacted(admin)
        if not wanted:
            return
        for created in admin.create_topics(wanted, request_timeout=_SECONDS).values():
            try:
                _answer(created)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def _check_compacted(self, admin: AdminClient) -> None:
        """Raises ValueError if the positions would be deleted some day. Who may not see how topics are set up is
        trusted."""
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.positions)
        try:
            found = _answer(admin.describe_configs([asked], request_timeout=_SECONDS)[asked])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            return
        policy = found["cleanup.policy"].value
        if policy != "compact":
            raise ValueError(
                f"topic {self.positions} has cleanup.policy={policy}, so the brokers would delete how far the sink has "
                "come; set it to compact"
            )

    def read(self) -> LogState:
        """What the newest records of the positions' topic say; no position in a topic that is there no more."""
        newest: dict[str, bytes | None] = {}
        moved_at = None
        for message in self._committed(self.positions):
            newest[_text(message.key())] = message.value()
            moved_at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
        found = {key: json.loads(value) for key, value in newest.items() if value is not None}
        told = found.pop(_POSITION, None)
        refused = (Refusal(**each) for key, each in found.items() if key.startswith(_REFUSED))
        topic_id = self._topic_id()
        is_there = told is not None and told.get("topic", topic_id) == topic_id
        return LogState(
            Position(*told["position"]) if is_there else None,
            {int(partition): offset for partition, offset in told["began"].items()} if is_there else {},
            {each.key: each for each in refused},
            told["of"] if told else "",
            Totals(**told.get("totals", {})) if told else Totals(),
            moved_at,
            {key.removeprefix(_SCHEMA): each for key, each in found.items() if key.startswith(_SCHEMA)},
            topic_id,
        )

    def _topic_id(self) -> str:
        admin = AdminClient(self._options)  # whose end would end its requests
        asked = admin.describe_topics(TopicCollection([self.topic]), request_timeout=_SECONDS)
        return str(_answer(asked[self.topic]).topic_id)

    def ends(self) -> dict[int, int]:
        """Where each partition of the rows' topic ends; 0 where it holds nothing."""
        consumer = self._consumer()
        try:
            found = {}
            for place in self._partitions(consumer, self.topic):
                low, high = consumer.get_watermark_offsets(place, timeout=_SECONDS)
                found[place.partition] = high if high > low else 0
            return found
        finally:
            consumer.close()

    def older_than(self, began: Places) -> set[str]:
        """The keys that are in the topic, and whose newest message was there before these places."""
        old: set[str] = set()
        # A key may be in several partitions, which come in any order: others wrote it, or partitions were added.
        new: set[str] = set()
        for message in self._committed(self.topic):
            key = _text(message.key())
            if (message.offset() or 0) >= began.get(message.partition() or 0, 0):
                new.add(key)
            elif message.value() is None:
                old.discard(key)
            else:
                old.add(key)
        return old - new

    def _committed(self, topic: str) -> Iterator[Message]:
        """All messages of a topic up to its end, without those of transactions that were taken back."""
        consumer = self._consumer()
        try:
            places = self._partitions(consumer, topic)
            consumer.assign(places)
            left = {place.partition for place in places}
            while left:
                message = consumer.poll(_SECONDS)
                if message is None:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        reading = {
            "group.id": "dedup_platform.sinks",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # At the end of a topic brokers would wait for more, half a second.
            "fetch.wait.max.ms": 10,
        }
        return Consumer(self._options | reading)

    def _partitions(self, consumer: Consumer, topic: str) -> list[TopicPartition]:
        found = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return [TopicPartition(topic, number, OFFSET_BEGINNING) for number in sorted(found.partitions)]


def _answer(asked: Future[Any]) -> Any:
    try:
        return asked.result(_SECONDS)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None


def _text(key: bytes | str | None) -> str:
    """The key of a message; one that is not ours may be anything."""
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
