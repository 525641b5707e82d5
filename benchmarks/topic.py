"""A topic of a real broker, filled with batches of events as Protobuf."""

import json
import random
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from google.protobuf.message_factory import GetMessageClass

from benchmarks.data import START
from dedup_platform.stream.schemas import message_type, read_protobuf
from dedup_platform.testing.servers import KafkaServer
from dedup_platform.testing.servers.kafka import install_kafka

EVENTS_A_MESSAGE = 500
ENTITIES = 100_000
SCHEMA_FILE, PLACE = "events.proto", "topic.json"
"""Files of a task's sources: what messages are, and where the topic is."""

SCHEMA = """\
syntax = "proto3";
package bench;
message Event {
  string entity_id = 1;
  string event_id = 2;
  int64 event_time = 3;  // milliseconds since 1970
  string page = 4;
  int64 cents = 5;
  string details = 6;
}
message Batch { repeated Event events = 1; }
"""


@contextmanager
def topic(folder: Path, events: int) -> Iterator[Path]:
    """A topic of 8 partitions while the block runs: the folder of sources that tells where it is."""
    shutil.rmtree(folder, ignore_errors=True)  # an earlier run's
    folder.mkdir(parents=True)
    schema = folder / SCHEMA_FILE
    schema.write_text(SCHEMA, encoding="utf-8")
    install_kafka()
    with KafkaServer(folder / "broker") as server:
        server.create_topic("events", 8, max_message_bytes="9000000")
        _fill(server.brokers, schema, events)
        (folder / PLACE).write_text(json.dumps({"brokers": server.brokers, "topic": "events"}), encoding="utf-8")
        yield folder


def _fill(brokers: str, schema: Path, events: int) -> None:
    make = GetMessageClass(message_type(read_protobuf(schema), "bench.Batch"))
    chance = random.Random(1)
    entities = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(ENTITIES)]
    start = int(START.timestamp() * 1000)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 50})
    for first in range(0, events, EVENTS_A_MESSAGE):
        batch = make()
        for number in range(first, min(first + EVENTS_A_MESSAGE, events)):
            batch.events.add(
                entity_id=chance.choice(entities),
                event_id=f"event-{number:09d}",
                event_time=start + chance.randrange(2 * 86_400_000),
                page=f"/page/{chance.randrange(1000)}",
                cents=chance.randrange(100_000),
                details=chance.randbytes(50).hex(),
            )
        producer.produce("events", batch.SerializeToString())
        producer.poll(0)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} messages were not taken by the broker")
