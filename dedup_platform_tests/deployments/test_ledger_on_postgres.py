"""The ledger in Postgres tells what it tells in SQLite, and two who fold at once leave what one leaves.

Its tables are read and written on metadata alone here: no Spark. What is repaired and who wins a race by it is tested
where the fixture `control_database` is.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Barrier, Event
from typing import Any

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.errors import UnreachableError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.receipts import Acceptance, ReadFile
from dedup_platform.ledger import Head, Ledger
from dedup_platform.ledger.database import lock, open_database
from dedup_platform.ledger.fold import FilesTold, Fold
from dedup_platform.ledger.schema import FILES, METADATA
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, make_stream, utc
from dedup_platform.testing.described import DescribedTables
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name

ARRIVED = utc("2024-02-01")
DAYS = 30
BUCKETS = 4
RACES = 10


def no_spark() -> SparkSession:
    raise AssertionError("the ledger reads metadata alone")


@pytest.fixture
def uri(postgres_server: PostgresServer) -> str:
    """Of an empty database."""
    return postgres_server.create_database(new_name())


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Platform, Stream]:
    """A stream some of whose cells are stale, for several reasons; its ledger is in SQLite."""
    folder = tmp_path_factory.mktemp("lived")
    stream = make_stream(folder, buckets=BUCKETS)
    platform = Platform(Settings(home=folder / "home"), {stream.name: stream}, no_spark, HeldClock(ARRIVED))
    described = DescribedTables(platform, stream)
    first = stream.partitions.ordinal(stream.partitions.start)
    cells = [Cell(first + day, bucket) for day in range(DAYS) for bucket in range(BUCKETS)]
    described.ingest(cells, ARRIVED)
    for table in tables.DERIVED:
        described.build(table, ARRIVED)
    described.ingest(cells[::7], ARRIVED + timedelta(days=1))
    described.build(tables.DEDUPLICATED_EVENTS, ARRIVED, cells[:20])
    return platform, stream


def ledger_at(uri: str, platform: Platform) -> Ledger:
    """A ledger of the same tables in another database."""
    settings = Settings(home=platform.settings.home, control_uri=uri)
    return Ledger(settings, Catalog(settings), platform.stream)


def told(ledger: Ledger, stream: Stream) -> dict[str, Any]:
    """All that a ledger tells of a stream."""
    name = stream.name
    found: dict[str, Any] = {
        "heads": ledger.sync(name),
        "files": ledger.files(name),
        "records": ledger.records_read(name),
        "accepted": ledger.accepted(name),
        "totals": ledger.totals(name),
    }
    for table in tables.ALL:
        found[table] = ledger.sizes(name, table)
    for table in tables.DERIVED:
        found[f"{table} built"] = ledger.built(name, table)
        found[f"{table} facts"] = ledger.facts(stream, table, fingerprint(stream, table))
        found[f"{table} other settings"] = ledger.facts(stream, table, "0" * 64)
    return found


def dump(uri: str) -> dict[str, list[Any]]:
    """All rows of all tables, in order."""
    engine = sa.create_engine(uri)
    with engine.connect() as connection:
        rows = {table.name: sorted(connection.execute(sa.select(table)), key=repr) for table in METADATA.sorted_tables}
    engine.dispose()
    return rows


def test_it_tells_what_it_tells_in_sqlite(lived: tuple[Platform, Stream], uri: str) -> None:
    platform, stream = lived
    expected = told(platform.ledger, stream)
    assert expected[f"{tables.DEDUPLICATED_EVENTS} facts"].changes
    assert told(ledger_at(uri, platform), stream) == expected


def test_what_is_folded_step_by_step_is_what_is_folded_at_once(
    tmp_path: Path, uri: str, postgres_server: PostgresServer
) -> None:
    stream = make_stream(tmp_path, buckets=BUCKETS)
    settings = Settings(home=tmp_path / "home", control_uri=uri)
    platform = Platform(settings, {stream.name: stream}, no_spark, HeldClock(ARRIVED))
    described = DescribedTables(platform, stream)
    first = stream.partitions.ordinal(stream.partitions.start)
    for day in range(6):
        described.ingest([Cell(first + day // 2, bucket) for bucket in range(BUCKETS)], ARRIVED + timedelta(days=day))
        platform.ledger.sync(stream.name)
        for table in tables.DERIVED:
            described.build(table, ARRIVED)
    at_once = ledger_at(postgres_server.create_database(new_name()), platform)
    assert told(at_once, stream) == told(platform.ledger, stream)


def test_first_folds_raced_by_two_leave_what_one_leaves(
    lived: tuple[Platform, Stream], postgres_server: PostgresServer
) -> None:
    """Of a new database: its tables are made by both at once, too, and there is no head yet that could be locked."""
    platform, stream = lived
    alone = postgres_server.create_database(new_name())
    ledger_at(alone, platform).sync(stream.name)
    for _ in range(RACES):
        uri = postgres_server.create_database(new_name())
        sync_together([ledger_at(uri, platform) for _ in range(2)], stream)
        assert dump(uri) == dump(alone)


def sync_together(ledgers: list[Ledger], stream: Stream) -> None:
    start = Barrier(len(ledgers))

    def sync(ledger: Ledger) -> None:
        start.wait()
        ledger.sync(stream.name)

    with ThreadPoolExecutor(len(ledgers)) as pool:
        list(pool.map(sync, ledgers))


def test_a_fold_waits_for_one_of_its_stream_and_for_no_other(lived: tuple[Platform, Stream], uri: str) -> None:
    platform, stream = lived
    ledger, begun = ledger_at(uri, platform), Event()

    def sync() -> dict[str, Head]:
        begun.set()
        return ledger_at(uri, platform).sync(stream.name)

    with ThreadPoolExecutor(1) as pool:
        with ledger.engine.begin() as connection:
            lock(connection, "another stream")
            ledger.sync(stream.name)
            forget(uri, "heads")
            lock(connection, stream.name)
            waiting = pool.submit(sync)
            begun.wait()
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)
        assert waiting.result(timeout=60) == ledger.sync(stream.name)


def test_facts_are_of_one_moment(lived: tuple[Platform, Stream], uri: str) -> None:
    """Another process folds between two questions of one reader: it does not see the half of it."""
    platform, stream = lived
    ledger = ledger_at(uri, platform)
    ledger.sync(stream.name)
    before = ledger.facts(stream, tables.SESSIONS, "0" * 64)

    @sa.event.listens_for(ledger.engine, "after_cursor_execute")
    def forget_meanwhile(_: sa.Connection, __: Any, statement: str, *___: Any) -> None:
        if "FROM changes" in statement:
            forget(uri, "built")

    assert ledger.facts(stream, tables.SESSIONS, "0" * 64) == before
    assert not ledger.facts(stream, tables.SESSIONS, "0" * 64).outdated


def forget(uri: str, table: str) -> None:
    engine = sa.create_engine(uri)
    with engine.begin() as connection:
        connection.execute(sa.delete(METADATA.tables[table]))
    engine.dispose()


def test_paths_may_be_as_long_as_an_operating_system_lets_them(uri: str) -> None:
    random = Random(5)
    path = "".join(chr(random.randint(0x21, 0x7E)) for _ in range(4000))
    read = ReadFile(path, 0, 2**40, "e" * 300, 2**40)
    fold = Fold(told=[FilesTold([read], [Acceptance(path, "e")])])
    with open_database(uri).begin() as connection:
        for _ in range(2):
            fold.write(connection, "stream", tables.RAW_EVENTS, ())
        assert connection.execute(sa.select(FILES)).all() == [("stream", *vars(read).values())]


def test_a_wrong_password_is_told_with_its_variable_and_without_it(postgres_server: PostgresServer) -> None:
    wrong = postgres_server.uri().replace(postgres_server.password, "not-the-secret")
    with pytest.raises(
        UnreachableError, match=r"DEDUP_PLATFORM_CONTROL_URI: .*password authentication failed"
    ) as error:
        open_database(wrong)
    assert "not-the-secret" not in str(error.value)
