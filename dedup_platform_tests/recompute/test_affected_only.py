"""Rule 6 and 9 by the manifests themselves: a late event rewrites its cell and what is linked to it, nothing else."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import ConservationError, IncompatibleChangeError
from dedup_platform.lake.snapshots import changes, head, since
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.recompute.tasks import TaskResult, run_tasks
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.judge import wrong_rows

START = utc("2024-03-01T00:00:00")
NOW = utc("2024-04-01T00:00:00")
DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
ENTITIES = [f"user {number}" for number in range(40)]
Touched = Mapping[str, set[Cell]]


@dataclass
class Deployment:
    """A stream with five days of events in four buckets, and whatever was delivered since."""

    platform: Platform
    stream: Stream
    batches: int = 0

    def deliver(self, *records: Record) -> Touched:
        """Take in and repair; which cells' files each table's own new snapshots added or took away."""
        before = {table: self.head(table) for table in tables.ALL}
        self.batches += 1
        write_batch(self.stream, lay_out(records, f"{self.batches}.json"))
        self.platform.ingest(self.stream.name)
        self.platform.repair(self.stream.name)
        return {table: self.touched(table, before[table]) for table in tables.ALL}

    def head(self, table: str) -> int | None:
        loaded = self.platform.lake.catalog.load(self.stream.name, table)
        return head(loaded).snapshot_id if loaded else None

    def touched(self, table: str, since_snapshot: int | None) -> set[Cell]:
        loaded = self.platform.lake.catalog.load(self.stream.name, table)
        assert loaded is not None
        snapshots, _ = since(loaded, since_snapshot)
        return {change.cell for snapshot in snapshots for change in changes(loaded, snapshot) if change.cell}

    def stale(self) -> list[object]:
        return [cell for plan in self.platform.plan(self.stream.name) for cell in plan.stale]

    def cell(self, entity: str, day: int) -> Cell:
        """Where the table itself keeps events of this entity on this day."""
        partition = self.stream.partitions.ordinal(START + day * DAY)
        of_entity = self.platform.read(self.stream.name, tables.RAW_EVENTS).where(f"entity_id = '{entity}'").limit(1)
        buckets = self.platform.lake.buckets(self.stream)
        (row,) = of_entity.selectExpr(f"lake.system.bucket({buckets}, entity_id) as bucket").collect()
        return Cell(partition, row.bucket)


def event(entity: str, event_id: str, day: int, minute: int, arrival_day: int | None = None) -> Record:
    time = START + day * DAY + minute * MINUTE
    arrival = time if arrival_day is None else START + arrival_day * DAY + minute * MINUTE
    return record(entity, event_id, time, arrival, page="/")


@pytest.fixture(scope="module")
def deployment(
    control_database: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
    spark: SparkSession,
) -> Iterator[Deployment]:
    """One for all tests of this module: each looks only at what its own delivery changed."""
    folder = tmp_path_factory.mktemp("affected")
    stream = make_stream(folder, start="2024-03-01", buckets=4)
    found = Deployment(temporary_platform(folder / "home", stream, spark, HeldClock(NOW), in_process=True), stream)
    found.deliver(
        *(
            event(entity, f"{entity}/{day}/{n}", day, 600 + n)
            for entity in ENTITIES
            for day in range(5)
            for n in range(3)
        ),
        event("night", "before", 1, 1435),
        event("night", "after", 2, 5),
    )
    yield found
    assert found.stale() == []
    assert wrong_rows(found.platform, found.stream.name) == []


def test_a_late_event_rewrites_its_cell_and_running_again_rewrites_nothing(deployment: Deployment) -> None:
    touched = deployment.deliver(event(ENTITIES[0], "late", 1, 610, arrival_day=9))
    cell = deployment.cell(ENTITIES[0], 1)
    assert touched == {
        tables.RAW_EVENTS: {cell},
        tables.DUPLICATE_EVENTS: set(),
        tables.DEDUPLICATED_EVENTS: {cell},
        tables.SESSION_FRAGMENTS: {cell},
        tables.SESSIONS: {cell},
    }
    heads = {table: deployment.head(table) for table in tables.ALL}
    assert deployment.platform.ingest(deployment.stream.name) == []
    assert deployment.platform.repair(deployment.stream.name) == []
    assert {table: deployment.head(table) for table in tables.ALL} == heads


def test_a_late_copy_rewrites_one_cell_of_the_duplicates_and_no_other_tables(deployment: Deployment) -> None:
    touched = deployment.deliver(event(ENTITIES[0], f"{ENTITIES[0]}/1/1", 1, 601, arrival_day=9))
    cell = deployment.cell(ENTITIES[0], 1)
    assert touched == {
        tables.RAW_EVENTS: {cell},
        tables.DUPLICATE_EVENTS: {cell},
        tables.DEDUPLICATED_EVENTS: set(),
        tables.SESSION_FRAGMENTS: set(),
        tables.SESSIONS: set(),
    }


def test_a_late_event_that_moves_a_session_to_the_day_before_rewrites_both_days(deployment: Deployment) -> None:
    deployment.deliver(event("mover", "first", 3, 5))
    touched = deployment.deliver(event("mover", "late", 2, 1435, arrival_day=9))
    day, before = deployment.cell("mover", 3), deployment.cell("mover", 2)
    assert touched[tables.DEDUPLICATED_EVENTS] == touched[tables.SESSION_FRAGMENTS] == {before}
    assert touched[tables.SESSIONS] == {before, day}


def test_a_copy_whose_winner_is_next_door_is_found_without_rewriting_next_door(deployment: Deployment) -> None:
    touched = deployment.deliver(event(ENTITIES[0], f"{ENTITIES[0]}/1/0", 2, 590, arrival_day=9))
    cell = deployment.cell(ENTITIES[0], 2)
    assert touched[tables.DUPLICATE_EVENTS] == {cell}
    assert touched[tables.DEDUPLICATED_EVENTS] == set()


def test_a_record_read_late_that_arrived_early_takes_over_next_door_in_one_commit(deployment: Deployment) -> None:
    deployment.deliver(event("contested", "x", 3, 5, arrival_day=8))
    before = deployment.head(tables.DEDUPLICATED_EVENTS)
    touched = deployment.deliver(event("contested", "x", 2, 1430, arrival_day=4))
    both = {deployment.cell("contested", 2), deployment.cell("contested", 3)}
    assert touched[tables.DEDUPLICATED_EVENTS] == both
    loaded = deployment.platform.lake.catalog.load(deployment.stream.name, tables.DEDUPLICATED_EVENTS)
    assert loaded is not None
    assert len(since(loaded, before)[0]) == 1


def make_ahead(deployment: Deployment, event_id: str) -> int:
    """Rebuild the events after a late one, and with them, ahead of their own commit, fragments; of which partition."""
    write_batch(deployment.stream, lay_out([event(ENTITIES[2], event_id, 1, 615, arrival_day=9)], f"{event_id}.json"))
    deployment.platform.ingest(deployment.stream.name)
    deployment.platform.recompute_stale(deployment.stream.name, tables.DEDUPLICATED_EVENTS)
    return deployment.cell(ENTITIES[2], 1).partition


def another(deployment: Deployment, spark: SparkSession) -> Platform:
    return temporary_platform(
        deployment.platform.settings.home, deployment.stream, spark, HeldClock(NOW), in_process=True
    )


def test_fragments_made_ahead_of_events_that_another_replaced_are_not_used(
    deployment: Deployment, spark: SparkSession
) -> None:
    make_ahead(deployment, "ahead")
    other, name = another(deployment, spark), deployment.stream.name
    write_batch(deployment.stream, lay_out([event(ENTITIES[2], "more", 1, 616, arrival_day=9)], "more.json"))
    other.ingest(name)
    other.recompute_stale(name, tables.DEDUPLICATED_EVENTS)
    deployment.platform.repair(name)
    assert deployment.stale() == []
    assert wrong_rows(deployment.platform, name) == []


def test_fragments_made_ahead_do_not_replace_the_same_ones_of_another(
    deployment: Deployment, spark: SparkSession
) -> None:
    partition = make_ahead(deployment, "made twice")
    name = deployment.stream.name
    another(deployment, spark).recompute_stale(name, tables.SESSION_FRAGMENTS)
    commit = deployment.platform.recompute(name, tables.SESSION_FRAGMENTS, [partition])
    assert commit.cells_checked
    assert not commit.cells_rewritten
    deployment.platform.repair(name)


def test_what_does_not_balance_is_not_published(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2 with a task that loses the events of a cell."""

    def forgetful(*arguments: Any) -> TaskResult:
        done = run_tasks(*arguments)
        lost = [replace(each, file=None) if each.table == tables.DEDUPLICATED_EVENTS else each for each in done.written]
        return replace(done, written=lost)

    heads = {table: deployment.head(table) for table in tables.ALL}
    with monkeypatch.context() as patch:
        patch.setattr("dedup_platform.recompute.build.run_tasks", forgetful)
        with pytest.raises(ConservationError, match=r"2024-03-03, bucket \d: \d+ raw, but \d+ deduplicated"):
            deployment.deliver(event(ENTITIES[0], "lost", 2, 611, arrival_day=10))
    assert deployment.head(tables.RAW_EVENTS) != heads[tables.RAW_EVENTS]
    assert {t: deployment.head(t) for t in tables.DERIVED} == {t: heads[t] for t in tables.DERIVED}
    deployment.platform.repair(deployment.stream.name)


