"""Another number of buckets: no row changes, nothing becomes stale, and whatever interrupts it, it can go on."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import ConflictError, IncompatibleChangeError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.layout import Layout
from dedup_platform.lake.snapshots import bucket_count, rewrites_only
from dedup_platform.lake.staged import Staged
from dedup_platform.platform import Platform
from dedup_platform.stream import Sessions, load_stream
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.homes import Home, all_rows, stale
from dedup_platform_tests.variants import some

START = utc("2024-01-01T00:00")
DAY = timedelta(days=1)
DAYS = 6
ENTITIES = [f"user {number}" for number in range(30)]
BUCKETS = 4
A_RUN = 2
"""Partitions that are copied in one commit."""


class KilledError(Exception):
    """In place of a SIGKILL."""


def event(entity: str, day: int, minute: int, arrived: int | None = None) -> Record:
    happened = START + day * DAY + timedelta(minutes=minute)
    arrival = happened if arrived is None else START + arrived * DAY
    return record(entity, f"{entity}/{day}/{minute}", happened, arrival, page="/", quantity=minute)


def history() -> list[Record]:
    """Sessions within days and across midnight, copies, an event without an entity, and one that is rejected."""
    events = [event(entity, day, minute) for entity in ENTITIES for day in range(DAYS) for minute in (0, 20, 1430)]
    copies = [event(entity, 1, 20, arrived=8) for entity in ENTITIES[::3]]
    return lay_out([*events, *copies, event("", 2, 30), record("a", "", START, START)], "history.json")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Home:
    folder = tmp_path_factory.mktemp("buckets")
    path = make_stream(folder, buckets=BUCKETS).origin
    path.write_text(f"{path.read_text()}late: {{settle: 0s, max_partitions_per_run: {A_RUN}}}\n")
    home = Home(folder, load_stream(path), spark, HeldClock(datetime.now(UTC)))
    write_batch(home.stream, history())
    home.run()
    home.keep()
    return home


@pytest.fixture
def home(built: Home) -> Iterator[Home]:
    built.put_back()
    files = set(built.stream.files.root.iterdir())
    yield built
    for file in set(built.stream.files.root.iterdir()) - files:
        file.unlink()


def open_anew(home: Home, buckets: int = 0) -> Platform:
    """A platform that remembers nothing, of a stream file that says so many buckets."""
    changed = home.stream.model_copy(update={"buckets": buckets})
    return temporary_platform(home.path, changed, home.spark, home.clock, in_process=True)


def deliver(home: Home, platform: Platform, name: str, *records: Record) -> None:
    write_batch(home.stream, lay_out(records, name))
    platform.ingest(home.stream.name)


def counts(platform: Platform, home: Home) -> set[int]:
    return {bucket_count(platform.lake.catalog.load_table(home.stream.name, table)) for table in tables.ALL}


def used_buckets(platform: Platform, home: Home, table: str) -> set[int]:
    return {cell.bucket for cell in platform.ledger.sizes(home.stream.name, table)}


@pytest.mark.parametrize("buckets", some([16, 1], quick=[16]))
def test_no_row_changes_nothing_becomes_stale_and_late_events_repair_new_cells_only(home: Home, buckets: int) -> None:
    before, platform = all_rows(home.platform()), open_anew(home)
    platform.change_buckets(home.stream.name, buckets)
    assert counts(platform, home) == {buckets}
    assert all_rows(platform) == before
    assert not stale(platform)
    for table in tables.DERIVED:
        used = used_buckets(platform, home, table) - {-1}
        assert used <= set(range(buckets))
        assert len(used) > 1 or buckets == 1
    for table in tables.ALL:
        newest = platform.lake.catalog.load_table(home.stream.name, table).current_snapshot()
        assert newest is not None
        assert rewrites_only(newest)

    deliver(home, platform, "late.json", event(ENTITIES[0], 3, 700, arrived=9), event(ENTITIES[1], 1, 20, arrived=9))
    commits = platform.repair(home.stream.name)
    assert {commit.table: len(commit.cells_rewritten) for commit in commits} == {
        tables.DEDUPLICATED_EVENTS: 2,
        tables.SESSION_FRAGMENTS: 1,
        tables.SESSIONS: 1,
    }
    assert not stale(platform)
    assert wrong_rows(platform, home.stream.name) == []


def test_the_control_database_can_be_lost_after_it(home: Home) -> None:
    platform = open_anew(home)
    platform.change_buckets(home.stream.name, 1)
    deliver(home, platform, "late.json", event(ENTITIES[0], 3, 700, arrived=9))
    platform.repair(home.stream.name)
    sizes = {table: platform.ledger.sizes(home.stream.name, table) for table in tables.ALL}
    (home.path / "control.db").unlink()
    again = open_anew(home)
    assert not stale(again)
    assert {table: again.ledger.sizes(home.stream.name, table) for table in tables.ALL} == sizes
    assert not again.source.waiting(home.stream.name).items


def test_settings_that_change_later_make_every_new_cell_stale(home: Home) -> None:
    platform = open_anew(home)
    platform.change_buckets(home.stream.name, 16)
    sessions = Sessions(timeout=timedelta(minutes=5), aggregates=home.stream.aggregates)
    changed = home.stream.model_copy(update={"buckets": 0, "sessions": sessions})
    other = temporary_platform(home.path, changed, home.spark, home.clock, in_process=True)
    plans = {plan.table: {each.cell for each in plan.stale} for plan in other.plan(changed.name)}
    assert plans[tables.SESSION_FRAGMENTS] == set(other.ledger.sizes(changed.name, tables.SESSION_FRAGMENTS))


@pytest.mark.thorough
def test_there_and_back_again(home: Home) -> None:
    before, platform = all_rows(home.platform()), open_anew(home)
    for buckets in (8, BUCKETS):
        platform.change_buckets(home.stream.name, buckets)
    assert counts(platform, home) == {BUCKETS}
    assert all_rows(platform) == before
    assert platform.maintain(home.stream.name)
    deliver(home, platform, "late.json", event(ENTITIES[0], 3, 700, arrived=9))
    platform.repair(home.stream.name)
    assert wrong_rows(platform, home.stream.name) == []


def test_what_is_stale_is_repaired_first(home: Home) -> None:
    platform = open_anew(home)
    deliver(home, platform, "late.json", event(ENTITIES[0], 3, 700, arrived=9))
    platform.change_buckets(home.stream.name, 2)
    assert not stale(platform)
    assert wrong_rows(platform, home.stream.name) == []


@pytest.mark.parametrize(
    ("commits", "partitions"), some([(1, 2), (4, 7)], quick=[(1, 2)], unpack=True), ids=["within raw", "after raw"]
)
def test_killed_after_some_copies_it_goes_on_where_it_was(
    home: Home, monkeypatch: pytest.MonkeyPatch, commits: int, partitions: int
) -> None:
    before, platform = all_rows(home.platform()), open_anew(home)
    kept: list[str] = []

    def keep(self: Layout, *arguments: object) -> None:
        if len(kept) == commits:
            raise KilledError
        kept.append(self.table)
        original(self, *arguments)  # type: ignore[arg-type]

    original = Layout.keep
    with monkeypatch.context() as patch:
        patch.setattr(Layout, "keep", keep)
        with pytest.raises(KilledError):
            platform.change_buckets(home.stream.name, 8)
    assert counts(platform, home) == {BUCKETS}
    assert all_rows(open_anew(home, BUCKETS)) == before
    told: list[tuple[str, int, int]] = []
    open_anew(home).change_buckets(home.stream.name, 8, lambda *step: told.append(step))
    first = {table: done for table, done, _ in reversed(told)}
    assert sum(first.values()) == partitions
    assert all_rows(platform) == before
    assert not stale(platform)


def test_what_lands_while_it_copies_is_copied_too(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    platform, original = open_anew(home), Layout.keep
    landed: list[str] = []

    def keep(self: Layout, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        if self.table == tables.DUPLICATE_EVENTS and not landed:
            landed.append(self.table)
            deliver(home, open_anew(home), "meanwhile.json", event(ENTITIES[0], 0, 700, arrived=9))

    monkeypatch.setattr(Layout, "keep", keep)
    platform.change_buckets(home.stream.name, 8)
    assert landed
    assert counts(platform, home) == {8}
    assert not stale(platform)
    assert wrong_rows(platform, home.stream.name) == []


@pytest.mark.parametrize("swapped", some([1, 3], quick=[3]))
def test_between_two_swaps_nobody_writes_and_it_can_be_finished(
    home: Home, monkeypatch: pytest.MonkeyPatch, swapped: int
) -> None:
    before, platform = all_rows(home.platform()), open_anew(home)
    published: list[str] = []

    def publish(self: Lakehouse, staged: Staged) -> None:
        if len(published) == swapped:
            raise KilledError
        published.append(staged.table)
        original(self, staged)

    original = Lakehouse.publish
    with monkeypatch.context() as patch:
        patch.setattr(Lakehouse, "publish", publish)
        with pytest.raises(KilledError):
            platform.change_buckets(home.stream.name, 8)
    other = open_anew(home)
    assert all_rows(other) == before
    write_batch(home.stream, lay_out([event(ENTITIES[0], 0, 700, arrived=9)], "refused.json"))
    for refused in (other.ingest, other.repair, other.plan):
        with pytest.raises(IncompatibleChangeError, match=r"`dedup-platform buckets .* finishes it"):
            refused(home.stream.name)
    other.change_buckets(home.stream.name, 8)
    assert counts(other, home) == {8}
    assert all_rows(other) == before
    other.ingest(home.stream.name)
    other.repair(home.stream.name)
    assert wrong_rows(other, home.stream.name) == []


def test_a_writer_who_wins_the_race_for_raw_loses_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    platform, original = open_anew(home), Lakehouse.publish
    landed: list[str] = []

    def publish(self: Lakehouse, staged: Staged) -> None:
        if staged.spec_id is not None and not landed:
            landed.append(staged.table)
            with monkeypatch.context() as patch:
                patch.setattr(Lakehouse, "publish", original)
                deliver(home, open_anew(home), "meanwhile.json", event(ENTITIES[0], 0, 700, arrived=9))
        original(self, staged)

    monkeypatch.setattr(Lakehouse, "publish", publish)
    platform.change_buckets(home.stream.name, 8)
    assert landed == [tables.RAW_EVENTS]
    assert counts(platform, home) == {8}
    assert wrong_rows(platform, home.stream.name) == []


def test_the_stream_file_must_agree_with_the_tables(home: Home) -> None:
    with pytest.raises(IncompatibleChangeError, match=r"`dedup-platform buckets \w+` changes them"):
        open_anew(home, 8).plan(home.stream.name)
    open_anew(home, 8).change_buckets(home.stream.name, 8)
    open_anew(home, 8).plan(home.stream.name)


def test_always_overtaken_it_gives_up_and_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def overtaken(*_: object) -> None:
        raise ConflictError("another writer committed first")

    platform = open_anew(home)
    monkeypatch.setattr(Lakehouse, "publish", overtaken)
    with pytest.raises(ConflictError):
        platform.change_buckets(home.stream.name, 8)
    assert counts(platform, home) == {BUCKETS}


def test_before_anything_was_taken_in_there_is_nothing_to_change(tmp_path: Path, spark: SparkSession) -> None:
    stream = make_stream(tmp_path)
    Home(tmp_path, stream, spark, HeldClock(START)).platform().change_buckets(stream.name, 8)
