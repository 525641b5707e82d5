"""From a topic to a table: this platform, and Spark's own reader of Kafka as the floor."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.contender import Output
from benchmarks.contenders.ours import STREAM, Ours
from benchmarks.contenders.spark import SparkContender
from benchmarks.data import START
from benchmarks.topic import PLACE, SCHEMA_FILE
from dedup_platform.spark.jars import install_for_spark, jars_conf
from dedup_platform.stream import Stream, load_stream

JARS_OF_READER = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    # Not every registry has a later one.
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)

_STREAM_FILE = """\
name: {name}
source:
  kind: kafka
  brokers: {brokers}
  topic: {topic}
  format: protobuf
  protobuf: {{schema: {schema}, message: bench.Batch, records: events}}
  transaction_timeout: 10m
fields:
  entity_id: entity_id
  event_id: event_id
  event_time: {{field: event_time, format: epoch_ms}}
  attributes: {{page: page, cents: {{field: cents, type: long}}, details: details}}
partitions: {{granularity: day, start: {start:%Y-%m-%d}}}
buckets: {buckets}
sessions: {{timeout: 30m}}
late: {{max_future: 36500d}}
"""


class OursFromTopic(Ours):
    """Takes in the whole topic."""

    @property
    def stream(self) -> Stream:
        file = Path(self.task.home) / f"{STREAM}.yaml"
        place = json.loads(Path(self.task.sources, PLACE).read_text(encoding="utf-8"))
        schema = Path(self.task.sources, SCHEMA_FILE)
        text = _STREAM_FILE.format(name=STREAM, schema=schema, start=START, buckets=self.task.buckets, **place)
        file.write_text(text, encoding="utf-8")
        return load_stream(file)

    def clear(self) -> None:
        self.clear_all()


class SparkFromTopic(SparkContender):
    """Spark's own reader of Kafka, as a batch."""

    @property
    def conf(self) -> Mapping[str, str]:  # type: ignore[override]
        install_for_spark(JARS_OF_READER, is_complete=True)
        return jars_conf(JARS_OF_READER)

    def rebuild(self) -> dict[str, Any]:
        """Messages as they are, not decoded."""
        place = json.loads(Path(self.task.sources, PLACE).read_text(encoding="utf-8"))
        read = self.spark.read.format("kafka").option("kafka.bootstrap.servers", place["brokers"])
        read = read.option("subscribe", place["topic"]).option("kafka.isolation.level", "read_committed")
        messages = read.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
        messages.write.option("compression", "zstd").parquet(str(self.out / "messages"))
        return {}

    def output(self) -> Output:
        """Messages are neither events nor sessions."""
        return Output([], [])
