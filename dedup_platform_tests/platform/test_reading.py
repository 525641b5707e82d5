"""What docs/reading.md tells to type, word for word: questions to the tables, and tables at one point."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.query import Queries, event_sessions
from dedup_platform.tables import ALL, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing.platforms import session_of
from dedup_platform_tests.changes.test_feeds import EVENTS, TEN, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.platform.test_points import Pointed
from dedup_platform_tests.test_docs import PROJECT, fenced

RECORDS, COPIES, OF_SESSIONS = 4, 1, {("e", 2), ("f", 1)}
"""What the point v1 holds."""


@pytest.fixture(scope="module")
def pointed(tmp_path_factory: pytest.TempPathFactory) -> Pointed:
    """A stream with two points."""
    pointed = Pointed(tmp_path_factory.mktemp("reading"))
    with replaced(has_spark=False):
        first = [pointed.event("a", 0), pointed.event("a", 1), pointed.event("b", 20), pointed.event("c", 0, "f")]
        pointed.take_in(*first)
        pointed.take_in(pointed.event("d", 200), pointed.event("e", 300))
        assert pointed.names() == ["v1", "v2"]
    return pointed


def recipe(language: str, *signs: str) -> str:
    """The block that has these signs, for the stream of the test and its first point."""
    blocks = fenced(PROJECT / "docs" / "reading.md", language)
    [block] = [block for block in blocks if all(sign in block for sign in signs)]
    return block.replace("clicks", EVENTS).replace("v12", "v1")


def rows_by(session: SparkSession, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.sql(query).collect()]


def test_spark(pointed: Pointed, spark: SparkSession) -> None:
    session, query = session_of(pointed.platform.settings, spark), recipe("sql", "VERSION AS OF", "lake.")
    rows = {table: session.sql(query.replace(SESSIONS, table)).first() for table in ALL}
    counts = {table: row[0] for table, row in rows.items() if row}
    assert counts[RAW_EVENTS] == RECORDS == counts[DEDUPLICATED_EVENTS] + counts[DUPLICATE_EVENTS]
    assert (counts[DUPLICATE_EVENTS], counts[SESSIONS]) == (COPIES, len(OF_SESSIONS))


def test_pyiceberg_and_duckdb(pointed: Pointed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(pointed.home))
    names: dict[str, Any] = {}
    exec(recipe("python", "load_catalog", "snapshot_by_name"), names)
    found = names["rows"].to_pylist()
    assert {(row["entity_id"], row["event_count"]) for row in found} == OF_SESSIONS
    exec(recipe("python", "import duckdb", "snapshot_by_name"), names)
    assert {*names["counts"]} == OF_SESSIONS


COMMANDS = [
    line for block in fenced(PROJECT / "docs" / "reading.md", "sh") for line in block.splitlines() if " sql " in line
]


@pytest.mark.parametrize("command", COMMANDS)
def test_questions_on_the_command_line(command: str, pointed: Pointed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(pointed.home))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(pointed.stream.origin))
    _, *arguments = shlex.split(command.replace("clicks", EVENTS))
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.strip()


def test_questions_in_python(pointed: Pointed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(pointed.home))
    names: dict[str, Any] = {}
    exec(recipe("python", "load_catalog", "first_day"), names)
    assert {*names["first_day"]["event_count"]} == {1, 2}
    exec(recipe("python", "busiest"), names)
    assert names["busiest"] == [("e", 4), ("f", 1)]


def test_questions_in_spark(pointed: Pointed, spark: SparkSession) -> None:
    session = session_of(pointed.platform.settings, spark)
    assert rows_by(session, recipe("sql", "GROUP BY to_date")) == [(TEN.date(), 4, 5)]


def test_the_session_of_each_event_in_spark(pointed: Pointed, spark: SparkSession, tmp_path: Path) -> None:
    session, told = session_of(pointed.platform.settings, spark), recipe("sql", "is_late")
    assert " ".join(told.split()) == event_sessions(pointed.stream)
    asked = "SELECT event_id, session_id, is_late FROM ({}) ORDER BY event_id"
    found = rows_by(session, asked.format(told))
    with Queries(pointed.platform.lake, pointed.platform.streams).answer(
        asked.format("FROM events.event_sessions"), tmp_path
    ) as answer:
        assert found == [tuple(row.values()) for batch in answer.batches for row in batch.to_pylist()]
    assert {len({*column}) for column in zip(*found, strict=True)} == {5, 4, 1}


def test_rows_that_another_writer_deleted_are_gone(tmp_path: Path, spark: SparkSession) -> None:
    """Spark notes them in a file beside the data file, which keeps them."""
    followed = Followed(tmp_path)
    followed.take_in(followed.event("a", 0), followed.event("b", 1), followed.event("c", 2 * 24 * 60))
    session, table = session_of(followed.platform.settings, spark), f"lake.{EVENTS}.deduplicated_events"
    session.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    session.sql(f"DELETE FROM {table} WHERE event_id = 'a'")
    platform = followed.platform
    loaded = platform.lake.catalog.load_table(EVENTS, "deduplicated_events")
    assert sorted(len(task.delete_files) for task in loaded.scan().plan_files()) == [0, 1]
    question = f"SELECT event_id FROM {EVENTS}.deduplicated_events WHERE event_time < now() ORDER BY event_id"
    with Queries(platform.lake, platform.streams).answer(question, tmp_path) as answer:
        assert [row["event_id"] for batch in answer.batches for row in batch.to_pylist()] == ["b", "c"]


def test_a_name_that_is_not_there_is_refused(pointed: Pointed, spark: SparkSession) -> None:
    session = session_of(pointed.platform.settings, spark)
    with pytest.raises(Exception, match="v77"):
        session.sql(recipe("sql", "VERSION AS OF", "lake.").replace("v1", "v77")).collect()
