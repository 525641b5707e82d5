"""What people and time do to a lake: the control database is lost, tables are rolled back, snapshots and receipts go.

The truth is in the lake (rule 10): whatever is lost beside it costs some recomputation at worst, and never a row.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.snapshots import head, live
from dedup_platform.lake.staged import STAGING
from dedup_platform.ledger import CellSize
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.settings import CATALOG
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, DUPLICATE_EVENTS, RAW_EVENTS
from dedup_platform.testing import HeldClock, Rules, histories, make_stream, write_batch
from dedup_platform.testing.delivery import ATTRIBUTES
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.homes import Home, all_rows, references, stage_all_again, stale
from dedup_platform_tests.variants import some

BATCHES = 3


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Home, dict[str, list[str]]]:
    """A home that has lived through some batches, and its rows."""
    folder = tmp_path_factory.mktemp("rebuilds")
    stream = make_stream(folder, buckets=2, timeout="2h")
    history = histories(5, 40, Rules.of(stream), stream.partitions.start, batches=BATCHES)
    home = Home(folder, stream, spark, HeldClock(history.now))
    for batch in history.batches:
        write_batch(stream, batch)
        platform = home.run()
    home.keep()
    return home, all_rows(platform)


@pytest.fixture
def home(kept: tuple[Home, dict[str, list[str]]]) -> Home:
    kept[0].put_back()
    return kept[0]


@pytest.fixture
def rows(kept: tuple[Home, dict[str, list[str]]]) -> dict[str, list[str]]:
    return kept[1]


# The control database


def test_a_lost_control_database_is_rebuilt_and_nothing_is_stale(home: Home, rows: dict[str, list[str]]) -> None:
    lose_control_database(home)
    assert stale(home.platform()) == []
    assert heads(home.run()) == heads(home.platform())
    assert all_rows(home.platform()) == rows


def test_a_rebuilt_ledger_tells_what_the_folded_one_told(home: Home) -> None:
    folded = told(home.platform())
    lose_control_database(home)
    assert told(home.platform()) == folded


@pytest.mark.parametrize("compacted", some([False, True], quick=[True]))
def test_the_ledger_knows_what_every_cell_holds(compacted: bool, home: Home) -> None:
    platform = home.platform()
    for table in tables.ALL if compacted else ():
        compact(platform, table)
    heads(platform)
    for table in tables.ALL:
        assert platform.ledger.sizes(home.stream.name, table) == sizes_in_manifests(platform, table)


def test_a_run_after_the_control_database_was_lost_commits_nothing(home: Home) -> None:
    before = heads(home.platform())
    lose_control_database(home)
    assert heads(home.run()) == before


# Tables that were rolled back


@pytest.mark.parametrize("table", some(tables.ALL, quick=[RAW_EVENTS, tables.SESSIONS]))
def test_a_table_that_was_rolled_back_is_repaired(table: str, home: Home, rows: dict[str, list[str]]) -> None:
    platform = home.platform()
    roll_back(platform, table)
    platform.ledger.sync(home.stream.name)
    assert stale(platform) or platform.source.waiting(home.stream.name).items
    platform = home.run()
    assert all_rows(platform) == rows
    assert wrong_rows(platform, home.stream.name) == []
    assert stale(platform) == []


def test_after_raw_was_rolled_back_for_good_the_derived_tables_follow(home: Home) -> None:
    platform = home.platform()
    roll_back(platform, RAW_EVENTS)
    gone = [home.stream.files.root / path for path in platform.source.waiting(home.stream.name).items]
    for file in gone:
        file.rename(home.folder / file.name)
    try:
        assert wrong_rows(home.run(), home.stream.name) == []
    finally:
        for file in gone:
            (home.folder / file.name).rename(file)


# Snapshots that expired


def test_expired_snapshots_and_a_lost_control_database_leave_the_positions_known(
    home: Home, rows: dict[str, list[str]]
) -> None:
    expire(home.platform())
    lose_control_database(home)
    platform = home.platform()
    assert platform.ingest(home.stream.name) == []
    assert stale(platform) == []
    assert all_rows(home.run()) == rows
    assert wrong_rows(home.platform(), home.stream.name) == []


def test_with_the_receipts_lost_too_positions_are_derived_from_raw(home: Home, rows: dict[str, list[str]]) -> None:
    expire(home.platform())
    lose_control_database(home)
    shutil.rmtree(home.path / "warehouse" / home.stream.name / "receipts")
    platform = home.platform()
    assert platform.ingest(home.stream.name) == []
    platform = home.run()
    assert all_rows(platform) == rows
    assert wrong_rows(platform, home.stream.name) == []


def test_derived_positions_are_committed_once(home: Home) -> None:
    shutil.rmtree(home.path / "warehouse" / home.stream.name / "receipts")
    lose_control_database(home)
    home.run()
    before = heads(home.platform())
    assert heads(home.run()) == before
    lose_control_database(home)
    assert heads(home.run())[RAW_EVENTS] == before[RAW_EVENTS]


@pytest.mark.parametrize("newest", ["compaction", pytest.param("new column", marks=pytest.mark.thorough)])
def test_positions_are_known_although_the_only_snapshot_left_does_not_tell_them(
    newest: str, home: Home, rows: dict[str, list[str]]
) -> None:
    if newest == "compaction":
        compact(home.platform(), RAW_EVENTS)
    else:
        home = with_new_column(home)
        home.run()
    expire(home.platform())
    lose_control_database(home)
    platform = home.platform()
    assert platform.ingest(home.stream.name) == []
    assert platform.read(home.stream.name, RAW_EVENTS).count() == len(rows[RAW_EVENTS])
    assert wrong_rows(home.run(), home.stream.name) == []


# Writers that died


def test_new_columns_whose_writer_died_before_their_first_snapshots_are_finished_by_the_next(
    home: Home, rows: dict[str, list[str]]
) -> None:
    for table in (RAW_EVENTS, DUPLICATE_EVENTS, DEDUPLICATED_EVENTS):
        loaded = home.platform().lake.catalog.load(home.stream.name, table)
        assert loaded
        with loaded.update_schema() as columns:
            columns.add_column("referrer", StringType())
    platform = with_new_column(home).run()
    assert wrong_rows(platform, home.stream.name) == []
    events = platform.read(home.stream.name, DEDUPLICATED_EVENTS).where("referrer is null")
    assert events.count() == len(rows[DEDUPLICATED_EVENTS])


def test_the_branch_of_a_dead_writer_goes_after_a_day_and_is_never_read(
    home: Home, rows: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = home.platform()
    with monkeypatch.context() as two_days_ago:
        two_days_ago.setattr("dedup_platform.lake.publishing.time.time_ns", shifted_by_two_days())
        old = stage_everything_again(platform)
    young = stage_everything_again(platform)
    assert {old, young} < references(platform, DEDUPLICATED_EVENTS).keys()
    assert all_rows(platform) == rows

    assert all_rows(home.run()) == rows
    assert references(platform, DEDUPLICATED_EVENTS).keys() == {"main", young}


def shifted_by_two_days() -> Callable[[], int]:
    now = time.time_ns
    return lambda: now() - 2 * 86_400 * 10**9


def stage_everything_again(platform: Platform) -> str:
    """Stage all events beside themselves and die: each would be there twice."""
    staged = stage_all_again(platform, DEDUPLICATED_EVENTS)
    assert staged.branch.startswith(STAGING)
    return staged.branch


# What happens to lakes


def lose_control_database(home: Home) -> None:
    (home.path / "control.db").unlink()


def roll_back(platform: Platform, table: str) -> None:
    """To the newest snapshot that held fewer rows."""
    [stream] = platform.streams
    loaded = platform.lake.catalog.load(stream, table)
    assert loaded
    now = total(head(loaded))
    older = [snapshot for snapshot in loaded.snapshots() if total(snapshot) < now]
    call(platform, f"rollback_to_snapshot('{stream}.{table}', {older[-1].snapshot_id})")


def total(snapshot: Snapshot) -> int:
    assert snapshot.summary
    return int(snapshot.summary.additional_properties["total-records"])


def expire(platform: Platform) -> None:
    """Leave each table its newest snapshot only."""
    [stream] = platform.streams
    for table in tables.ALL:
        arguments = f"table => '{stream}.{table}', older_than => TIMESTAMP '2999-01-01', retain_last => 1"
        call(platform, f"expire_snapshots({arguments})")
        loaded = platform.lake.catalog.load(stream, table)
        assert loaded
        assert len(loaded.snapshots()) == 1


def compact(platform: Platform, table: str) -> None:
    [stream] = platform.streams
    call(platform, f"rewrite_data_files(table => '{stream}.{table}', options => map('rewrite-all', 'true'))")


def call(platform: Platform, procedure: str) -> None:
    platform.lake.spark().sql(f"CALL {CATALOG}.system.{procedure}").collect()


def with_new_column(home: Home) -> Home:
    """The same home, with an attribute more in its stream file."""
    attributes = ATTRIBUTES | {"referrer": "string"}
    return replace(home, stream=make_stream(home.folder, buckets=2, timeout="2h", attributes=attributes))


# What a ledger tells


def heads(platform: Platform) -> dict[str, int]:
    [stream] = platform.streams
    return {table: head.snapshot_id for table, head in platform.ledger.sync(stream).items()}


def sizes_in_manifests(platform: Platform, table: str) -> dict[Cell, CellSize]:
    [stream] = platform.streams
    loaded = platform.lake.catalog.load(stream, table)
    assert loaded
    sizes: dict[Cell, CellSize] = {}
    for file in live(loaded, head(loaded)):
        if file.cell is not None:
            size = sizes.get(file.cell, CellSize(0, 0, 0))
            sizes[file.cell] = CellSize(size.rows + file.rows, size.files + 1, size.bytes + file.bytes)
    return sizes


def told(platform: Platform) -> dict[str, object]:
    [stream] = platform.streams.values()
    heads(platform)
    ledger = platform.ledger
    return {
        "heads": ledger.sync(stream.name),
        "files": ledger.files(stream.name),
        **{f"sizes of {table}": ledger.sizes(stream.name, table) for table in tables.ALL},
        **{f"facts of {table}": ledger.facts(stream, table, fingerprint(stream, table)) for table in DERIVED},
    }
