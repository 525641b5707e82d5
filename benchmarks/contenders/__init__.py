"""The contenders by name. Each is imported only in its own process, so that none carries another's libraries."""

from importlib import import_module

from benchmarks.contender import Contender, Task

OURS = "ours"
BEFORE = "before"
"""Ours, of another checkout."""
NAIVE = "naive"
DUCKDB = "duckdb"
POLARS = "polars"
STREAMING = "structured streaming"
DELTA = "delta merge"
ICEBERG = "iceberg merge"
FLOOR = "copy"
TOPIC = "ours (topic)"
SPARK_TOPIC = "spark (topic)"
PUBLISHING = "ours (publish)"
INGESTING = {OURS: "ours (ingest)", DUCKDB: "duckdb (ingest)", NAIVE: "naive (ingest)"}
"""Who takes in files that landed, by who else they are."""

_CLASSES = {
    OURS: "ours.Ours",
    NAIVE: "naive.Naive",
    DUCKDB: "duckdb_sql.DuckDbSql",
    POLARS: "polars_frames.PolarsFrames",
    STREAMING: "streaming.Streaming",
    DELTA: "delta_merge.DeltaMerge",
    ICEBERG: "iceberg_merge.IcebergMerge",
    FLOOR: "floor.Floor",
    TOPIC: "topics.OursFromTopic",
    SPARK_TOPIC: "topics.SparkFromTopic",
    PUBLISHING: "publishing.Publishing",
}
NAMES = tuple(_CLASSES)
_CLASSES |= {
    INGESTING[OURS]: "ingesting.OursIngesting",
    INGESTING[DUCKDB]: "ingesting.DuckDbIngesting",
    INGESTING[NAIVE]: "ingesting.SparkIngesting",
}

DESCRIPTIONS = {
    OURS: "this platform: from `raw_events` to all derived tables, with duplicates, fragments, stable ids and checks",
    BEFORE: "the same of another checkout",
    NAIVE: "a tutorial's PySpark: `dropDuplicates`, window functions, Parquet",
    DUCKDB: "DuckDB, SQL in one process, Parquet",
    POLARS: "Polars, streaming engine, Parquet",
    STREAMING: "Structured Streaming: `dropDuplicatesWithinWatermark`, `session_window`, RocksDB state, Parquet",
    DELTA: "Delta Lake: `MERGE INTO` for events, window functions for sessions",
    ICEBERG: "Iceberg without this platform: `MERGE INTO` for events, window functions for sessions",
    TOPIC: "this platform: from a topic to `raw_events`, every event with its payload and coordinates, exactly once",
    SPARK_TOPIC: "Spark's own reader of Kafka to Parquet, messages as they are",
    PUBLISHING: "this platform: feeds of what changed, and all sessions to a sink, exactly once",
    FLOOR: "the floor: the columns of `deduplicated_events` copied from `raw_events` as the platform copies cells",
}


def contender(name: str, task: Task) -> Contender:
    """The contender of this name, in this process."""
    module, _, kind = _CLASSES[name].partition(".")
    made = getattr(import_module(f"{__name__}.{module}"), kind)(task)
    assert isinstance(made, Contender)
    return made
