"""Upkeep of a lake that has lived: it gets small, no row changes, nothing becomes stale, and nothing is forgotten."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.snapshots import ancestry, head, paired_duplicates, rewrites_only
from dedup_platform.lake.staged import Staged
from dedup_platform.ledger import CellSize
from dedup_platform.maintenance import procedures, upkeep
from dedup_platform.maintenance.upkeep import Upkeep
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.tables import AUDIT, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSION_FRAGMENTS, SESSIONS
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.homes import Home, all_rows, stage_all_again, stage_cells_again, stale
from dedup_platform_tests.variants import some

START = utc("2024-01-01T00:00")
DAY = timedelta(days=1)
DAYS = 10
BATCHES = procedures.SMALL_FILES
IN_A_MONTH = timedelta(days=30)
LIVED, MAINTAINED = "lived", "maintained"


@dataclass(frozen=True)
class Lake:
    """A home that has lived through some batches, what its tables held, and what maintenance did to it afterwards."""

    home: Home
    rows: dict[str, list[str]]
    pinned: dict[str, list[str]]
    """What readers saw after maintenance who had chosen their snapshots before it."""
    upkeep: dict[str, Upkeep]


def event(entity: str, day: int, minute: int, event_id: str = "", arrived: int | None = None) -> Record:
    """An event of that day's minute; `arrived` is the day on which it arrived."""
    happened = START + day * DAY + timedelta(minutes=minute)
    arrival = happened if arrived is None else START + arrived * DAY
    return record(entity, event_id or f"{entity}/{day}/{minute}", happened, arrival, page="/", quantity=minute)


MOVED = {
    0: [event("c", DAYS, 5, "moved", arrived=30)],
    1: [event("c", DAYS - 1, 1430, "moved", arrived=20)],
}
"""An event alone on its day, until a record that arrived earlier takes its place the day before: a cell is emptied."""


def batch(number: int) -> list[Record]:
    """Events of all days, copies of those of the batch before, and a record without an event id, which is rejected."""
    events = [event(entity, day, 60 * number + 20) for entity in "ab" for day in range(DAYS)]
    copies = [event("a", day, 60 * (number - 1) + 20, arrived=40) for day in range(DAYS) if number]
    return lay_out([*events, *copies, *MOVED.get(number, ()), record("a", "", START, START)], f"{number}.json")


def deliver(home: Home, name: str, *records: Record) -> None:
    write_batch(home.stream, lay_out(records, name))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lake:
    folder = tmp_path_factory.mktemp("maintenance")
    path = make_stream(folder).origin
    path.write_text(f"{path.read_text()}maintenance: {{min_snapshots: 1}}\n")
    # The platform's clock is a month ahead of Iceberg's: all that was committed here is old.
    home = Home(folder, load_stream(path), spark, HeldClock(datetime.now(UTC) + IN_A_MONTH))
    for number in range(BATCHES):
        write_batch(home.stream, batch(number))
        home.run()
    platform = home.platform()
    home.keep(LIVED)
    rows = all_rows(platform)
    readers = {table: platform.read(home.stream.name, table) for table in tables.ALL}
    done = {each.table: each for each in platform.maintain(home.stream.name)}
    pinned = {table: sorted(map(repr, reader.toArrow().to_pylist())) for table, reader in readers.items()}
    home.keep(MAINTAINED)
    return Lake(home, rows, pinned, done)


@pytest.fixture
def lived(lake: Lake) -> Iterator[Home]:
    yield from back(lake.home, LIVED)


@pytest.fixture
def maintained(lake: Lake) -> Iterator[Home]:
    yield from back(lake.home, MAINTAINED)


def back(home: Home, state: str) -> Iterator[Home]:
    home.put_back(state)
    files = set(home.stream.files.root.iterdir())
    yield home
    for file in set(home.stream.files.root.iterdir()) - files:
        file.unlink()


# What it does


def test_no_row_changes_and_nothing_becomes_stale(lake: Lake, maintained: Home) -> None:
    platform = maintained.platform()
    assert all_rows(platform) == lake.rows
    assert stale(platform) == []
    assert wrong_rows(platform, maintained.stream.name) == []
    assert platform.ingest(maintained.stream.name) == platform.repair(maintained.stream.name) == []


