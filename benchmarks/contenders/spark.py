"""What the contenders on plain Spark share: a session, and the tutorial's windows.

Nobody counts what they read: Spark's own count leaves out what its Parquet reader reads ahead in other threads.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from benchmarks.contender import SESSION_COLUMNS, TIMEOUT_MINUTES, Contender, Task
from benchmarks.data import EVENT_COLUMNS

KEY = ["entity_id", "event_id"]


class SparkContender(Contender):
    """A contender with a Spark session of its own, as its users would set it up: local, with adaptive execution."""

    conf: Mapping[str, str] = {}
    """What the contender sets beyond that."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The session, started at first use."""
        if self._spark is None:
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = SparkSession.builder.master("local[*]").appName("benchmark")
            for key, value in {**self._usual(), **self.conf}.items():
                builder = builder.config(key, value)
            self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark

    def prepare(self) -> None:
        self.spark.range(1).count()

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
            # Everybody writes with the same: it is quicker than the default, and the files are hardly larger.
            "spark.hadoop.parquet.compression.codec.zstd.level": "1",
            "spark.sql.warehouse.dir": str(Path(self.task.logs) / "spark-warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(Path(self.task.logs) / "spill"),
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
