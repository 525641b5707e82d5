"""Times of commits never go back, whatever the writers' clocks say: Iceberg's Java library could not read the table."""

from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.layout import Layout
from dedup_platform.lake.monotonic.rest import MonotonicRestCatalog
from dedup_platform.lake.snapshots import head
from dedup_platform.lake.staged import STAGING
from dedup_platform.settings import CATALOG, Settings
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import commits_ahead, make_stream
from dedup_platform.testing.delivery import ATTRIBUTES

TEN_MINUTES = timedelta(minutes=10)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path)


@pytest.fixture
def lake(tmp_path: Path, stream: Stream) -> Lakehouse:
    """Tables that were created by a clock ten minutes ahead, in one commit and another."""
    lake = Lakehouse(Catalog(Settings(home=tmp_path / "home")), no_spark)
    with commits_ahead(by=TEN_MINUTES):
        lake.create(stream, 1)
        say_something(lake, stream)
    return lake


def no_spark() -> NoReturn:
    raise AssertionError("commits need no Spark")


def say_something(lake: Lakehouse, stream: Stream) -> None:
    at = head(raw(lake)).snapshot_id
    lake.publish(lake.stage_nothing(stream, RAW_EVENTS, at, {"reason": "a test"}))


def discard(lake: Lakehouse, stream: Stream) -> None:
    lake.discard(lake.stage_nothing(stream, RAW_EVENTS, head(raw(lake)).snapshot_id, {}))


def evolve(lake: Lakehouse, stream: Stream) -> None:
    lake.evolve(make_stream(stream.origin.parent, attributes=ATTRIBUTES | {"number": "long"}))


def add_layout(lake: Lakehouse, stream: Stream) -> None:
    layout = Layout(lake, stream, RAW_EVENTS, 4)
    layout.keep(head(raw(lake)).snapshot_id, [], [])
    layout.forget()


def raw(lake: Lakehouse) -> Table:
    return lake.catalog.load_table("events", RAW_EVENTS)


def steps_back(table: Table) -> list[tuple[str, int]]:
    """Where a time of the table's metadata is before the one that it follows, and by how much."""
    told = table.metadata
    logs = {
        "snapshot log": [each.timestamp_ms for each in told.snapshot_log],
        "metadata log": [each.timestamp_ms for each in told.metadata_log],
    }
    found = [
        (name, later - sooner)
        for name, times in logs.items()
        for sooner, later in pairwise([*times, told.last_updated_ms])
        if later < sooner
    ]
    by_id = {each.snapshot_id: each for each in told.snapshots}
    parents = [(each, by_id[each.parent_snapshot_id]) for each in told.snapshots if each.parent_snapshot_id in by_id]
    return found + [
        ("snapshots", each.timestamp_ms - parent.timestamp_ms)
        for each, parent in parents
        if each.timestamp_ms < parent.timestamp_ms
    ]


@pytest.mark.parametrize("commit", [say_something, discard, evolve, add_layout])
def test_a_commit_is_not_before_the_newest_one(
    lake: Lakehouse, stream: Stream, commit: Callable[[Lakehouse, Stream], None]
) -> None:
    before = raw(lake).metadata.last_updated_ms
    commit(lake, stream)
    say_something(lake, stream)
    table = raw(lake)
    assert steps_back(table) == []
    assert table.metadata.last_updated_ms == head(table).timestamp_ms == before, "as late as need be, and no later"


def test_clocks_that_go_forth_and_back_leave_times_in_order(lake: Lakehouse, stream: Stream) -> None:
    for minutes in (0, 30, -5, 20, None):
        with nullcontext() if minutes is None else commits_ahead(by=timedelta(minutes=minutes)):
            say_something(lake, stream)
        assert steps_back(raw(lake)) == []


def test_the_next_commit_mends_what_was_written_out_of_order(lake: Lakehouse, stream: Stream) -> None:
    others = SqlCatalog(CATALOG, **lake.catalog.settings.catalog_properties())
    others.load_table(("events", RAW_EVENTS)).append(raw(lake).scan().to_arrow())
    assert {name for name, _ in steps_back(raw(lake))} >= {"snapshot log", "metadata log"}
    say_something(lake, stream)
    assert [name for name, _ in steps_back(raw(lake)) if name != "snapshots"] == []


def test_a_server_is_told_no_time_before_the_newest_one(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[TableUpdate] = []
    monkeypatch.setattr(RestCatalog, "commit_table", lambda *given: told.extend(given[-1]))
    table = raw(lake)
    newest = table.metadata.last_updated_ms
    made = [head(table).model_copy(update={"timestamp_ms": time}) for time in (1, newest + 1)]
    updates = tuple(AddSnapshotUpdate(snapshot=each) for each in made)
    object.__new__(MonotonicRestCatalog).commit_table(table, (), updates)
    times = [update.snapshot.timestamp_ms for update in told if isinstance(update, AddSnapshotUpdate)]
    assert times == [newest, newest + 1]


def test_a_branch_of_a_clock_that_was_days_ahead_is_abandoned_too(lake: Lakehouse, stream: Stream) -> None:
    def branches() -> int:
        return sum(name.startswith(STAGING) for name in raw(lake).refs())

    lake.stage_nothing(stream, RAW_EVENTS, head(raw(lake)).snapshot_id, {})
    in_a_week = (datetime.now(UTC) + timedelta(days=7)).timestamp()
    raw(lake).manage_snapshots().create_branch(
        head(raw(lake)).snapshot_id, f"{STAGING}{int(in_a_week * 1_000_000)}_a"
    ).commit()
    assert branches() == 2
    lake.discard_abandoned(stream)
    assert branches() == 1, "that of a writer who is at work"
