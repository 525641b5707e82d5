"""From a topic to a table: this platform, and Spark's own reader of Kafka as the floor."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark import __version__
from pyspark.sql import functions as F
from pyspark.sql.protobuf.functions import from_protobuf

from benchmarks.contender import Output, parquet_files
from benchmarks.contenders.ours import STREAM, Ours
from benchmarks.contenders.spark import SparkContender
from benchmarks.data import START
from benchmarks.topic import PLACE, SCHEMA_FILE
from dedup_platform.stream import Stream, load_stream
from dedup_platform.stream.schemas import read_protobuf

PACKAGES = tuple(f"org.apache.spark:spark-{name}_2.13:{__version__}" for name in ("sql-kafka-0-10", "protobuf"))

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
        self._platform = None
        for path in (self.settings.home / "control.db", self.settings.home / "catalog.db"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.settings.warehouse, ignore_errors=True)


class SparkFromTopic(SparkContender):
    """Spark's Structured Streaming and Kafka integration, read as a batch."""

    @property
    def conf(self) -> Mapping[str, str]:  # type: ignore[override]
        return {"spark.jars.packages": ",".join(PACKAGES)}

    def rebuild(self) -> dict[str, Any]:
        """Events: decoded, one row each."""
        descriptors = read_protobuf(Path(self.task.sources, SCHEMA_FILE))
        batch = from_protobuf("value", "Batch", binaryDescriptorSet=descriptors)
        events = self._messages().select(F.explode(batch["events"]).alias("event")).select("event.*")
        events.write.option("compression", "zstd").parquet(str(self.out / "events"))
        return {"records": self.spark.read.parquet(str(self.out / "events")).count()}

    def copy(self) -> dict[str, Any]:
        """Messages, as they are."""
        self._messages().write.option("compression", "zstd").parquet(str(self.out / "messages"))
        return {"messages": self.spark.read.parquet(str(self.out / "messages")).count()}

    def output(self) -> Output:
        return Output(parquet_files(self.out / "events"), [])

    def _messages(self) -> Any:
        place = json.loads(Path(self.task.sources, PLACE).read_text(encoding="utf-8"))
        read = self.spark.read.format("kafka").option("kafka.bootstrap.servers", place["brokers"])
        read = read.option("subscribe", place["topic"]).option("kafka.isolation.level", "read_committed")
        return read.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
