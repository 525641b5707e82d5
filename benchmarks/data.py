"""Seeded events for benchmarks, as parquet files: UUID entities, ten events a session, copies, a tail of lateness."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, functions as F

STREAM = """\
name: bench
source: {{kind: files, path: events/*.parquet, format: parquet, settle: 0s}}
fields:
  entity_id: entity_id
  event_id: event_id
  event_time: event_time
  arrival_time: arrival_time
  attributes: {{page: page, amount: {{field: amount, type: "decimal(12,2)"}}}}
partitions: {{granularity: day, start: 2026-01-01}}
buckets: {buckets}
deduplicate: {{window: 1d}}
sessions: {{timeout: 30m, aggregates: {{revenue: {{sum: amount}}, pages: {{count: page}}}}}}
"""
START = 1_767_225_600
"""2026-01-01 in seconds since 1970."""


def write_events(spark: SparkSession, folder: Path, events: int, days: int, copies: float, files: int = 16) -> None:
    """Write `events` and their copies (a share of them) to `folder/events`."""
    originals = _events(spark, events, days)
    again = originals.where(F.rand(seed=2) < copies).withColumn(
        "arrival_time", F.col("arrival_time") + F.make_dt_interval(mins=F.lit(30))
    )
    originals.union(again).repartition(files, F.xxhash64("event_id")).write.parquet(str(folder / "events"))


def write_late_event(spark: SparkSession, folder: Path, day: int, number: int) -> None:
    """Write a file with one event of a known entity that arrives long after its day."""
    event = _events(spark, 1, 1).withColumn("event_id", F.lit(f"late-{number}"))
    times = {
        "event_time": F.timestamp_seconds(F.lit(START + day * 86_400 + 43_200)),
        "arrival_time": F.timestamp_seconds(F.lit(START + 100 * 86_400 + number)),
    }
    staging = folder / f"late-{number}"
    event.withColumns(times).coalesce(1).write.parquet(str(staging))
    next(staging.glob("*.parquet")).rename(folder / "events" / f"late-{number}.parquet")


def _events(spark: SparkSession, events: int, days: int) -> DataFrame:
    number = F.col("id")
    session = F.floor(number / 10)
    start = F.pmod(F.xxhash64(session), F.lit(days * 86_400 - 3_600))
    time = F.timestamp_micros((F.lit(START) + start + F.pmod(number, F.lit(10)) * 60) * 1_000_000 + number % 1_000_000)
    delay = F.make_dt_interval(secs=(F.pmod(F.xxhash64(number, F.lit(1)), F.lit(1_000)) / 10).cast("decimal(18,6)"))
    return spark.range(events).select(
        F.md5((session % F.lit(max(events // 40, 1))).cast("string")).alias("entity_id"),
        F.md5(F.concat(F.lit("event"), number)).alias("event_id"),
        time.alias("event_time"),
        (time + delay).alias("arrival_time"),
        F.concat(F.lit("/products/"), F.pmod(F.xxhash64(number, F.lit(2)), F.lit(10_000))).alias("page"),
        (F.pmod(F.xxhash64(number, F.lit(3)), F.lit(100_000)) / 100).cast("decimal(12,2)").alias("amount"),
        F.sha2(number.cast("string"), 384).alias("payload_text"),
    )
