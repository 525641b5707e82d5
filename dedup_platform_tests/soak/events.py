"""Events for a soak: sessions that grow, move over midnights, merge by late bridges; copies, and earlier arrivals."""

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from threading import Event

from confluent_kafka import Producer

from dedup_platform.testing import Record, record, utc
from dedup_platform.testing.delivery import fields

FIRST, ARRIVED = utc("2024-01-02T10:00"), utc("2024-03-01")
MINUTE = timedelta(minutes=1)
STEP = 10 * MINUTE
"""Time goes on by so much with each delivery."""
ENTITIES = 30
PARTITIONS = 4
MOST_WAITING = 2.0
"""Seconds between two deliveries."""


@dataclass
class Events:
    """What was sent to a topic, and what comes next."""

    topic: str
    random: Random
    sent: list[Record] = field(default_factory=list)
    deliveries: int = 0

    def produce(self, brokers: str, deliveries: int, enough: Event) -> None:
        """Send so many deliveries, or until it is enough."""
        # By default a client waits up to ten seconds before it connects again.
        patience = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 10}
        sending = {"enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 300_000}
        producer = Producer({"bootstrap.servers": brokers, "log_level": 0} | patience | sending)
        for _ in range(deliveries):
            for each in self._delivery():
                producer.produce(self.topic, each, partition=self.random.randrange(PARTITIONS))
            producer.poll(0)
            if enough.wait(self.random.uniform(0, MOST_WAITING)):
                break
        if left := producer.flush(120):
            raise TimeoutError(f"{left} messages were not taken")

    def _delivery(self) -> list[str]:
        self.deliveries += 1
        return [self._message() for _ in range(self.random.choice((1, 1, 2, 4, 8)))]

    def _message(self) -> str:
        if self.random.random() < 0.01:
            return "no record"
        event = self._event()
        self.sent.append(event)
        # Decoded again by the other field, an event is elsewhere.
        return json.dumps({**fields(event), "told": (event.event_time + 7 * MINUTE).isoformat()})

    def _event(self) -> Record:
        kind, now = self.random.random(), FIRST + self.deliveries * STEP
        if self.sent and kind < 0.15:
            return self.random.choice(self.sent)
        if self.sent and kind < 0.25:
            return self._earlier(self.random.choice(self.sent))
        is_late = kind < 0.5
        at = FIRST + self.random.random() * (now - FIRST) if is_late else now + self.random.randint(-40, 40) * MINUTE
        entity = None if self.random.random() < 0.03 else f"e{self.random.randrange(ENTITIES)}"
        quantity = self.random.choice((None, 1, 2))
        return record(entity, f"{len(self.sent)}", at, ARRIVED + len(self.sent) * MINUTE, quantity=quantity)

    def _earlier(self, sent: Record) -> Record:
        """Another one of the same key, which arrived before it and happened at another time."""
        away = self.random.choice((-35, -20, 0, 20, 35)) * MINUTE
        return replace(sent, event_time=sent.event_time + away, arrival_time=sent.arrival_time - MINUTE / 2)
