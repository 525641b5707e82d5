"""The recipes of docs/reading.md, word for word: tables at one point, by several readers."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform.tables import ALL, DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing.platforms import session_of
from dedup_platform_tests.changes.test_feeds import EVENTS
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


def recipe(language: str, sign: str) -> str:
    """The block that has this sign, for the stream of the test and its first point."""
    [block] = [block for block in fenced(PROJECT / "docs" / "reading.md", language) if sign in block]
    return block.replace("clicks", EVENTS).replace("v12", "v1")


def test_spark(pointed: Pointed, spark: SparkSession) -> None:
    session, query = session_of(pointed.platform.settings, spark), recipe("sql", "FROM lake.")
    rows = {table: session.sql(query.replace(SESSIONS, table)).first() for table in ALL}
    counts = {table: row[0] for table, row in rows.items() if row}
    assert counts[RAW_EVENTS] == RECORDS == counts[DEDUPLICATED_EVENTS] + counts[DUPLICATE_EVENTS]
    assert (counts[DUPLICATE_EVENTS], counts[SESSIONS]) == (COPIES, len(OF_SESSIONS))


def test_pyiceberg_and_duckdb(pointed: Pointed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(pointed.home))
    names: dict[str, Any] = {}
    exec(recipe("python", "load_catalog"), names)
    found = names["rows"].to_pylist()
    assert {(row["entity_id"], row["event_count"]) for row in found} == OF_SESSIONS
    exec(recipe("python", "import duckdb"), names)
    assert {*names["counts"]} == OF_SESSIONS


def test_a_name_that_is_not_there_is_refused(pointed: Pointed, spark: SparkSession) -> None:
    session = session_of(pointed.platform.settings, spark)
    with pytest.raises(Exception, match="v77"):
        session.sql(recipe("sql", "FROM lake.").replace("v1", "v77")).collect()
