"""Somebody else takes tables back or changes them; upkeep, a repair of a part and a lost database follow.

What is wrong must be found by whoever remembers nothing.
"""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetSnapshotRefUpdate

from dedup_platform import tables
from dedup_platform.lake.snapshots import ancestry, files_by_cell, head
from dedup_platform.maintenance import feeds as feeds_by_spark, upkeep as done_by_spark
from dedup_platform.platform import Platform
from dedup_platform.stream import Maintenance
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.lives import upkeep

EVENTS = "events"


def day(number: int) -> datetime:
    return utc("2024-03-01T12:00") + timedelta(days=number)


class Stream:
    """A stream of events with a copy each, one day in each file."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        rules = {"maintenance": Maintenance(min_snapshots=1)}
        self.stream = make_stream(folder, window="1h").model_copy(update=rules)
        self.clock = HeldClock(utc("2030-01-01T00:00"))

    @property
    def platform(self) -> Platform:
        """A process that remembers nothing but what is in the control database."""
        return light_platform(self.home, self.stream, self.clock)

    def ingest(self, number: int) -> Path:
        events = [record("a", f"x{number}", day(number), day(number) + timedelta(hours=each)) for each in range(2)]
        [path] = write_batch(self.stream, lay_out(events, f"{number}.json"))
        self.platform.ingest(EVENTS)
        return path

    def take_back(self, table: str) -> None:
        loaded = self.platform.lake.catalog.load_table(EVENTS, table)
        before = list(ancestry(loaded))[1].snapshot_id
        to = {"ref-name": "main", "type": "branch", "snapshot-id": before}
        self.platform.lake.catalog.iceberg.commit_table(loaded, (), (SetSnapshotRefUpdate.model_validate(to),))

    def repair_part(self, table: str, number: int) -> None:
        self.platform.recompute_stale(EVENTS, table, [self.stream.partitions.ordinal(day(number))])

    def expire(self) -> None:
        self.clock.advance(timedelta(days=30))
        self.platform.maintain(EVENTS)

    def lose_control_database(self) -> None:
        for file in self.home.glob("control.db*"):
            file.unlink()

    def assert_repaired(self) -> None:
        platform = self.platform
        for _ in range(4):
            for plan in platform.plan(EVENTS):
                for run in plan.runs:
                    platform.recompute_stale(EVENTS, plan.table, run.partitions)
        assert wrong_rows(platform, EVENTS) == []


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    for each in (done_by_spark, feeds_by_spark):
        monkeypatch.setattr(each, "procedures", upkeep)
    return Stream(tmp_path)


def test_what_was_built_from_records_that_were_taken_back(stream: Stream) -> None:
    stream.ingest(1)
    wrong = stream.ingest(5)
    stream.platform.repair(EVENTS)
    stream.take_back(tables.RAW_EVENTS)
    wrong.unlink()
    stream.ingest(9)
    stream.expire()
    stream.lose_control_database()
    stream.assert_repaired()


def test_what_a_cell_lacks_that_somebody_else_emptied(stream: Stream) -> None:
    stream.ingest(1)
    stream.ingest(5)
    stream.platform.repair(EVENTS)
    lake, table = stream.platform.lake, tables.SESSION_FRAGMENTS
    loaded = lake.catalog.load_table(EVENTS, table)
    files = files_by_cell(loaded, head(loaded).snapshot_id)
    lake.replace_files(stream.stream, table, "main", files[min(files)], [], {}, Operation.OVERWRITE)
    stream.ingest(9)
    for each in (tables.DEDUPLICATED_EVENTS, table):
        stream.repair_part(each, 9)
    stream.expire()
    stream.lose_control_database()
    stream.assert_repaired()


def test_duplicates_that_were_taken_back_and_are_repaired_in_part(stream: Stream) -> None:
    for number in (1, 5):
        stream.ingest(number)
        stream.platform.repair(EVENTS)
    stream.take_back(tables.DUPLICATE_EVENTS)
    stream.repair_part(tables.DEDUPLICATED_EVENTS, 1)
    stream.lose_control_database()
    stream.assert_repaired()
