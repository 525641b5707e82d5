"""Cells as conditions over rows: right, and not nested as deep as they are many."""

from pathlib import Path

from pyspark.sql import SparkSession, functions as F

from dedup_platform.lake.conditions import within
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.settings import CATALOG
from dedup_platform.tables import DEDUPLICATED_EVENTS
from dedup_platform.testing import make_stream

BUCKETS = 4
DAYS = 1_600
"""Every other day is a range of its own."""


def test_many_scattered_cells_are_found_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    entity = F.when(F.col("id") % 5 > 0, F.concat(F.lit("e"), F.col("id") % 5))
    rows = spark.range(5 * DAYS).select(
        F.timestamp_seconds(F.floor(F.col("id") / 5) * 86_400 + 43_200).alias("event_time"), entity.alias("entity_id")
    )
    placed = rows.withColumn("day", F.unix_date(F.to_date("event_time"))).withColumn(
        "bucket", F.coalesce(F.expr(f"{CATALOG}.system.bucket({BUCKETS}, entity_id)"), F.lit(NO_ENTITY))
    )
    chosen = {Cell(day, bucket) for day in range(0, DAYS, 2) for bucket in (NO_ENTITY, 1, day // 2 % 2)}
    found = placed.where(within(make_stream(tmp_path), DEDUPLICATED_EVENTS, chosen, BUCKETS)).collect()
    every = {Cell(row.day, row.bucket) for row in placed.collect()}
    assert {Cell(row.day, row.bucket) for row in found} == chosen & every
    assert len(found) == sum(Cell(row.day, row.bucket) in chosen for row in placed.collect())


def test_no_cell_is_no_row(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT TIMESTAMP '2024-03-01' AS event_time, 'a' AS entity_id")
    assert rows.where(within(make_stream(tmp_path), DEDUPLICATED_EVENTS, [], BUCKETS)).collect() == []
