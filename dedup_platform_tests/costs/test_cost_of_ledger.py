"""What the ledger does for few stale cells does not depend on how many cells there are, counted in steps of SQLite."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.ledger import CellSize, KeptFigures, Ledger, TableSize
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, make_stream, utc
from dedup_platform.testing.described import BYTES_A_FILE, ROWS_A_FILE, DescribedTables

BUCKETS = 4
FEW, MANY = 5, 250
"""Days of a small and a large ledger."""
ARRIVED = utc("2024-02-01T00:00:00")


class Life:
    """A stream of so many days, all of it built; then events come late into two cells far apart, and are repaired."""

    def __init__(self, folder: Path, days: int) -> None:
        self.stream = make_stream(folder, buckets=BUCKETS)
        settings = Settings(home=folder / "home")
        self.platform = Platform(settings, {self.stream.name: self.stream}, no_spark, HeldClock(ARRIVED))
        self.tables = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + day, bucket) for day in range(days) for bucket in range(BUCKETS)]
        self.late = [self.cells[1], self.cells[-2]]
        self.tables.ingest(self.cells, ARRIVED)
        for table in tables.DERIVED:
            self.tables.build(table, ARRIVED)
        self.ledger.sync(self.stream.name)

    @property
    def ledger(self) -> Ledger:
        return self.platform.ledger

    def steps(self) -> dict[str, int]:
        """Steps of SQLite for each thing that is done for the two cells."""
        name, steps = self.stream.name, {}

        def count(what: str, run_tasks: Callable[[], Any]) -> None:
            with counted(self.ledger.engine) as seen:
                run_tasks()
            steps[what] = len(seen)

        count("a fold of nothing", lambda: self.ledger.sync(name))
        count("a plan of nothing", lambda: self.platform.plan(name))
        self.tables.ingest(self.late, ARRIVED + timedelta(days=1))
        count("the fold of an ingest", lambda: self.ledger.sync(name))
        count("a plan", lambda: self.platform.plan(name))
        count("sizes of cells", lambda: self.ledger.sizes(name, tables.RAW_EVENTS, self.late))
        count(
            "sizes of partitions",
            lambda: self.ledger.sizes_of_partitions(name, tables.RAW_EVENTS, {cell.partition for cell in self.late}),
        )
        partitions, kept = {cell.partition for cell in self.late}, KeptFigures(self.ledger)
        count("sizes of each table", lambda: kept.sizes(name, partitions))
        count("figures", lambda: kept.of_partitions(self.stream, tables.DEDUPLICATED_EVENTS, partitions))
        for table in tables.DERIVED:
            self.tables.build(table, ARRIVED)
            count(f"the fold of a build of {table}", lambda: self.ledger.sync(name))
        return steps


def no_spark() -> Any:
    raise AssertionError("metadata is read without Spark")


@contextmanager
def counted(engine: sa.Engine) -> Iterator[list[None]]:
    """As many elements as SQLite takes steps; a row that is looked at takes some."""
    seen: list[None] = []

    def watch(connection: Any, *_: object) -> None:
        # SQLite goes on as long as nothing true is returned.
        connection.set_progress_handler(lambda: seen.append(None), 1)

    sa.event.listen(engine, "checkout", watch)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "checkout", watch)
        with engine.connect() as connection:
            connection.connection.driver_connection.set_progress_handler(None, 1)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, Life]:
    return {days: Life(tmp_path_factory.mktemp(f"{days}_days"), days) for days in (FEW, MANY)}


def test_what_is_done_for_few_cells_takes_as_many_steps_in_a_large_ledger(lives: Mapping[int, Life]) -> None:
    small, large = lives[FEW].steps(), lives[MANY].steps()
    assert all(small.values()), "the count itself works"
    assert large == small


def test_sizes_and_totals_are_those_of_the_cells(lives: Mapping[int, Life]) -> None:
    life = lives[MANY]
    name, one = life.stream.name, CellSize(ROWS_A_FILE, 1, BYTES_A_FILE)
    wanted = [life.cells[0], life.cells[1], life.cells[-1], Cell(0, 0)]
    assert life.ledger.sizes(name, tables.SESSIONS, wanted) == dict.fromkeys(wanted[:3], one)
    assert life.ledger.sizes(name, tables.SESSIONS, []) == {}
    assert life.ledger.sizes(name, tables.SESSIONS) == dict.fromkeys(life.cells, one)
    last = life.cells[-BUCKETS:]
    assert life.ledger.sizes_of_partitions(name, tables.SESSIONS, {last[0].partition, 0}) == dict.fromkeys(last, one)
    number = len(life.cells)
    assert life.ledger.totals(name)[tables.SESSIONS] == TableSize(
        number, number * ROWS_A_FILE, number, number * BYTES_A_FILE
    )


def test_only_what_the_late_events_touched_is_stale(tmp_path: Path) -> None:
    life = Life(tmp_path, FEW)
    life.tables.ingest(life.late, ARRIVED + timedelta(days=1))
    assert stale(life.platform, life.stream) == {tables.DEDUPLICATED_EVENTS: life.late}
    for table, following in zip(tables.DERIVED, (*tables.DERIVED[1:], None), strict=True):
        life.tables.build(table, ARRIVED)
        assert stale(life.platform, life.stream) == ({following: life.late} if following else {})


def stale(platform: Platform, stream: Stream) -> dict[str, list[Cell]]:
    plans = platform.plan(stream.name)
    return {plan.table: [each.cell for each in plan.stale] for plan in plans if plan.stale}