def test_another_timeout_is_planned_as_settings_and_rebuilds_sessions_only(
    deployment: Deployment, tmp_path: Path
) -> None:
    before = deployment.head(tables.DEDUPLICATED_EVENTS)
    longer = make_stream(tmp_path, start="2024-03-01", buckets=4, timeout="1m")
    deployment.platform.streams[longer.name] = deployment.stream = longer
    reasons = {plan.table: {stale.reason for stale in plan.stale} for plan in deployment.platform.plan(longer.name)}
    assert reasons[tables.DEDUPLICATED_EVENTS] == set()
    assert reasons[tables.SESSION_FRAGMENTS] == reasons[tables.SESSIONS] == {"settings"}
    deployment.platform.repair(longer.name)
    assert deployment.head(tables.DEDUPLICATED_EVENTS) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [({"buckets": 8}, "buckets is 8"), ({"granularity": "hour"}, "partitions.granularity is hour")],
)
def test_what_the_tables_cannot_follow_is_refused(
    change: dict[str, object], message: str, deployment: Deployment, tmp_path: Path
) -> None:
    other = make_stream(tmp_path, **({"start": "2024-03-01", "buckets": 4} | change))  # type: ignore[arg-type]
    kept, deployment.platform.streams[other.name] = deployment.stream, other
    for refused in (deployment.platform.plan, deployment.platform.ingest, deployment.platform.repair):
        with pytest.raises(IncompatibleChangeError, match=message):
            refused(other.name)
    deployment.platform.streams[kept.name] = kept
