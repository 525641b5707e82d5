"""What the control database may be found as: of another version, damaged, made by two at once. Metadata alone."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.errors import LockedError
from dedup_platform.ledger import Head, Health, database
from dedup_platform.ledger.database import open_database
from dedup_platform.ledger.fold import Fold
from dedup_platform.ledger.gathering import Gathering
from dedup_platform.ledger.schema import METADATA
from dedup_platform.planning.circuit_breaker import NORMAL
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.lived import ARRIVED, Lived
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
    lived.described.ingest([touched], ARRIVED + timedelta(days=1))
    found = lived.changes()
    assert {cell: (change.disturbed, change.rows_added > 0) for cell, change in found.items()} == {
        touched: (True, True),
        beside: (True, False),
    }
    lived.described.build(tables.DEDUPLICATED_EVENTS, ARRIVED)
    lived.described.ingest([touched], ARRIVED)
    assert [change.disturbed for change in lived.changes().values()] == [False]


@pytest.fixture
def locked(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lived]:
    """Another process has the write lock and keeps it."""
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(lived.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield lived


def test_who_only_reads_waits_for_nobody(locked: Lived) -> None:
    platform = locked.opened()
    assert locked.tell(platform.ledger) == locked.told
    assert platform.source.health(locked.stream.name) == NORMAL
    assert Health(lambda: platform.ledger.engine).change(locked.stream.name, lambda _: NORMAL) == NORMAL


def test_a_lock_that_is_not_given_up_is_told_with_its_file_and_what_to_do(locked: Lived) -> None:
    locked.described.ingest(locked.cells[:1], ARRIVED)
    with pytest.raises(LockedError) as error:
        locked.opened().ledger.sync(locked.stream.name)
    assert f"another process has kept {locked.file} locked for 0.1 seconds" in str(error.value)
    assert f"`fuser {locked.file}`" in str(error.value)
    assert "password" not in str(error.value)


def test_nobody_is_locked_out_while_the_lake_is_read(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    original, written = Gathering.since, []

    def since(self: Gathering, last: Head | None) -> Fold | None:
        with closing(sqlite3.connect(lived.file, isolation_level=None, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")
            written.append(self.name)
        return original(self, last)

    lived.described.ingest(lived.cells[:1], ARRIVED)
    monkeypatch.setattr(Gathering, "since", since)
    lived.opened().ledger.sync(lived.stream.name)
    assert len(written) == len(tables.ALL)


@pytest.mark.parametrize("is_first", [False, True])
def test_what_another_process_folded_meanwhile_is_not_folded_twice(
    is_first: bool, lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Gathering.since
    met: list[str] = []

    def since(self: Gathering, last: Head | None) -> Fold | None:
        fold = original(self, last)
        if not met:
            met.append(self.name)
            lived.opened().ledger.sync(lived.stream.name)
            lived.described.ingest(lived.cells[2:3], ARRIVED)
        return fold

    lived.described.ingest(lived.cells[:2], ARRIVED)
    if is_first:
        lived.file.unlink()
    monkeypatch.setattr(Gathering, "since", since)
    told = lived.tell(lived.opened().ledger)
    assert met
    lived.file.unlink()
    assert lived.tell(lived.opened().ledger) == told


def test_history_that_expires_while_it_is_read_is_read_again(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Gathering.since
    lost: list[str] = []

    def since(self: Gathering, last: Head | None) -> Fold | None:
        if not lost:
            lost.append(self.name)
            lived.described.ingest(lived.cells[:1], ARRIVED)
            raise FileNotFoundError
        return original(self, last)

    lived.described.ingest(lived.cells[:2], ARRIVED)
    monkeypatch.setattr(Gathering, "since", since)
    told = lived.tell(lived.opened().ledger)
    lived.file.unlink()
    assert lived.tell(lived.opened().ledger) == told


def test_a_file_that_nobody_removed_is_missed(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    def since(_: Gathering, last: Head | None) -> Fold | None:
        raise FileNotFoundError(last)

    monkeypatch.setattr(Gathering, "since", since)
    with pytest.raises(FileNotFoundError):
        lived.opened().ledger.sync(lived.stream.name)
