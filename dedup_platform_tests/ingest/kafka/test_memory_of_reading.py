"""What repeats itself is small in a topic: whoever reads it holds a little of what it becomes at a time."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from dedup_platform.sources.kafka import Place, Range
from dedup_platform.sources.kafka.reading import _portions, messages_of
from dedup_platform.stream import KafkaSource
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.ingest.kafka.conftest import NewTopic
from dedup_platform_tests.ingest.kafka.topics import Topic, event

LARGE = 900_000
MANY = 1000
MOST_MEGABYTES = 900


def produce_large(topic: Topic, where: str) -> None:
    """Messages that are large until they are packed, by their values or by their headers."""
    settings = {"compression.type": "zstd", "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({"bootstrap.servers": topic.server.brokers, **settings})
    for number in range(MANY):
        padding = {"padding": "x" * LARGE} if where == "value" else {}
        headers: list[tuple[str, str | bytes | None]] = [("padding", b"\0" * LARGE)] if where == "header" else []
        producer.produce(topic.name, json.dumps(event(number, **padding)), partition=0, headers=headers)
        producer.poll(0)
    assert producer.flush(300) == 0


@pytest.mark.parametrize("where", ["value", "header"])
def test_a_process_holds_a_part_of_them(where: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce_large(topic, where)
    command = [sys.executable, "-m", __name__, topic.server.brokers, topic.name]
    told = json.loads(subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout)
    assert told["messages"] == MANY
    assert told["most in a portion"] <= 6
    assert told["megabytes"] < MOST_MEGABYTES


def read_all(brokers: str, name: str) -> None:
    """Read the topic from its beginning, as a task does."""
    said = {"kind": "kafka", "brokers": brokers, "topic": name, "format": "json"}
    portions = _portions(messages_of(KafkaSource.model_validate(said), {}, Range(0, Place(0), MANY)))
    lengths = [len(portion) for portion in portions]
    # What getrusage tells is also of the process that this one was forked from.
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    megabytes = int(kilobytes) / 1024
    sys.stdout.write(json.dumps({"messages": sum(lengths), "most in a portion": max(lengths), "megabytes": megabytes}))


if __name__ == "__main__":
    read_all(*sys.argv[1:])
