"""Feeds and sinks that a version began which did not know when the first event of a session happened go on."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from dedup_platform import tables
from dedup_platform.rules import changes
from dedup_platform.rules.changes import INSERT, POSTIMAGE
from dedup_platform.sinks import opening
from dedup_platform.stream import CustomSink, FilesSink, PostgresSink, Publish, Stream, load_stream
from dedup_platform.tables import SESSION_CHANGES, SESSIONS, Column
from dedup_platform.testing import lay_out, light_platform, record, utc
from dedup_platform.testing.delivery import write_file
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Row
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.sqlite_table import copies
from dedup_platform_tests.upgrade.before import unpack
from dedup_platform_tests.upgrade.test_upgrade import EVENTS, NOW

NEW = "first_arrived_event_time"
FACTORY = "dedup_platform_tests.sinks.sqlite_table:open_table"
MIDNIGHT = utc("2024-01-06T00:00")
columns = tables.columns


class Upgraded:
    """A home of the version before, whose sessions are followed by sinks of three kinds."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        unpack(folder)
        self.folder, self.postgres, self.database = folder, postgres, new_name()
        postgres.create_database(self.database)
        uri = f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{self.database}"
        copy = {"kind": "custom", "follows": SESSIONS, "factory": FACTORY, "options": {"file": f"{folder}/copies.db"}}
        files = {"kind": "files", "follows": SESSIONS, "path": str(folder / "out"), "format": "csv"}
        sinks = {
            "copy": CustomSink.model_validate(copy),
            "files": FilesSink.model_validate(files),
            "table": PostgresSink(kind="postgres", follows=SESSIONS, uri=uri, table="public.copies"),
        }
        read = load_stream(folder / "events.yaml")
        self.stream = read.model_copy(update={"publish": Publish(sinks=sinks)})
        settings = {"postgres": {"password": postgres.password}}
        self.platform = light_platform(folder / "home", self.stream, NOW, **settings)

    def publish(self) -> None:
        for sink in self.stream.publish.sinks:
            self.platform.publish(EVENTS, sink)

    def publish_as_before(self) -> None:
        """As a version does that does not know the column."""
        with (
            patch.object(tables, "columns", columns_before),
            patch.object(opening, "columns", columns_before),
            patch.object(changes, "_where_first_arrived", lambda sessions: sessions),
        ):
            self.publish()

    def take_in(self, entity: str, minutes: int) -> None:
        """A late event."""
        name = f"{entity}-{minutes}.json"
        late = record(entity, name, MIDNIGHT + timedelta(minutes=minutes), utc("2024-06-01"))
        write_file(self.stream.files.root / name, lay_out([late], name))
        self.platform.ingest(EVENTS)
        self.platform.repair(EVENTS)

    def rows(self, table: str) -> list[Row]:
        return list(self.platform.lake.catalog.load_table(EVENTS, table).scan().to_arrow().to_pylist())

    def told(self) -> list[Row]:
        """The changes of the newest version."""
        feed = self.rows(SESSION_CHANGES)
        last = max(row["_commit_version"] for row in feed)
        return [row for row in feed if row["_commit_version"] == last]

    def copies(self) -> Iterator[dict[str, str | None]]:
        """Session -> when its first-arrived event happened: what feed and sinks hold."""
        newest = {row["session_id"]: row for row in sorted(self.rows(SESSION_CHANGES), key=_order)}
        there = (row for row in newest.values() if row["_change_type"] in (INSERT, POSTIMAGE))
        yield {row["session_id"]: _text(row[NEW]) for row in there}
        yield {row["session_id"]: row.get(NEW) for row in copies(f"{self.folder}/copies.db")}
        connection = self.postgres.connect(self.database)
        with connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT session_id, {NEW} FROM copies")
            yield {session: _text(time) for session, time in cursor.fetchall()}
        connection.close()


def columns_before(stream: Stream, table: str) -> tuple[Column, ...]:
    return tuple(column for column in columns(stream, table) if column.name != NEW)


def _order(row: Row) -> tuple[int, int]:
    return row["_commit_version"], row["_change_ordinal"]


def _text(time: object) -> str | None:
    return None if time is None else str(time)


@pytest.fixture
def upgraded(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Upgraded]:
    with replaced(has_spark=False):
        yield Upgraded(tmp_path, postgres_server)


def test_feeds_and_sinks_go_on_and_get_the_column_with_the_cells_that_are_rebuilt(upgraded: Upgraded) -> None:
    upgraded.publish_as_before()
    begun = upgraded.told()
    upgraded.publish()
    assert upgraded.told() == [dict(row) | {NEW: None} for row in begun], "nothing is published for a new column"
    before = {row["session_id"]: row for row in upgraded.rows(SESSIONS)}
    upgraded.take_in("e0000", 15)
    upgraded.publish()
    now = {row["session_id"]: _text(row[NEW]) for row in upgraded.rows(SESSIONS)}
    assert {time is None for time in now.values()} == {True, False}
    assert list(upgraded.copies()) == [now] * 3
    [gone] = [row for row in upgraded.told() if row["_change_type"] == "delete"]
    assert before[gone["merged_into"]]["started_at"] == MIDNIGHT, "which was the first of the two to arrive"
    others = [row for row in upgraded.told() if row["reason"] == "corrected"]
    assert all(row["changed_columns"] == [NEW] and not row["is_downstream"] for row in others)
    objects = sorted((upgraded.folder / "out" / "changes").iterdir())
    assert [NEW in path.read_text().partition("\n")[0] for path in (objects[0], objects[-1])] == [False, True]