def test_readers_of_the_snapshots_from_before_go_on_reading(lake: Lake) -> None:
    assert lake.pinned == lake.rows


def test_small_files_become_one_for_each_cell(lake: Lake, maintained: Home) -> None:
    raw = lake.upkeep[RAW_EVENTS]
    assert raw.files_compacted >= BATCHES * (DAYS + 1)
    cells = ledger_sizes(maintained.platform())[RAW_EVENTS]
    assert {size.files for size in cells.values()} == {1}
    assert raw.after.files == len(cells) + 1, "the rejected records lie in one file, too"


def test_old_snapshots_go_with_their_files(lake: Lake, maintained: Home) -> None:
    for table, done in lake.upkeep.items():
        loaded = load(maintained, table)
        assert done.snapshots_expired > 0
        assert done.after.snapshots == len(loaded.snapshots()) <= 4
        data = {file.name for file in Path(loaded.location().removeprefix("file://")).glob("data/**/*.parquet")}
        assert data == {
            Path(each["file_path"]).name for each in loaded.inspect.all_files().select(["file_path"]).to_pylist()
        }


def test_maintenance_right_after_maintenance_does_nothing(maintained: Home) -> None:
    raw, _ = maintained.platform().maintain(maintained.stream.name, [RAW_EVENTS])
    assert (raw.files_compacted, raw.orphans_removed) == (0, 0)
    assert raw.after.files == raw.before.files


def test_many_manifests_become_few_and_are_no_news(lived: Home, monkeypatch: pytest.MonkeyPatch, lake: Lake) -> None:
    monkeypatch.setattr(upkeep, "MANIFESTS", 1)
    platform = lived.platform()
    [fragments] = platform.maintain(lived.stream.name, [SESSION_FRAGMENTS])
    assert fragments.before.manifests > fragments.after.manifests == 1
    assert stale(platform) == []
    (lived.path / "control.db").unlink()
    assert stale(lived.platform()) == []
    assert all_rows(platform) == lake.rows


# What it leaves known


def test_a_control_database_lost_afterwards_is_rebuilt_with_nothing_stale(lake: Lake, maintained: Home) -> None:
    sizes = ledger_sizes(maintained.platform())
    (maintained.path / "control.db").unlink()
    platform = maintained.platform()
    assert stale(platform) == []
    assert ledger_sizes(platform) == sizes
    assert platform.ingest(maintained.stream.name) == platform.repair(maintained.stream.name) == []
    assert all_rows(platform) == lake.rows


@pytest.mark.parametrize("lost", some([False, True], quick=[True]), ids=["", "control database lost"])
def test_a_late_event_afterwards_is_repaired(lost: bool, maintained: Home) -> None:
    name = maintained.stream.name
    late = event("a", 2, 700, arrived=50), event("a", 2, 20, arrived=50), event("d", DAYS, 30, arrived=50)
    deliver(maintained, "later.json", *late)
    if lost:
        (maintained.path / "control.db").unlink()
    platform = maintained.platform()
    platform.ingest(name)
    assert stale_cells(platform) == {cell(maintained, 2), cell(maintained, DAYS)}, "the other day had been emptied"
    platform.repair(name)
    assert wrong_rows(platform, name) == []
    assert stale(platform) == []


def test_duplicates_stay_that_belong_to_the_newest_events(lived: Home) -> None:
    """Their writer died before it published the events; nobody may lose sight of the pair, nor of what was unpaired."""
    name = lived.stream.name
    dying = lived.platform()
    deliver(lived, "copy.json", event("a", 1, 20, arrived=60))
    dying.ingest(name)
    before_publishing(dying, DEDUPLICATED_EVENTS, die)
    with pytest.raises(KeyboardInterrupt):
        dying.repair(name)
    platform = lived.platform()
    pair, unpaired = platform.lake.current(lived.stream, DUPLICATE_EVENTS), platform.lake.unpaired_cells(lived.stream)
    seen = {table: all_rows(platform)[table] for table in (DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)}
    assert unpaired == {cell(lived, 1)}

    platform.maintain(name, [DEDUPLICATED_EVENTS, DUPLICATE_EVENTS])
    assert paired_duplicates(load(lived, DEDUPLICATED_EVENTS)) == pair
    assert platform.lake.current(lived.stream, DUPLICATE_EVENTS) == pair
    assert platform.lake.unpaired_cells(lived.stream) == unpaired
    assert {table: all_rows(platform)[table] for table in seen} == seen
    assert wrong_rows(lived.run(), name) == []


