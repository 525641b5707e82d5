"""Events and arrivals up to the last microsecond of the year 9999, which producers send in place of "never"."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions as F

from dedup_platform import tables
from dedup_platform.lake.conditions import in_partitions
from dedup_platform.testing import (
    HeldClock,
    Record,
    SessionIds,
    differences,
    lay_out,
    make_stream,
    record,
    temporary_platform,
    utc,
    write_batch,
)

LAST = datetime.max.replace(tzinfo=UTC)
MICROSECOND, DAY = timedelta(microseconds=1), timedelta(days=1)
AGO = [timedelta(0), MICROSECOND, timedelta(hours=1), timedelta(hours=1) - MICROSECOND, timedelta(hours=2), DAY]
GRAINS = ["day", pytest.param("hour", marks=pytest.mark.thorough)]


@pytest.mark.parametrize("granularity", GRAINS)
def test_all_is_done_with_them_that_is_done_with_others(tmp_path: Path, spark: SparkSession, granularity: str) -> None:
    stream = make_stream(tmp_path, granularity=granularity, timeout="90m", window="2d")
    platform = temporary_platform(tmp_path / "home", stream, spark, HeldClock(utc("2024-06-01")), in_process=True)
    events = [record("last", f"{number}", LAST - ago, LAST, quantity=1) for number, ago in enumerate(AGO)]
    copies = [record("last", "0", LAST - DAY, LAST - DAY), record("now", "n", utc("2024-01-01T10:00"))]
    late = record("last", "late", LAST - 2 * DAY, LAST)
    known, ids = list[Record](), SessionIds()
    for records in (lay_out([*events, *copies], "1.json"), lay_out([late], "2.json")):
        write_batch(stream, records, modified=utc("2024-02-01"))
        known += records
        platform.ingest("events")
        assert any(plan.stale for plan in platform.plan("events"))
        assert platform.status("events").rejected == 0
        platform.repair("events")
        assert differences(platform, stream, known, ids) == []
    final = stream.partitions.ordinal(LAST)
    for table in tables.DERIVED:
        assert platform.recompute("events", table, [final - 1, final]).cells_rewritten == frozenset()
    assert platform.rejected.redecode("events", [final]).snapshot_id is None
    assert {each.table for each in platform.maintain("events")} == {*tables.ALL, tables.AUDIT}
    assert platform.verify("events") == []
    assert not any(plan.stale for plan in platform.plan("events"))


@pytest.mark.parametrize("granularity", GRAINS)
def test_the_last_moment_lies_in_the_last_partition(tmp_path: Path, spark: SparkSession, granularity: str) -> None:
    stream = make_stream(tmp_path, granularity=granularity)
    length, final = stream.partitions.length, stream.partitions.ordinal(LAST)
    start = LAST - length + MICROSECOND
    assert stream.partitions.bounds(final, final) == (start, None)
    assert stream.partitions.bounds(final - 1, final + 400) == (start - length, None)
    assert stream.partitions.bounds(final - 1, final - 1) == (start - length, start)
    beyond, before = stream.partitions.bounds(final + 1, final + 2), stream.partitions.bounds(-2, -1)
    assert beyond[0] == beyond[1]
    assert before[0] == before[1]
    assert stream.partitions.bounds(-2, 0) == (utc("1970-01-01"), utc("1970-01-01") + length)
    times = spark.createDataFrame([(LAST,), (start,), (start - MICROSECOND,)], "time timestamp")
    chosen = {
        partitions: times.where(in_partitions(stream, F.col("time"), partitions)).count()
        for partitions in ((final,), (final - 1,), (final - 1, final, final + 1), (final + 1,), (-1,))
    }
    assert list(chosen.values()) == [2, 1, 3, 0, 0]
