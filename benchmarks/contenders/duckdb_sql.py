"""DuckDB as its users would tune it: find the keys that repeat, then copy everything but their later records."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.contender import TIMEOUT_MINUTES, Contender, Output, Task, parquet_files, read_by_this_process
from benchmarks.data import EVENT_COLUMNS

_EVENTS = """
    COPY (
        SELECT {columns} FROM read_parquet('{sources}/*.parquet')
        LEFT JOIN (
            SELECT entity_id, event_id, min(arrival_time) AS first_arrival
            FROM read_parquet('{sources}/*.parquet') GROUP BY ALL HAVING count(*) > 1
        ) AS repeated USING (entity_id, event_id)
        WHERE first_arrival IS NULL OR arrival_time = first_arrival
    ) TO '{events}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PER_THREAD_OUTPUT true)"""
_SESSIONS = """
    COPY (
        WITH split AS (
            SELECT *, epoch_us(event_time) - lag(epoch_us(event_time)) OVER in_order > {timeout} * 60_000_000 AS splits
            FROM (SELECT entity_id, event_time, page, amount FROM read_parquet('{events}/*.parquet'))
            WINDOW in_order AS (PARTITION BY entity_id ORDER BY event_time)
        ), numbered AS (
            SELECT *, count(*) FILTER (splits) OVER (PARTITION BY entity_id ORDER BY event_time) AS number FROM split
        )
        SELECT entity_id, min(event_time) AS started_at, max(event_time) AS ended_at, count(*) AS event_count,
            sum(amount) AS revenue, count(page) AS pages
        FROM numbered GROUP BY entity_id, number
    ) TO '{sessions}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PER_THREAD_OUTPUT true)"""


class DuckDbSql(Contender):
    """Two statements over files."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._connection = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
        self._connection.execute(f"SET temp_directory = '{Path(task.logs) / 'duckdb-spill'}'")

    def rebuild(self) -> dict[str, Any]:
        self.out.mkdir(parents=True)
        return self._built(self.task.sources, EVENT_COLUMNS)

    def _built(self, sources: str, columns: Sequence[str]) -> dict[str, Any]:
        """Events and sessions of the Parquet files in some folders."""
        events, sessions = self.out / "events", self.out / "sessions"
        places = {"sources": sources, "events": events, "sessions": sessions, "timeout": TIMEOUT_MINUTES}
        self._connection.execute(_EVENTS.format(columns=", ".join(columns), **places))
        self._connection.execute(_SESSIONS.format(**places))
        return {"events": self._count(events), "sessions": self._count(sessions)}

    def bytes_read(self) -> int | None:
        return read_by_this_process()

    def output(self) -> Output:
        return Output(parquet_files(self.out / "events"), parquet_files(self.out / "sessions"))

    def _count(self, folder: Path) -> int:
        row = self._connection.execute(f"SELECT count(*) FROM read_parquet('{folder}/*.parquet')").fetchone()
        assert row is not None
        return int(row[0])