# Races


@pytest.mark.thorough
def test_a_late_file_that_is_published_during_a_compaction_is_news_for_ever(lived: Home) -> None:
    """Also for a ledger that is rebuilt when neither the compaction nor what came before it is in history any more."""
    name = lived.stream.name
    writer, other = lived.platform(), lived.platform()
    deliver(lived, "during.json", event("a", 2, 701, arrived=50))
    with ThreadPoolExecutor(1) as pool:
        compaction: list[Future[list[Upkeep]]] = []

        def meanwhile() -> None:
            compaction.append(pool.submit(other.maintain, name, [RAW_EVENTS]))
            wait_for_new_file(lived, compaction[0])

        before_publishing(writer, RAW_EVENTS, meanwhile)
        [late] = writer.ingest(name)
        assert compaction[0].result()[0].files_compacted > 0
    newest, before, *_ = ancestry(load(lived, RAW_EVENTS))
    assert rewrites_only(newest)
    assert before.snapshot_id == late.snapshot_id, (
        "the file was not published between the compaction's start and its end"
    )
    assert stale_cells(lived.platform()) == {cell(lived, 2)}

    # A file more, so that the receipts' chain has an end that is newer than the compaction, and history is forgotten.
    deliver(lived, "after.json", event("b", 4, 702, arrived=50))
    lived.platform().ingest(name)
    lived.platform().maintain(name)
    assert newest.snapshot_id not in {each.snapshot_id for each in ancestry(load(lived, RAW_EVENTS))}
    (lived.path / "control.db").unlink()
    assert stale_cells(lived.platform()) == {cell(lived, 2), cell(lived, 4)}
    platform = lived.run()
    assert wrong_rows(platform, name) == []
    assert stale(platform) == []


def test_a_compaction_whose_files_are_replaced_meanwhile_tries_again(lived: Home, lake: Lake) -> None:
    name = lived.stream.name
    writer, other = lived.platform(), lived.platform()
    base = writer.ledger.sync(name)[RAW_EVENTS].snapshot_id
    staged = stage_cells_again(writer, RAW_EVENTS, base, [cell(lived, 0)])
    with ThreadPoolExecutor(1) as pool:
        compaction = pool.submit(other.maintain, name, [RAW_EVENTS])
        wait_for_new_file(lived, compaction)
        writer.lake.publish(staged)
        raw, _ = compaction.result()
    assert raw.files_compacted == BATCHES * (DAYS - 1) + BATCHES, "all but the replaced cell, and the rejected records"
    assert all_rows(other) == lake.rows


@pytest.mark.parametrize("table", some([RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS], quick=[RAW_EVENTS]))
def test_a_run_that_maintenance_overtakes_starts_again_and_ends_right(
    table: str, lived: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "MANIFESTS", 0)
    name = lived.stream.name
    writer, other = lived.platform(), lived.platform()
    deliver(lived, "overtaken.json", event("a", 2, 703, arrived=50), event("a", 2, 20, arrived=50))
    done: list[Upkeep] = []
    before_publishing(writer, table, lambda: done.extend(other.maintain(name, [table])))
    writer.ingest(name)
    writer.repair(name)
    assert [each.table for each in done if each.table != AUDIT] == [table]
    assert wrong_rows(writer, name) == []
    assert stale(writer) == []


# What nobody refers to


