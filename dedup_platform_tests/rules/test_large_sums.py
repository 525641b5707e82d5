"""Sums that are too large to be told, in the tables of a platform, and in those that a version before wrote wrongly."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import SUMMARY, files_by_cell, head
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.comparison import SessionIds, differences

LARGEST = Decimal("9" * 36 + ".99")
WRAPPED = 2 * (10**38 - 1) - 2**128
"""What 128 bits make of twice the largest number: 39 digits."""
RECORDS = lay_out(
    [
        record("large", "a", utc("2024-01-01T23:40"), utc("2024-01-05"), amount=LARGEST),
        record("large", "b", utc("2024-01-01T23:50"), utc("2024-01-05"), amount=LARGEST),
        record("large", "c", utc("2024-01-02T00:10"), utc("2024-01-05"), amount=LARGEST.copy_negate()),
        record("small", "d", utc("2024-01-01T12:00"), utc("2024-01-05"), amount=Decimal("1.50")),
        record("none", "e", utc("2024-01-01T12:00"), utc("2024-01-05")),
    ]
)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path, attributes={"amount": "decimal(38,2)"}, aggregates={"revenue": ("sum", "amount")})


@pytest.fixture
def platform(tmp_path: Path, stream: Stream, spark: SparkSession) -> Platform:
    write_batch(stream, RECORDS)
    return temporary_platform(tmp_path / "home", stream, spark, HeldClock(datetime.now(UTC)), in_process=True)


def sums(platform: Platform) -> dict[str, Decimal | None]:
    return {row["entity_id"]: row["revenue"] for row in platform.read("events", tables.SESSIONS).collect()}


def spoil(platform: Platform, stream: Stream, table: str) -> None:
    """Commit the same cells again, each sum of them as if it had wrapped."""
    lake, loaded = platform.lake, platform.lake.catalog.load_table("events", table)
    base, files = head(loaded), lake.table_files(stream, table)
    new = []
    for cell, old in (held := files_by_cell(loaded, base.snapshot_id)).items():
        rows = files.read(old, tables.column_names(stream, table))
        bits = WRAPPED.to_bytes(16, "little", signed=True) * rows.num_rows
        wrong = pa.Array.from_buffers(pa.decimal128(38, 2), rows.num_rows, [None, pa.py_buffer(bits)])
        new.append(files.write(cell, rows.drop("revenue").append_column("revenue", wrong)))
    told = base.summary.additional_properties if base.summary else {}
    properties = {name.removeprefix(SUMMARY): value for name, value in told.items() if name.startswith(SUMMARY)}
    replaced = [file for old in held.values() for file in old]
    lake.publish(lake.stage_files(stream, table, base.snapshot_id, replaced, new, cast("SummaryValues", properties)))


def test_a_sum_too_large_is_null_and_everybody_can_read_it(platform: Platform, stream: Stream) -> None:
    platform.ingest("events")
    platform.repair("events")
    assert sums(platform) == {"large": None, "small": Decimal("1.50"), "none": None}
    assert differences(platform, stream, RECORDS, SessionIds()) == []
    assert platform.verify("events") == []


def test_tables_that_nobody_can_read_are_mended_by_a_repair(
    platform: Platform, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(tables, "large_sums", lambda _: {})  # its fingerprints
        platform.ingest("events")
        platform.repair("events")
    for table in (tables.SESSION_FRAGMENTS, tables.SESSIONS):
        spoil(platform, stream, table)
    with pytest.raises(PySparkException):
        sums(platform)
    stale = {plan.table: {each.reason for each in plan.stale} for plan in platform.plan("events")}
    assert stale == {
        tables.DEDUPLICATED_EVENTS: set(),
        tables.SESSION_FRAGMENTS: {"settings"},
        tables.SESSIONS: {"settings"},
    }
    platform.repair("events")
    assert sums(platform) == {"large": None, "small": Decimal("1.50"), "none": None}
    assert platform.verify("events") == []
