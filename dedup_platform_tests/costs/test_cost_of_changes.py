"""What a late event costs those who follow: one row of many changes, and no more is told or written."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.platform import Platform
from dedup_platform.stream import PostgresSink, Publish
from dedup_platform.tables import DERIVED, FEED_OF, SESSION_CHANGES, SESSIONS
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.servers import new_name, rows_written

EVENTS, SINK = "events", "marts"
FEW, MANY = 5_000, 1_000_000
DAYS = 10
FIRST = utc("2024-01-02T10:00")
ARRIVED = utc("2024-02-01")
MOST_BYTES = 100_000
"""Of a feed, data and metadata, for one late event."""


class Life:
    """A stream whose sessions are copied to Postgres: so many entities have a session each, over ten days."""

    def __init__(self, folder: Path, server: PostgresServer, sessions: int) -> None:
        self.server, self.database = server, new_name()
        server.create_database(self.database)
        uri = f"postgresql://{server.user}@127.0.0.1:{server.port}/{self.database}"
        sink = PostgresSink(kind="postgres", follows=SESSIONS, uri=uri, table="public.copies")
        stream = make_stream(folder, buckets=4)
        self.stream = stream.model_copy(update={"publish": Publish(sinks={SINK: sink})})
        self.settings = {"postgres": {"password": server.password}}
        self.home = folder / "home"
        self.sessions = sessions
        self.take_in("first", (self.event(number) for number in range(sessions)))

    @property
    def platform(self) -> Platform:
        clock = HeldClock(utc("2030-01-01"))
        return light_platform(self.home, self.stream, clock, **self.settings)

    def event(self, number: int, later: timedelta = timedelta(0)) -> Record:
        at = FIRST + timedelta(days=number % DAYS, milliseconds=number)
        return record(f"e{number}", f"{number} {later}", at + later, ARRIVED + later)

    def take_in(self, name: str, events: Iterable[Record]) -> None:
        """Ingest, repair, and publish to the feeds and to the sink."""
        write_batch(self.stream, lay_out(events, f"{name}.json"))
        self.platform.ingest(EVENTS)
        self.platform.repair(EVENTS)
        self.publish()

    def publish(self) -> int:
        """Returns the version that the sink has then."""
        self.platform.publish_changes(EVENTS)
        return self.platform.publish(EVENTS, SINK).version

    def counted(self) -> tuple[int, int, int]:
        """Rows that the server has inserted, updated and deleted, by its own statistics."""
        return rows_written(self.server, self.database, "copies")

    def files(self) -> dict[Path, int]:
        """The files of both feeds, data and metadata, and their sizes."""
        folders = (self.home / "warehouse" / EVENTS / feed for feed in FEED_OF.values())
        return {file: file.stat().st_size for each in folders for file in each.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, thorough: bool) -> Life:
    return Life(tmp_path_factory.mktemp("life"), postgres_server, MANY if thorough else FEW)


def test_a_late_event_is_one_updated_row_and_a_small_commit_of_each_feed(life: Life) -> None:
    rows, files = life.counted(), life.files()
    assert rows == (life.sessions, 0, 0)
    life.take_in("late", [life.event(life.sessions // 2, timedelta(minutes=1))])
    assert tuple(now - before for now, before in zip(life.counted(), rows, strict=True)) == (0, 1, 0)
    new = {file: size for file, size in life.files().items() if file not in files}
    for feed in FEED_OF.values():
        of_feed = {file: size for file, size in new.items() if feed in file.parts}
        assert len([file for file in of_feed if file.suffix == ".parquet"]) == 1
        assert 0 < sum(of_feed.values()) < MOST_BYTES


def test_a_full_recomputation_without_effect_writes_nothing_to_feeds_and_sinks(life: Life) -> None:
    version, rows, files = life.publish(), life.counted(), life.files()
    first = life.stream.partitions.ordinal(FIRST)
    checked = [life.platform.recompute(EVENTS, table, range(first, first + DAYS)) for table in DERIVED]
    assert all(len(commit.cells_checked) >= DAYS for commit in checked)
    assert [commit.rows_written for commit in checked] == [0, 0, 0]
    assert life.publish() == version
    assert (life.counted(), life.files()) == (rows, files)
    assert SESSION_CHANGES in {part for file in files for part in file.parts}
