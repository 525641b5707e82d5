"""Temporary platforms share one Spark application and nothing else."""

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from dedup_platform.settings import CATALOG
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, temporary_platform, utc, write_batch

NOON = utc("2024-03-01T12:00")


def test_held_clock_moves_only_when_told() -> None:
    clock = HeldClock(NOON)
    assert (clock(), clock()) == (NOON, NOON)
    clock.advance(timedelta(minutes=1))
    assert clock() == NOON + timedelta(minutes=1)
    clock.set(NOON)
    assert clock() == NOON


def test_two_platforms_with_a_stream_of_one_name_do_not_meet(tmp_path: Path, spark: SparkSession) -> None:
    for name, count in [("one", 1), ("two", 2)]:
        folder = tmp_path / name
        folder.mkdir()
        stream = make_stream(folder)
        platform = temporary_platform(folder / "home", stream, spark, HeldClock(NOON + timedelta(days=1)))
        write_batch(stream, lay_out([record("a", str(n), NOON) for n in range(count)]))
        platform.ingest(stream.name)
        platform.repair(stream.name)
        assert platform.read(stream.name, "deduplicated_events").count() == count
        assert list((folder / "home").rglob("*.parquet"))
    assert spark.sql(f"SHOW NAMESPACES IN {CATALOG} LIKE 'events'").collect() == []
