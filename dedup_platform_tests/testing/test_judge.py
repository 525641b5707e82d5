"""The judge of published tables finds nothing in right ones, and in each table the rows that should not be there."""

from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.comparison import published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.homes import stage_all_again

NAME = "events"
DAY = "2024-01-02"


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    stream = make_stream(tmp_path)
    first = [record("anna", "a", utc(f"{DAY}T10:00")), record("anna", "a", utc(f"{DAY}T10:01"))]
    write_batch(stream, lay_out([*first, record("bert", "b", utc(f"{DAY}T11:00"))], "first.json"))
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2024-02-01")))
    assert wrong_rows(platform, NAME) == []
    platform.ingest(NAME)
    platform.repair(NAME)
    return platform


def test_nothing_is_wrong_with_a_repaired_stream(platform: Platform) -> None:
    assert {table: len(rows) for table, rows in published_rows(platform, NAME).items()} == {
        tables.RAW_EVENTS: 3,
        tables.DEDUPLICATED_EVENTS: 2,
        tables.DUPLICATE_EVENTS: 1,
        tables.SESSION_FRAGMENTS: 2,
        tables.SESSIONS: 2,
    }
    assert wrong_rows(platform, NAME) == []


@pytest.mark.parametrize("table", [tables.DEDUPLICATED_EVENTS, tables.SESSION_FRAGMENTS, tables.SESSIONS])
def test_rows_that_are_there_twice_are_named_with_their_table(platform: Platform, table: str) -> None:
    platform.lake.publish(stage_all_again(platform, table))
    assert {line.partition(":")[0] for line in wrong_rows(platform, NAME)} == {table}


def test_records_that_are_in_raw_twice_are_named(platform: Platform) -> None:
    platform.lake.publish(stage_all_again(platform, tables.RAW_EVENTS))
    wrong = wrong_rows(platform, NAME)
    assert sum("raw_events: 2 rows of the record" in line for line in wrong) == 3
    assert "raw_events: 6 rows, but 3 records were read" in wrong