def test_orphans_go_when_they_are_old_and_a_writer_at_work_keeps_its_files(maintained: Home) -> None:
    platform = maintained.platform()
    at_work = stage_all_again(platform, DUPLICATE_EVENTS)
    folder = Path(load(maintained, DUPLICATE_EVENTS).location().removeprefix("file://"))
    data = next(folder.glob("data/**/*.parquet"))
    old, young, metadata = (data.with_name("old.parquet"), data.with_name("young.parquet"), folder / "metadata/x.avro")
    checksum = data.with_name(".gone.parquet.crc")
    for orphan in (old, young, metadata, checksum):
        shutil.copy(data, orphan)
    four_days_ago = time.time() - 4 * 86_400
    for file in set(folder.rglob("*")) - {young}:
        os.utime(file, (four_days_ago, four_days_ago))

    [done] = platform.maintain(maintained.stream.name, [DUPLICATE_EVENTS])
    assert done.orphans_removed == 3
    assert (old.exists(), metadata.exists(), checksum.exists(), young.exists()) == (False, False, False, True)
    platform.lake.publish(at_work)
    copies = platform.lake.read(maintained.stream, DUPLICATE_EVENTS, at_work.snapshot_id).toArrow()
    assert copies.num_rows == 2 * len(all_rows(platform)[DUPLICATE_EVENTS])


def test_what_was_staged_and_never_published_goes(maintained: Home) -> None:
    platform, name = maintained.platform(), maintained.stream.name
    staged = stage_all_again(platform, SESSIONS)
    platform.lake.discard(staged)
    known = load(maintained, SESSIONS)
    assert known.snapshot_by_id(staged.snapshot_id)
    [done] = platform.maintain(name, [SESSIONS])
    assert load(maintained, SESSIONS).snapshot_by_id(staged.snapshot_id) is None
    assert done.after.bytes < done.before.bytes


def test_a_tag_keeps_its_snapshot(maintained: Home) -> None:
    platform, name = maintained.platform(), maintained.stream.name
    tagged = head(load(maintained, SESSIONS)).snapshot_id
    load(maintained, SESSIONS).manage_snapshots().create_tag(tagged, "end_of_year").commit()
    before = platform.read(name, SESSIONS).count()
    for minute in (704, 705):
        deliver(maintained, f"{minute}.json", event("a", 2, minute, arrived=50))
        maintained.run()
    platform.maintain(name, [SESSIONS])
    assert tagged not in {each.snapshot_id for each in ancestry(load(maintained, SESSIONS))}
    assert platform.lake.read(maintained.stream, SESSIONS, tagged).count() == before


def test_before_anything_was_taken_in_there_is_nothing_to_do(tmp_path: Path, spark: SparkSession) -> None:
    home = Home(tmp_path, make_stream(tmp_path), spark, HeldClock(START))
    assert home.platform().maintain(home.stream.name) == []


# Helpers


def load(home: Home, table: str) -> Table:
    loaded = home.platform().lake.catalog.load(home.stream.name, table)
    assert loaded
    return loaded


def ledger_sizes(platform: Platform) -> dict[str, dict[Cell, CellSize]]:
    [stream] = platform.streams
    platform.ledger.sync(stream)
    return {table: platform.ledger.sizes(stream, table) for table in tables.ALL}


def cell(home: Home, day: int) -> Cell:
    return Cell(home.stream.partitions.ordinal(START) + day, 0)


def stale_cells(platform: Platform) -> set[Cell]:
    """The stale cells of the table that is built from raw."""
    [stream] = platform.streams
    return {each.cell for each in platform.plan(stream)[0].stale}


def before_publishing(platform: Platform, table: str, do: Callable[[], None]) -> None:
    """Do something before the platform's next publication of this table."""
    publish = platform.lake.publish

    def held(staged: Staged) -> None:
        if staged.table == table:
            platform.lake.publish = publish  # type: ignore[method-assign]
            do()
        publish(staged)

    platform.lake.publish = held  # type: ignore[method-assign]


def die() -> None:
    raise KeyboardInterrupt


def wait_for_new_file(home: Home, compaction: "Future[list[Upkeep]]") -> None:
    """Until the compaction has read what there is and begins to write: it commits only when all cells are written."""
    folder = home.path / "warehouse" / home.stream.name / RAW_EVENTS / "data"
    known = set(folder.rglob("*.parquet"))
    while set(folder.rglob("*.parquet")) <= known:
        assert not compaction.done(), compaction.result()
        time.sleep(0.001)
