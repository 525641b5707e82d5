"""What a topic holds now, and the consumer group that lag is watched by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # names that it passes on
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from dedup_platform.sources.kafka.client import SECONDS_TO_ANSWER, Asking, failures_named, is_of_no_topic, properties
from dedup_platform.stream import KafkaSource

__all__ = ["OffsetExtent", "Topic", "TopicState"]


@dataclass(frozen=True)
class OffsetExtent:
    """The offsets of one partition: the first that is kept, the end of what is committed, and the end of the log."""

    first: int
    stable_end: int
    end: int


@dataclass(frozen=True)
class TopicState:
    """A topic at one moment. A topic that was deleted and created again has another `topic_id`."""

    topic_id: str
    stamps_append_time: bool
    extents: Mapping[int, OffsetExtent]


class Topic:
    """A topic at its brokers. Everything raises SourceError if they do not answer or know no such topic."""

    def __init__(self, source: KafkaSource, options: Mapping[str, str]) -> None:
        self.source = source
        self._options = options

    def state(self) -> TopicState:
        """What the topic holds now."""
        name = self.source.topic
        with failures_named(self.source):
            asking = Asking(properties(self.source, self._options))
            admin, answer = asking.admin, asking.answer
            described = self._described(asking)
            resource = ConfigResource(ResourceType.TOPIC, name)
            [found] = admin.describe_configs([resource], request_timeout=SECONDS_TO_ANSWER).values()
            settings = answer(found)
            partitions = [partition.id for partition in described.partitions]
            first = self._offsets(admin, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
            end = self._offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
            # Asked for last: it never goes back, so it is at most what the log's end is by now.
            stable = self._offsets(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        extents = {each: OffsetExtent(first[each], stable[each], max(end[each], stable[each])) for each in partitions}
        stamp = settings["message.timestamp.type"].value
        return TopicState(str(described.topic_id), stamp == "LogAppendTime", extents)

    def id_now(self) -> str | None:
        """What tells it from one of the same name that is made after it is deleted; None if there is none now."""
        with failures_named(self.source):
            try:
                return str(self._described(Asking(properties(self.source, self._options))).topic_id)
            except KafkaException as error:
                if is_of_no_topic(error):
                    return None
                raise

    def group_offsets(self, group: str, partitions: Iterable[int]) -> dict[int, int]:
        """What a consumer group has committed; partitions without any are left out."""
        asked = [TopicPartition(self.source.topic, each) for each in sorted(partitions)]
        with failures_named(self.source), _Closing(Consumer(self._of_group(group))) as consumer:
            told = consumer.committed(asked, timeout=SECONDS_TO_ANSWER)
        return {each.partition: each.offset for each in told if each.offset >= 0}

    def commit_group(self, group: str, offsets: Mapping[int, int]) -> None:
        """Tell a consumer group how far the topic has been read."""
        told = [TopicPartition(self.source.topic, partition, offset) for partition, offset in sorted(offsets.items())]
        with failures_named(self.source), _Closing(Consumer(self._of_group(group))) as consumer:
            consumer.commit(offsets=told, asynchronous=False)

    def _described(self, asking: Asking) -> TopicDescription:
        asked = TopicCollection([self.source.topic])
        [found] = asking.admin.describe_topics(asked, request_timeout=SECONDS_TO_ANSWER).values()
        return asking.answer(found)

    def _of_group(self, group: str) -> dict[str, Any]:
        return {**properties(self.source, self._options), "group.id": group, "enable.auto.commit": False}

    def _offsets(
        self, admin: AdminClient, partitions: Iterable[int], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[int, int]:
        asked = {TopicPartition(self.source.topic, each): spec for each in partitions}
        futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=SECONDS_TO_ANSWER)
        return {place.partition: future.result().offset for place, future in futures.items()}


class _Closing:
    """A consumer that is closed at the end of a block."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
