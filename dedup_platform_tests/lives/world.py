"""What is delivered in a life: few entities, few event ids, times near midnight and a timeout or a window apart."""

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Self
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # passed on

from dedup_platform.stream import Deduplicate, KafkaSource, Partitions, Sessions, Stream
from dedup_platform.testing.delivery import fields, make_stream, write_file
from dedup_platform.testing.records import Record, lay_out, record

TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
FIRST = 12
"""Records of the first file."""
PARTITIONS = 6
"""Most events lie in so many."""
TOPIC_PARTITIONS = 2


@dataclass
class World:
    """A stream, its folder of files, and all that was delivered to it."""

    stream: Stream
    timeouts: tuple[timedelta, timedelta]
    windows: tuple[timedelta, timedelta]
    files: dict[str, list[Record]] = field(default_factory=dict)
    """Path -> the records of its newest content."""
    _sessions: Sessions | None = None
    """Those that are not in the stream file now."""

    @classmethod
    def of(cls, folder: Path, random: Random) -> Self:
        """A stream by days or hours, whose timeout and window may be longer than a partition."""
        granularity = random.choice(("day", "hour"))
        length = timedelta(days=1) if granularity == "day" else HOUR
        timeouts = random.choice(((length / 48, length / 4), (length / 2, length * 1.5), (length, length / 48)))
        windows = random.choice(((length, length * 0), (length / 2, length * 2), (length, length / 4)))
        made = make_stream(folder, granularity=granularity, buckets=0)
        world = cls(made, timeouts, windows)
        world.settle_for(timeouts[0], windows[0])
        return world

    @property
    def sent(self) -> int | None:
        """How many records must have been read in the end; None if the ledger knows better."""
        return None

    @property
    def length(self) -> timedelta:
        return self.stream.partitions.length

    def settle_for(self, timeout: timedelta, window: timedelta) -> None:
        """Change the rules of the stream file."""
        key, aggregates = self.stream.deduplicate.key, self.stream.aggregates
        rules: dict[str, Deduplicate | Sessions] = {"deduplicate": Deduplicate(key=key, window=window)}
        if self.stream.sessions:
            rules["sessions"] = Sessions(timeout=timeout, aggregates=aggregates)
        self.stream = self.stream.model_copy(update=rules)

    def switch_sessions(self) -> None:
        """Take the sessions out of the stream file, or put them in again."""
        self.stream, self._sessions = self.stream.model_copy(update={"sessions": self._sessions}), self.stream.sessions

    def tell_time_by(self, field: str) -> None:
        """Change the field of a record that tells when it happened; what was taken in needs a redecode."""
        told = self.stream.fields.event_time.model_copy(update={"field": field})
        fields = self.stream.fields.model_copy(update={"event_time": told})
        self.stream = self.stream.model_copy(update={"fields": fields})

    def start_at(self, partitions_on: int) -> None:
        """Move the start of the stream."""
        start = self.stream.partitions.start_of(self.first + partitions_on)
        moved = Partitions(granularity=self.stream.partitions.granularity, start=start)
        self.stream = self.stream.model_copy(update={"partitions": moved})

    @property
    def first(self) -> int:
        """The partition that all events are near to."""
        return 19_800 * (timedelta(days=1) // self.length)

    def deliver(self, random: Random) -> None:
        """Put a file or two into the folder."""
        for _ in range(random.choice((1, 1, 2))):
            name = f"{random.randrange(1000):03}-{len(self.files)}.json"
            # Many at first, for something to be there. Then few at a time: what many touch, all widening would touch.
            count = random.choice((1, 1, 2, 5)) if self.files else random.choice((1, FIRST, FIRST))
            records = [self._record(random) for _ in range(count)]
            self._write(name, lay_out(records, name))

    def change(self, random: Random) -> bool:
        """Write other content into a file that is there; whether there is one."""
        if not self.files:
            return False
        name = random.choice(sorted(self.files))
        (self.stream.files.root / name).unlink()
        self._write(name, lay_out([self._record(random) for _ in range(random.randint(1, 3))], name))
        return True

    def _write(self, name: str, records: list[Record]) -> None:
        self.files[name] = records
        write_file(self.stream.files.root / name, records)

    def _again(self, random: Random, sent: Record) -> Record:
        """The same once more, or one of its key that may beat it: nearer to another session, and arrived earlier."""
        if random.random() < 0.3:
            return sent
        away = random.choice((-1, 1)) * random.choice((self.windows[0], self.windows[0] / 2, self.timeouts[0]))
        earlier = random.choice((timedelta(), HOUR, HOUR, -HOUR))
        return replace(sent, event_time=sent.event_time + away, arrival_time=sent.arrival_time - earlier)

    def _record(self, random: Random) -> Record:
        known = [each for records in self.files.values() for each in records]
        if known and random.random() < 0.45:
            return self._again(random, random.choice(known))
        step = random.choice((self.timeouts[0], self.timeouts[0] / 2, self.timeouts[1], self.windows[0]))
        near = self.stream.partitions.start_of(self.first) + random.randrange(PARTITIONS) * self.length
        time = near + random.randint(-2, 1) * step + random.choice((timedelta(), timedelta(), TICK, -TICK))
        arrival = near + random.randint(0, 6) * HOUR
        entity = random.choice(("a", "a", "b", "c", "d", None))
        return record(entity, random.choice("qrstuvwxyz"), time, arrival, quantity=random.choice((None, 1, 2)))


class TopicWorld(World):
    """The same from a topic of a real broker, in which nothing that was sent can be changed."""

    @classmethod
    def reading(cls, folder: Path, random: Random, brokers: str) -> Self:
        """A stream of a topic of its own."""
        world = cls.of(folder, random)
        topic = f"life-{uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": brokers})
        admin.create_topics([NewTopic(topic, TOPIC_PARTITIONS, 1)])[topic].result()
        source = KafkaSource(kind="kafka", brokers=brokers, topic=topic, format="json")
        world.stream = world.stream.model_copy(update={"source": source})
        return world

    @property
    def sent(self) -> int:
        return sum(map(len, self.files.values()))

    def change(self, random: Random) -> bool:  # noqa: ARG002
        """Never: a topic is only added to."""
        return False

    def _write(self, name: str, records: list[Record]) -> None:
        self.files[name] = records
        source = self.stream.kafka
        producer = Producer({"bootstrap.servers": source.brokers})
        for number, each in enumerate(records):
            partition = (len(self.files) + number // 2) % TOPIC_PARTITIONS
            producer.produce(source.topic, json.dumps(fields(each)), partition=partition)
        if producer.flush(30):
            raise TimeoutError(f"{source.topic}: the broker did not take all messages within 30 s")
