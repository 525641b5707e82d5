"""Structured Streaming: one query keeps the first of each key, another one builds sessions from what it wrote."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, functions as F

from benchmarks.contender import SESSION_COLUMNS, TIMEOUT_MINUTES, Output
from benchmarks.contenders.spark import KEY, SparkContender, local_paths
from benchmarks.data import EVENT_COLUMNS

_NOTHING_IS_LOST = "1000 days"


class Streaming(SparkContender):
    """`availableNow` over what waits. The watermark is so far behind that no event is too late, as for the others."""

    conf = {  # noqa: RUF012  (as in every contender)
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # Each partition keeps a store of its own: two hundred would be slow.
        "spark.sql.shuffle.partitions": "8",
    }

    def rebuild(self) -> dict[str, Any]:
        return self.update()

    def update(self) -> dict[str, Any]:
        self._deduplicate()
        self._sessionize()
        read = self.spark.read
        return {"events": read.parquet(self._events).count(), "sessions": read.parquet(self._sessions).count()}

    def output(self) -> Output:
        read = self.spark.read
        # The sink's own log tells which files count; a plain listing may hold more.
        files = (read.parquet(folder).inputFiles() for folder in (self._events, self._sessions))
        return Output(*map(local_paths, files))

    def state_bytes(self) -> dict[str, int]:
        """Bytes of each query's state on disk, as kept for the next batch."""
        return {name: _size(self.out / "checkpoints" / name / "state") for name in ("events", "sessions")}

    @property
    def _events(self) -> str:
        return str(self.out / "events")

    @property
    def _sessions(self) -> str:
        return str(self.out / "sessions")

    def _deduplicate(self) -> None:
        schema = self.spark.read.parquet(self.task.sources).select(*EVENT_COLUMNS).schema
        records = self.spark.readStream.schema(schema).parquet(self.task.sources)
        unique = records.withWatermark("event_time", _NOTHING_IS_LOST).dropDuplicatesWithinWatermark(KEY)
        query = (
            unique.writeStream.format("parquet")
            .option("compression", "zstd")
            .option("path", self._events)
            .option("checkpointLocation", str(self.out / "checkpoints" / "events"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _sessionize(self) -> None:
        schema = self.spark.read.parquet(self._events).schema
        events = self.spark.readStream.schema(schema).parquet(self._events)
        sessions = (
            events.withWatermark("event_time", _NOTHING_IS_LOST)
            .groupBy("entity_id", F.session_window("event_time", f"{TIMEOUT_MINUTES} minutes"))
            .agg(
                F.min("event_time").alias("started_at"),
                F.max("event_time").alias("ended_at"),
                F.count("*").alias("event_count"),
                F.sum("amount").alias("revenue"),
                F.count("page").alias("pages"),
            )
            .select(*SESSION_COLUMNS)
        )
        # Sessions cannot be written as updates, and appended only when closed: open ones must be there too.
        query = (
            sessions.writeStream.outputMode("complete")
            .foreachBatch(self._replace_sessions)
            .option("checkpointLocation", str(self.out / "checkpoints" / "sessions"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def _replace_sessions(self, sessions: DataFrame, _: int) -> None:
        sessions.write.mode("overwrite").option("compression", "zstd").parquet(self._sessions)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".crc")
