"""What a good tutorial writes in PySpark: `dropDuplicates`, window functions, Parquet."""

from typing import Any

from benchmarks.contender import Output, parquet_files
from benchmarks.contenders.spark import KEY, SparkContender, sessions_by_window


class Naive(SparkContender):
    """Two jobs: all events once, then sessions from the events that were written."""

    def rebuild(self) -> dict[str, Any]:
        events, sessions = str(self.out / "events"), str(self.out / "sessions")
        self.sources().dropDuplicates(KEY).write.option("compression", "zstd").parquet(events)
        by_window = sessions_by_window(self.spark.read.parquet(events))
        by_window.write.option("compression", "zstd").parquet(sessions)
        read = self.spark.read
        return {"events": read.parquet(events).count(), "sessions": read.parquet(sessions).count()}

    def output(self) -> Output:
        return Output(parquet_files(self.out / "events"), parquet_files(self.out / "sessions"))
