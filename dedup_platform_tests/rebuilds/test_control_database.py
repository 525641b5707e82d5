"""What the control database may be found as: of another version, damaged, made by two at once. Metadata alone."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.fingerprints import fingerprint
from dedup_platform.lateness import Cell, Change
from dedup_platform.ledger import Ledger
from dedup_platform.ledger.database import open_database
from dedup_platform.ledger.schema import METADATA
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, make_stream, utc
from dedup_platform.testing.described import DescribedTables
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name

ARRIVED = utc("2024-02-01")
BUCKETS = 2


def no_spark() -> Any:
    raise AssertionError("the ledger reads metadata alone")


class Lived:
    """A stream with some stale cells, and the ledger that tells of them."""

    def __init__(self, folder: Path) -> None:
        self.stream: Stream = make_stream(folder, buckets=BUCKETS)
        self.settings = Settings(home=folder / "home")
        self.platform = self.opened()
        self.described = DescribedTables(self.platform, self.stream)
        first = self.stream.partitions.ordinal(self.stream.partitions.start)
        self.cells = [Cell(first + day, bucket) for day in range(3) for bucket in range(BUCKETS)]
        self.described.take_in(self.cells, ARRIVED)
        self.described.build(tables.DEDUPLICATED_EVENTS, ARRIVED)
        self.described.take_in(self.cells[:1], ARRIVED)
        self.told = self.tell(self.platform.ledger)

    @property
    def file(self) -> Path:
        return self.settings.home / "control.db"

    def opened(self) -> Platform:
        return Platform.open(self.settings, {self.stream.name: self.stream}, no_spark, HeldClock(ARRIVED))

    def tell(self, ledger: Ledger) -> list[Any]:
        heads = ledger.sync(self.stream.name)
        return [heads, *(ledger.facts(self.stream, table, fingerprint(self.stream, table)) for table in tables.DERIVED)]

    def set_aside(self) -> list[Path]:
        return sorted(self.file.parent.glob("control.db.aside-*"))

    def changes(self) -> dict[Cell, Change]:
        self.platform.ledger.sync(self.stream.name)
        table = tables.DEDUPLICATED_EVENTS
        return dict(self.platform.ledger.facts(self.stream, table, fingerprint(self.stream, table)).changes)


@pytest.fixture
def lived(tmp_path: Path) -> Lived:
    return Lived(tmp_path)


def of_version_before(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.executescript("DROP TABLE ledger; ALTER TABLE changes DROP COLUMN disturbed")


def of_version_to_come(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE ledger SET version = 999")


def without_a_table(file: Path) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE cells")


def no_database(file: Path) -> None:
    file.write_bytes(b"garbage" * 1000)


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


DAMAGES = [of_version_before, of_version_to_come, without_a_table, no_database, cut_short]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_what_is_no_ledger_of_this_version_is_put_aside_and_rebuilt(
    damage: Any, lived: Lived, caplog: pytest.LogCaptureFixture
) -> None:
    damage(lived.file)
    found = lived.file.read_bytes()
    assert lived.tell(lived.opened().ledger) == lived.told
    [aside] = lived.set_aside()
    assert aside.read_bytes() == found
    assert aside.name in caplog.text
    assert lived.tell(lived.opened().ledger) == lived.told
    assert lived.set_aside() == [aside]


def test_a_database_that_is_damaged_while_it_is_open_is_rebuilt(lived: Lived) -> None:
    lived.platform.ledger.engine.dispose()
    no_database(lived.file)
    assert lived.tell(lived.platform.ledger) == lived.told
    assert len(lived.set_aside()) == 1


def test_of_several_who_find_it_damaged_one_puts_it_aside(lived: Lived) -> None:
    no_database(lived.file)
    start = Barrier(4)

    def tell(_: int) -> list[Any]:
        start.wait()
        return lived.tell(lived.opened().ledger)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tell, range(4))) == [lived.told] * 4
    assert len(lived.set_aside()) == 1


def test_in_postgres_our_tables_are_made_anew_and_those_of_others_stay(postgres_server: PostgresServer) -> None:
    uri = postgres_server.create_database(new_name())
    engine = open_database(uri)
    with engine.begin() as connection:
        for change in (
            "UPDATE ledger SET version = 999",
            "ALTER TABLE changes DROP COLUMN disturbed",
            "INSERT INTO listings VALUES ('clicks', 'a')",
            "CREATE TABLE others AS SELECT 1 AS one",
        ):
            connection.execute(sa.text(change))
    start = Barrier(4)

    def open_anew(_: int) -> None:
        start.wait()
        open_database(uri).dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(open_anew, range(4)))
    with engine.connect() as connection:
        assert all(not connection.execute(sa.select(table)).all() for table in METADATA.sorted_tables)
        assert connection.execute(sa.text("SELECT one FROM others")).scalars().all() == [1]
    engine.dispose()


def test_a_disturbed_cell_stays_so_whatever_else_comes_to_it_until_it_is_built(lived: Lived) -> None:
    touched, beside, *_ = lived.cells
    lived.described.disturb([touched, beside], ARRIVED)
    lived.described.take_in([touched], ARRIVED + timedelta(days=1))
    found = lived.changes()
    assert {cell: (change.disturbed, change.rows_added > 0) for cell, change in found.items()} == {
        touched: (True, True),
        beside: (True, False),
    }
    lived.described.build(tables.DEDUPLICATED_EVENTS, ARRIVED)
    lived.described.take_in([touched], ARRIVED)
    assert [change.disturbed for change in lived.changes().values()] == [False]
