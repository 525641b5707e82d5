"""What the contenders on Spark share: a plain session, its count of bytes read, and the tutorial's windows."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from benchmarks.contender import SESSION_COLUMNS, TIMEOUT_MINUTES, Contender, Task
from benchmarks.data import EVENT_COLUMNS
from dedup_platform.spark import use_this_python

KEY = ["entity_id", "event_id"]


def recording(logs: Path) -> dict[str, str]:
    """Spark properties that make the session tell what it reads, and spill beside its log."""
    events, spill = logs / "spark-events", logs / "spill"
    for folder in (events, spill):
        folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(spill),
    }


class EventLog:
    """Sums what the tasks of an application say they read, from the log that Spark keeps while it runs."""

    def __init__(self, logs: Path, application: str) -> None:
        self._file = logs / "spark-events" / f"{application}.inprogress"
        self._place = 0
        self._sum = 0

    def bytes_read(self) -> int:
        """Bytes that tasks read from files so far; shuffled data is not in it."""
        with self._file.open("rb") as log:
            log.seek(self._place)
            for line in log:
                if line.endswith(b"\n"):
                    self._place += len(line)
                    self._sum += _input_bytes(line)
        return self._sum


def _input_bytes(line: bytes) -> int:
    if b'"Event":"SparkListenerTaskEnd"' not in line[:60]:
        return 0
    metrics = json.loads(line).get("Task Metrics") or {}
    return int(metrics.get("Input Metrics", {}).get("Bytes Read", 0))


class SparkContender(Contender):
    """A contender with a Spark session of its own, as its users would set it up: local, with adaptive execution."""

    conf: Mapping[str, str] = {}
    """What the contender sets beyond that."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._spark: SparkSession | None = None
        self._log: EventLog | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, started at first use."""
        if self._spark is None:
            use_this_python()
            builder = SparkSession.builder.master("local[*]").appName("benchmark")
            for key, value in {**self._usual(), **self.conf}.items():
                builder = builder.config(key, value)
            self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
            self._log = EventLog(Path(self.task.logs), self._spark.sparkContext.applicationId)
        return self._spark

    def prepare(self) -> None:
        self.spark.range(1).count()

    def bytes_read(self) -> int | None:
        return self._log.bytes_read() if self._log else 0

    def sources(self) -> DataFrame:
        """All records."""
        return self.spark.read.parquet(self.task.sources).select(*EVENT_COLUMNS)

    def _usual(self) -> dict[str, Any]:
        return {
            "spark.driver.memory": self.task.memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(Path(self.task.logs) / "spark-warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            **recording(Path(self.task.logs)),
        }


def sessions_by_window(events: DataFrame) -> DataFrame:
    """Sessions as tutorials build them: `lag`, a running sum of the splits, and a group by its number."""
    in_order = Window.partitionBy("entity_id").orderBy("event_time")
    gap = F.unix_micros("event_time") - F.lag(F.unix_micros("event_time")).over(in_order)
    splits = F.coalesce(gap > TIMEOUT_MINUTES * 60 * 1_000_000, F.lit(False)).cast("int")
    return (
        events.select("entity_id", "event_time", "page", "amount")
        .withColumn("number", F.sum(splits).over(in_order))
        .groupBy("entity_id", "number")
        .agg(
            F.min("event_time").alias("started_at"),
            F.max("event_time").alias("ended_at"),
            F.count("*").alias("event_count"),
            F.sum("amount").alias("revenue"),
            F.count("page").alias("pages"),
        )
        .select(*SESSION_COLUMNS)
    )


def local_paths(files: list[str]) -> list[str]:
    """Paths of this machine from the URIs that Spark gives."""
    return [unquote(file.removeprefix("file://")) for file in files]
