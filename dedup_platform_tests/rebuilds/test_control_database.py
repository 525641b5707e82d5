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
from dedup_platform.ledger.database import open_database
from dedup_platform.ledger.schema import METADATA
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.rebuilds.lived import ARRIVED, Lived
from dedup_platform_tests.servers import new_name


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
