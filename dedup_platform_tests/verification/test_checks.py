"""Rows that break what a table promises are counted the same by columns and by Spark, whatever is wrong with them."""

from datetime import timedelta
from random import Random
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, utc, write_batch
from dedup_platform.verification import check_columns

FIRST = utc("2024-03-01T00:00")
WRONG = {
    tables.DEDUPLICATED_EVENTS: "event_time",
    tables.SESSION_FRAGMENTS: "first_event_time",
    tables.SESSIONS: "started_at",
}
"""Table -> the column by which it is partitioned."""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("checks"), "checked", start="2024-03-01", granularity="hour", buckets=2)


@pytest.fixture(scope="module")
def platform(settings: Settings, stream: Stream, spark: SparkSession) -> Platform:
    """Rows of two days, some of which are there twice, or a little later than they should be."""
    random = Random(3)
    times = [FIRST + random.randrange(2 * 24 * 60) * timedelta(minutes=1) for _ in range(120)]
    events = [
        record(random.choice(["a", "b", None]), f"e{n % 90}", at, at, page="/", quantity=1)
        for n, at in enumerate(times)
    ]
    write_batch(stream, lay_out(events, "first.json"))
    platform = Platform(settings, {stream.name: stream}, lambda: spark, HeldClock(utc("2024-06-01")))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    for table, time in WRONG.items():
        name = f"lake.{stream.name}.{table}"
        chosen = f"pmod(hash({time}), 5) = 0"
        later = f"{time} + INTERVAL 7 MINUTES"
        others = ", ".join(column if column != time else later for column in spark.table(name).columns)
        spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE {chosen}")
        spark.sql(f"INSERT INTO {name} SELECT {others} FROM {name} WHERE pmod(hash({time}), 7) = 0")
    return platform


@pytest.mark.parametrize("table", WRONG)
def test_columns_and_spark_agree(platform: Platform, stream: Stream, table: str) -> None:
    first = stream.partitions.ordinal(FIRST)
    hours = [first + hour for hour in range(48) if hour % 5]
    in_columns = platform.violations(stream.name, table, hours)
    with patch.object(check_columns, "FEW_ROWS", 0):
        by_spark = platform.violations(stream.name, table, hours)
    assert in_columns == by_spark
    assert len(in_columns) > 20
    assert sum(sum(each.values()) for each in in_columns.values()) > 10, "nothing that was wrong was found"


def test_no_rows_break_nothing(platform: Platform, stream: Stream) -> None:
    assert platform.violations(stream.name, tables.SESSIONS, [stream.partitions.ordinal(FIRST) + 24 * 300]) == {}
