"""What table formats' manuals teach: `MERGE INTO` keeps each key once, and sessions are built anew from the events."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, functions as F

from benchmarks.contenders.spark import KEY, SparkContender, sessions_by_window
from benchmarks.data import EVENT_COLUMNS


class Merging(SparkContender):
    """Reads the files that it has not read yet and merges them; remembers which in a file of its own."""

    events: str
    """How SQL names the table of events."""
    values: Mapping[str, str] = {name: f"arrived.{name}" for name in EVENT_COLUMNS}
    """Column of that table -> what is inserted into it, in SQL over `arrived`."""

    def rebuild(self) -> dict[str, Any]:
        self.create_events()
        return self.update()

    def update(self) -> dict[str, Any]:
        seen = self._seen()
        fresh = [str(file) for file in sorted(Path(self.task.sources).glob("*.parquet")) if file.name not in seen]
        if fresh:
            self._merge(self.spark.read.parquet(*fresh).select(*EVENT_COLUMNS))
        events = self.spark.read.table(self.events)
        self.replace_sessions(sessions_by_window(events))
        self._memory.write_text(json.dumps([*seen, *(Path(file).name for file in fresh)]), encoding="utf-8")
        return {"events": self.spark.read.table(self.events).count(), "sessions": self.sessions().count()}

    @abstractmethod
    def create_events(self) -> None:
        """Create the empty table of events, partitioned by day."""

    @abstractmethod
    def replace_sessions(self, sessions: DataFrame) -> None:
        """Let the table of sessions hold these."""

    @abstractmethod
    def sessions(self) -> DataFrame:
        """The table of sessions."""

    def _merge(self, records: DataFrame) -> None:
        # Copies share their event time, or nearly so: with bounds, only the days that can hold one are read.
        first, last = records.agg(F.min("event_time"), F.max("event_time")).collect()[0]
        day = timedelta(days=1)
        records.dropDuplicates(KEY).createOrReplaceTempView("arrived")
        self.spark.sql(f"""
            MERGE INTO {self.events} AS known USING arrived
            ON known.entity_id = arrived.entity_id AND known.event_id = arrived.event_id
                AND known.event_time >= TIMESTAMP '{first - day:%Y-%m-%d %H:%M:%S}'
                AND known.event_time <= TIMESTAMP '{last + day:%Y-%m-%d %H:%M:%S}'
            WHEN NOT MATCHED THEN INSERT ({", ".join(self.values)}) VALUES ({", ".join(self.values.values())})""")

    @property
    def _memory(self) -> Path:
        return self.out / "seen.json"

    def _seen(self) -> list[str]:
        return list(json.loads(self._memory.read_text(encoding="utf-8"))) if self._memory.exists() else []
