"""The contenders: each deduplicates and sessionizes the same events and says how many of each it found."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession, Window, functions as F

from dedup_platform import tables
from dedup_platform.platform import Platform

Answer = tuple[int, int]
"""Deduplicated events and sessions."""


def timed(work: Callable[[], Answer]) -> tuple[float, Answer]:
    """Seconds and answer."""
    started = time.monotonic()
    answer = work()
    return time.monotonic() - started, answer


def ours(platform: Platform, stream: str) -> Answer:
    """Rebuild every derived table from raw, in place."""
    first, last = _partitions(platform, stream)
    for table in tables.DERIVED:
        platform.recompute(stream, table, range(first, last + 1))
    return platform.rows(stream, tables.DEDUPLICATED_EVENTS), platform.rows(stream, tables.SESSIONS)


def naive(spark: SparkSession, events: Path, out: Path) -> Answer:
    """What a good tutorial writes: dropDuplicates, a window by entity, Parquet."""
    shutil.rmtree(out, ignore_errors=True)
    rows = spark.read.parquet(str(events)).dropDuplicates(["entity_id", "event_id"])
    rows.write.parquet(str(out / "events"))
    in_order = Window.partitionBy("entity_id").orderBy("event_time")
    gap = F.unix_micros("event_time") - F.lag(F.unix_micros("event_time")).over(in_order)
    number = F.sum(F.coalesce(gap > 30 * 60 * 1_000_000, F.lit(False)).cast("int")).over(in_order)
    sessions = (
        spark.read.parquet(str(out / "events"))
        .withColumn("number", number)
        .groupBy("entity_id", "number")
        .agg(F.min("event_time"), F.max("event_time"), F.count("*"), F.sum("amount"), F.count("page"))
    )
    sessions.toDF("entity_id", "number", "started_at", "ended_at", "events", "revenue", "pages").write.parquet(
        str(out / "sessions")
    )
    return spark.read.parquet(str(out / "events")).count(), spark.read.parquet(str(out / "sessions")).count()


def _partitions(platform: Platform, stream: str) -> tuple[int, int]:
    partitions = [cell.partition for cell in platform.ledger.sizes(stream, tables.RAW_EVENTS)]
    return min(partitions), max(partitions)
