"""A writer's clock was ahead for a while: everybody goes on, and what has to wait says so."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.maintenance import procedures
from dedup_platform.platform import Platform
from dedup_platform.testing import (
    HeldClock,
    commits_ahead,
    lay_out,
    make_stream,
    record,
    temporary_platform,
    utc,
    write_batch,
)

NOON = utc("2024-01-01T12:00")


@pytest.fixture
def platform(tmp_path: Path, spark: SparkSession) -> Platform:
    """Many small files in a closed partition, committed by a clock that is ten minutes ahead of Spark's."""
    stream = make_stream(tmp_path)
    platform = temporary_platform(tmp_path / "home", stream, spark, HeldClock(datetime.now(UTC)), in_process=True)
    with commits_ahead(by=timedelta(minutes=10)):
        for number in range(procedures.SMALL_FILES):
            event = record("a", str(number), NOON + timedelta(minutes=number))
            write_batch(stream, lay_out([event], f"{number}.json"), modified=NOON)
            platform.ingest("events")
    write_batch(stream, lay_out([record("a", "last", NOON)], "last.json"), modified=NOON)
    return platform


def test_spark_reads_on_and_upkeep_says_why_it_waits(platform: Platform) -> None:
    platform.ingest("events")
    assert [cell.ready for cell in platform.plan("events")[0].stale] == [True], "nobody knows since when it waits"
    platform.repair("events")
    assert platform.verify("events") == []
    done = {each.table: each for each in platform.maintain("events")}
    assert list(done) == [*reversed(tables.ALL), tables.AUDIT], "the other tables are looked after"
    waits = done[tables.RAW_EVENTS].waits
    assert waits is not None
    assert waits.startswith("events.raw_events: rewrite_data_files cannot commit before 20")
    assert not any(each.waits for name, each in done.items() if name != tables.RAW_EVENTS)
    assert platform.verify("events") == []
