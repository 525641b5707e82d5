"""Comments in Iceberg: new tables have them, tables of earlier versions get them, and no row or cell notices."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from dedup_platform import tables
from dedup_platform.comments import TABLE_COMMENTS, column_comments
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

NAME = "events"
EVERY = (*tables.ALL, *tables.FOLLOWER_OF.values(), tables.AUDIT)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path)


@pytest.fixture
def platform(tmp_path: Path, stream: Stream) -> Platform:
    write_batch(stream, lay_out([record("e", "a", utc("2024-01-02"))], "a.json"))
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2024-02-01")))
    work(platform)
    return platform


def work(platform: Platform) -> None:
    """All that a run does."""
    platform.ingest(NAME)
    platform.repair(NAME)
    platform.publish_changes(NAME)
    platform.audit(NAME)


def loaded(platform: Platform) -> dict[str, Table]:
    return {name: platform.lake.catalog.load_table(NAME, name) for name in EVERY}


def comments(table: Table) -> dict[str, str | None]:
    return {path: table.schema().find_field(path).doc for path in table.schema().column_names if ".element" not in path}


def forget(platform: Platform) -> None:
    """Make the tables those of an earlier version."""
    for table in loaded(platform).values():
        with table.transaction() as transaction:
            transaction.remove_properties("comment")
            with transaction.update_schema() as update:
                for path in comments(table):
                    update.update_column(tuple(path.split(".")), doc="")


def test_new_tables_have_them_and_no_data_file_repeats_them(platform: Platform, stream: Stream) -> None:
    for name, table in loaded(platform).items():
        assert comments(table) == column_comments(stream, name)
        assert table.properties["comment"] == TABLE_COMMENTS[name]
        for task in table.scan().plan_files():
            assert not any(b"doc" in (field.metadata or {}) for field in pq.read_schema(task.file.file_path))


def test_tables_of_an_earlier_version_get_them_without_a_snapshot(platform: Platform, stream: Stream) -> None:
    forget(platform)
    mine = platform.lake.catalog.load_table(NAME, tables.SESSIONS)
    with mine.update_schema() as update:
        update.update_column("ended_at", doc="my own words")
    before = loaded(platform)
    assert not any(comments(before[tables.RAW_EVENTS]).values())
    work(platform)
    after = loaded(platform)
    for name, table in after.items():
        own = {"ended_at": "my own words"} if name == tables.SESSIONS else {}
        assert comments(table) == column_comments(stream, name) | own
        assert table.properties["comment"] == TABLE_COMMENTS[name]
        assert table.current_snapshot() == before[name].current_snapshot()
    assert [plan.stale for plan in platform.plan(NAME)] == [()] * len(tables.DERIVED)
    work(platform)
    assert {name: table.metadata_location for name, table in loaded(platform).items()} == {
        name: table.metadata_location for name, table in after.items()
    }
