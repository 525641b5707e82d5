"""What `verify` says of rows that differ in nothing but the column that tables of earlier versions lack."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from dedup_platform.schemas import spark_schema
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_FRAGMENTS, SESSIONS, columns
from dedup_platform.testing import make_stream, utc
from dedup_platform.verification.verify import _compare

NOON = utc("2024-03-01T12:00")


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("verified"))


def session(first: datetime | None) -> dict[str, Any]:
    times = {"started_at": NOON, "ended_at": NOON, "first_arrived_at": NOON, "first_arrived_event_time": first}
    return {"session_id": "a", "entity_id": "e", "event_count": 1, **times}


def fragment(first: datetime | None) -> dict[str, Any]:
    place = {"source": "f", "source_partition": 0, "source_offset": 0, "source_index": 0}
    arrived = {"arrival_time": NOON, **place, "session_id": "a", "event_time": first}
    times = {"first_event_time": NOON, "last_event_time": NOON}
    return {"entity_id": "e", "event_count": 1, "first_arrived": arrived, **times}


ROW = {SESSIONS: session, SESSION_FRAGMENTS: fragment}
NAME = {SESSIONS: "first_arrived_event_time", SESSION_FRAGMENTS: "first_arrived.event_time"}


def frame(spark: SparkSession, stream: Stream, table: str, *times: datetime | None) -> DataFrame:
    schema = spark_schema(columns(stream, table))
    rows = map(ROW[table], times)
    return spark.createDataFrame([[row.get(name) for name in schema.names] for row in rows], schema)


def without(rows: DataFrame, table: str) -> DataFrame:
    """As a table has them to which no newer version has written yet."""
    if table == SESSIONS:
        return rows.drop(NAME[table])
    return rows.withColumn("first_arrived", F.col("first_arrived").dropFields("event_time"))


@pytest.mark.parametrize("table", ROW)
def test_null_is_of_an_earlier_version_and_another_time_is_wrong(
    table: str, spark: SparkSession, stream: Stream
) -> None:
    def said(*found: datetime | None) -> list[str]:
        rows = frame(spark, stream, table, *found)
        return [line.partition(": ")[2].partition(":")[0] for line in _compare(stream, table, rows, expected)]

    expected = frame(spark, stream, table, NOON)
    assert said(NOON) == said(None) == []
    assert said(NOON + timedelta(microseconds=1)) == [f"has another {NAME[table]}"]
    assert said(None, NOON) == ["should not be there"]
    assert said() == ["is missing"]
    assert list(_compare(stream, table, without(expected, table), expected)) == []
