"""A writer that is held between its read and its commit, while another one finishes, cannot overwrite newer rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import ConflictError
from dedup_platform.ingest.append import Appending, append
from dedup_platform.lake.snapshots import bucket_count
from dedup_platform.lake.staged import Staged
from dedup_platform.platform import Platform
from dedup_platform.settings import CATALOG
from dedup_platform.sources.files import grouped, list_files, read_group
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, DUPLICATE_EVENTS, RAW_EVENTS
from dedup_platform.testing import (
    HeldClock,
    History,
    Rules,
    SessionIds,
    differences,
    histories,
    lay_out,
    make_stream,
    record,
    temporary_platform,
    utc,
    write_batch,
)
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.homes import Home, stage_cells_again
from dedup_platform_tests.variants import some


@dataclass
class Two:
    """Two platforms on one home, of which the first has taken in and repaired the first batch."""

    stream: Stream
    history: History
    one: Platform
    other: Platform
    delivered: int = 0

    def deliver(self) -> None:
        """Let the next batch wait at the source."""
        write_batch(self.stream, self.history.batches[self.delivered])
        self.delivered += 1

    def check(self) -> None:
        """All that was delivered is in the tables, once, and they are what the oracle says."""
        records = [record for batch in self.history.batches[: self.delivered] for record in batch]
        assert self.one.read(self.stream.name, RAW_EVENTS).count() == len(records)
        assert differences(self.one, self.stream, records, SessionIds()) == []


@pytest.fixture(scope="module")
def kept(
    control_database: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
) -> tuple[Home, History]:
    """A home that has taken in and repaired the first batch of the history."""
    folder = tmp_path_factory.mktemp("held")
    stream = make_stream(folder, buckets=2, timeout="2h")
    history = histories(11, 40, Rules.of(stream), stream.partitions.start, batches=3)
    home = Home(folder, stream, spark, HeldClock(history.now))
    write_batch(stream, history.batches[0])
    home.run()
    home.keep()
    return home, history


@pytest.fixture
def two(kept: tuple[Home, History]) -> Iterator[Two]:
    home, history = kept
    home.put_back()
    landing = home.stream.files.root
    first = set(landing.iterdir())
    yield Two(home.stream, history, home.platform(), home.platform(), delivered=1)
    for file in set(landing.iterdir()) - first:
        file.unlink()


def run(platform: Platform) -> None:
    [stream] = platform.streams
    platform.ingest(stream)
    platform.repair(stream)


def stage_what_waits(two: Two) -> Staged:
    """What an ingest of the first platform would publish, held."""
    lake = two.one.lake
    groups = grouped([(file, 0) for file in list_files(two.stream, two.one.clock()).ready])
    files = lake.table_files(two.stream, RAW_EVENTS)
    read = partial(read_group, two.stream, groups)
    appending = Appending(two.stream, files, lake.buckets(two.stream), read, len(groups))
    added = [each.file for each in append(lake.spark(), appending)]
    return lake.stage_append(two.stream, RAW_EVENTS, snapshot(two.one, RAW_EVENTS), added, {})


def stage_all_cells(two: Two, table: str) -> Staged:
    """What a recomputation of all cells by the first platform would publish, held: the rows of now."""
    cells = two.one.ledger.sizes(two.stream.name, table)
    return stage_cells_again(two.one, table, snapshot(two.one, table), cells)


def snapshot(platform: Platform, table: str) -> int:
    [stream] = platform.streams
    return platform.ledger.sync(stream)[table].snapshot_id


def branches(platform: Platform, table: str) -> set[str]:
    [stream] = platform.streams
    loaded = platform.lake.catalog.load(stream, table)
    assert loaded
    return {name for name, at in loaded.refs().items() if at.snapshot_ref_type == SnapshotRefType.BRANCH} - {"main"}


def refused(two: Two, held: Staged) -> None:
    """The held writer may not publish, says that it can be tried again, and leaves nothing behind."""
    newest = snapshot(two.other, held.table)
    with pytest.raises(ConflictError, match="Run again") as refusal:
        two.one.lake.publish(held)
    assert refusal.value.retryable
    assert snapshot(two.one, held.table) == newest
    assert branches(two.one, held.table) == set()
    two.check()


def test_the_same_batch_staged_twice_is_published_once(two: Two) -> None:
    two.deliver()
    held = stage_what_waits(two)
    run(two.other)
    refused(two, held)


@pytest.mark.parametrize("table", some([DUPLICATE_EVENTS, *DERIVED], quick=[DUPLICATE_EVENTS, tables.SESSIONS]))
def test_newer_rows_are_not_overwritten(table: str, two: Two) -> None:
    held = stage_all_cells(two, table)
    two.deliver()
    run(two.other)
    refused(two, held)


@pytest.mark.parametrize("table", some(DERIVED, quick=[tables.SESSIONS]))
def test_a_commit_that_only_checked_cells_is_a_conflict_too(table: str, two: Two) -> None:
    held = stage_all_cells(two, table)
    partitions = {cell.partition for cell in two.one.ledger.sizes(two.stream.name, table)}
    assert two.other.recompute(two.stream.name, table, partitions).cells_rewritten == frozenset()
    refused(two, held)


@pytest.mark.parametrize("table", some(tables.ALL, quick=[RAW_EVENTS, tables.SESSIONS]))
def test_a_compaction_meanwhile_doubles_and_loses_nothing(table: str, two: Two) -> None:
    if table == RAW_EVENTS:
        two.deliver()
    held = stage_what_waits(two) if table == RAW_EVENTS else stage_all_cells(two, table)
    compact(two, table)
    try:
        two.one.lake.publish(held)
    except ConflictError:
        run(two.one)
    two.check()


def compact(two: Two, table: str) -> None:
    name = f"{two.stream.name}.{table}"
    command = f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    [result] = two.other.lake.spark().sql(command).collect()
    assert result.rewritten_data_files_count


@pytest.mark.parametrize("table", some(tables.ALL, quick=[RAW_EVENTS, tables.SESSIONS]))
def test_a_run_that_is_overtaken_before_it_publishes_starts_again_and_ends_right(table: str, two: Two) -> None:
    def overtake() -> None:
        two.deliver()
        run(two.other)

    two.deliver()
    hold(two.one, table, overtake)
    run(two.one)
    assert two.delivered == 3, f"it never published {table}"
    two.check()


def test_a_run_that_dies_between_duplicates_and_events_leaves_a_pair_that_readers_can_trust(two: Two) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    before = pair(two)
    two.deliver()
    hold(two.one, DEDUPLICATED_EVENTS, die)
    with pytest.raises(KeyboardInterrupt):
        run(two.one)
    assert pair(two) == before
    run(two.other)
    two.check()


def test_readers_see_each_record_once_although_others_go_on_after_a_writer_died_between_duplicates_and_events(
    tmp_path: Path, spark: SparkSession
) -> None:
    """The dead writer had moved a record of the first day to the duplicates; the other rebuilds the ninth day only."""

    def die() -> None:
        raise KeyboardInterrupt

    first, ninth = utc("2024-01-01T12:00"), utc("2024-01-09T12:00")
    stream = make_stream(tmp_path)
    clock = HeldClock(ninth + timedelta(days=1))
    one, other = (temporary_platform(tmp_path / "home", stream, spark, clock, in_process=True) for _ in range(2))
    write_batch(stream, lay_out([record("u", "x", first, first + timedelta(hours=1))], "copy.json"))
    run(one)
    write_batch(stream, lay_out([record("u", "x", first), record("u", "y", ninth)], "original.json"))
    hold(one, DEDUPLICATED_EVENTS, die)
    with pytest.raises(KeyboardInterrupt):
        run(one)
    other.recompute_stale(stream.name, DEDUPLICATED_EVENTS, {stream.partitions.ordinal(ninth)})
    events, duplicates = (
        {row.source for row in other.read(stream.name, table).where("event_id = 'x'").collect()}
        for table in (DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)
    )
    assert events & duplicates == set()
    run(other)
    assert wrong_rows(other, stream.name) == []


def test_whoever_creates_the_first_table_chooses_the_buckets_of_all(tmp_path: Path, spark: SparkSession) -> None:
    stream = make_stream(tmp_path, buckets=0)
    platform = temporary_platform(tmp_path / "home", stream, spark, HeldClock(utc("2024-02-01")), in_process=True)
    platform.lake.catalog.iceberg.create_namespace(stream.name)
    platform.lake._create_table(stream, RAW_EVENTS, 4)
    platform.lake.create(stream, 1)
    loaded = [platform.lake.catalog.load(stream.name, table) for table in tables.ALL]
    assert [bucket_count(table) for table in loaded if table] == [4] * len(tables.ALL)


def test_of_two_first_ingests_the_one_that_creates_the_tables_last_reads_nothing_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(tmp_path, buckets=1)
    write_batch(stream, lay_out([record("a", "1", utc("2024-03-01T10:00"), utc("2024-03-01T10:00"))], "one.json"))
    clock = HeldClock(utc("2024-03-02T00:00"))
    one, other = (temporary_platform(tmp_path / "home", stream, spark, clock, in_process=True) for _ in range(2))
    create = one.lake.create

    def late(stream: Stream, buckets: int) -> None:
        monkeypatch.undo()
        other.ingest(stream.name)
        create(stream, buckets)

    monkeypatch.setattr(one.lake, "create", late)
    assert one.ingest(stream.name) == []
    assert one.rows(stream.name, RAW_EVENTS) == 1


def test_an_empty_snapshot_whose_number_another_writer_took_meanwhile_takes_the_next(two: Two) -> None:
    lake, base = two.one.lake, snapshot(two.one, RAW_EVENTS)
    branch, load = lake._branch(two.stream, RAW_EVENTS, base), lake._load

    def overtaken(stream: str, table: str) -> Table:
        loaded = load(stream, table)
        lake._load = load  # type: ignore[method-assign]
        two.other.lake.stage_nothing(two.stream, RAW_EVENTS, base, {})
        return loaded

    lake._load = overtaken  # type: ignore[method-assign]
    lake._append_nothing(two.stream, RAW_EVENTS, branch, {})
    assert lake._staged(two.stream, RAW_EVENTS, branch, base).rows_added == 0


def pair(two: Two) -> tuple[list[str], list[str]]:
    """Events and duplicates as readers see them."""
    read = (two.other.read(two.stream.name, table) for table in (DEDUPLICATED_EVENTS, DUPLICATE_EVENTS))
    events, duplicates = (sorted(map(repr, rows.toArrow().to_pylist())) for rows in read)
    return events, duplicates


def hold(platform: Platform, table: str, meanwhile: Callable[[], None]) -> None:
    """Let the platform's next publication of this table wait while something else happens."""
    publish = platform.lake.publish

    def held(staged: Staged) -> None:
        if staged.table == table:
            platform.lake.publish = publish  # type: ignore[method-assign]
            meanwhile()
        publish(staged)

    platform.lake.publish = held  # type: ignore[method-assign]
