"""What SQL sees: the rows of today's snapshots, all of them and no others; and what it can reach besides: nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dedup_platform.errors import QueryError
from dedup_platform.platform import Platform
from dedup_platform.query import Queries
from dedup_platform.stream import Attribute
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.servers import S3Server
from dedup_platform_tests.ingest.s3.landing import Landing

DAY = timedelta(days=1)
FIRST = utc("2024-01-01T10:00")
CLOCK = HeldClock(utc("2030-01-01T00:00"))


class Asked:
    """A stream, and questions about it."""

    def __init__(self, folder: Path, **places: Any) -> None:
        self.folder = folder
        self.stream = make_stream(folder)
        self.places = places
        self._files = 0

    @property
    def platform(self) -> Platform:
        return light_platform(self.folder / "home", self.stream, CLOCK, **self.places)

    def take_in(self, *records: Record) -> None:
        self._files += 1
        write_batch(self.stream, lay_out(records, f"{self._files}.json"))
        self.platform.ingest(self.stream.name)
        self.platform.repair(self.stream.name)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        aside = self.folder / "aside"
        aside.mkdir(exist_ok=True)
        with Queries(self.platform.lake, self.platform.streams).answer(sql, aside) as answer:
            return [tuple(row.values()) for batch in answer.batches for row in batch.to_pylist()]

    def data_files(self, table: str) -> list[Path]:
        return sorted((self.folder / "home" / "warehouse" / "events" / table / "data").rglob("*.parquet"))


@contextmanager
def hidden(*files: Path) -> Iterator[None]:
    """Nobody finds these files."""
    for file in files:
        file.rename(file.with_suffix(".hidden"))
    try:
        yield
    finally:
        for file in files:
            file.with_suffix(".hidden").rename(file)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Two days; the first was repaired once, so that its first files are in no snapshot of today."""
    asked = Asked(tmp_path_factory.mktemp("asked"))
    asked.take_in(record("a", "1", FIRST, page="/"), record("b", "2", FIRST + DAY), record(None, "3", FIRST))
    asked.take_in(record("a", "4", FIRST + timedelta(minutes=5)))
    return asked


def test_only_files_of_todays_snapshots_are_read(asked: Asked) -> None:
    files = asked.data_files("deduplicated_events")
    [current] = asked.ask("SELECT count(*) FROM events.deduplicated_events")
    with duckdb.connect() as connection:
        counted = connection.execute("SELECT count(*) FROM read_parquet($files)", {"files": [*map(str, files)]})
        globbed = counted.fetchall()
    assert (current, globbed) == ((4,), [(5,)])
    assert asked.ask("SELECT entity_id, sum(event_count) FROM events.sessions GROUP BY 1 ORDER BY 1") == [
        ("a", 2),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    "condition",
    [
        "event_time >= '2024-01-02'",
        "event_time BETWEEN TIMESTAMPTZ '2024-01-02 10:00:00+00' AND '2024-01-03' AND entity_id = 'b'",
        "arrival_time = TIMESTAMPTZ '2024-01-02 11:00:00+01'",
    ],
)
def test_a_condition_on_times_opens_no_file_that_cannot_have_such_a_row(condition: str, asked: Asked) -> None:
    files = asked.data_files("deduplicated_events")
    [second_day] = [file for file in files if "2024-01-02" in str(file)]
    with hidden(*(file for file in files if file != second_day)):
        assert asked.ask(f"SELECT event_id FROM events.deduplicated_events WHERE {condition}") == [("2",)]
        with pytest.raises(QueryError, match="No such file"):
            asked.ask("SELECT event_id FROM events.deduplicated_events")


def test_rejected_records_are_a_view_that_opens_no_events(asked: Asked, tmp_path: Path) -> None:
    own = Asked(tmp_path)
    (own.stream.files.root / "broken.json").write_text("nothing\n")
    own.take_in(record("a", "1", FIRST))
    events = [file for file in own.data_files("raw_events") if "2024-01-01" in str(file)]
    with hidden(*events):
        found = own.ask("SELECT decode(payload), rejection_reason, source FROM events.rejected_events")
    assert found == [("nothing", "malformed_record", "broken.json")]
    assert asked.ask("FROM events.rejected_events") == []


def test_files_that_are_older_than_a_column_have_null_in_it(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.take_in(record("a", "1", FIRST, page="/"))
    attributes = {**asked.stream.fields.attributes, "path": Attribute(field="page", type="string")}
    fields = asked.stream.fields.model_copy(update={"attributes": attributes})
    asked.stream = asked.stream.model_copy(update={"fields": fields})
    asked.take_in(record("a", "2", FIRST + 2 * DAY, page="/new"))
    found = asked.ask("SELECT event_id, path FROM events.deduplicated_events ORDER BY event_id")
    assert found == [("1", None), ("2", "/new")]
    assert asked.ask("SELECT event_id FROM events.deduplicated_events WHERE path = '/new'") == [("2",)]


def test_tables_on_s3_are_answered_from_there(tmp_path: Path, s3_server: S3Server) -> None:
    landing = Landing.on(s3_server)
    asked = Asked(tmp_path, warehouse=f"s3://{landing.bucket}/lake", **landing.places)
    asked.take_in(record("a", "1", FIRST), record("a", "2", FIRST + timedelta(minutes=1)))
    assert asked.ask("SELECT event_count FROM events.sessions WHERE started_at > '2024-01-01'") == [(2,)]
    assert asked.ask("SELECT count(DISTINCT session_id) FROM events.event_sessions") == [(1,)]


@pytest.mark.parametrize("name", ["events.sessions", 'Events."SESSIONS"', "lake.events.sessions"])
def test_tables_are_named_as_in_spark(name: str, asked: Asked) -> None:
    assert asked.ask(f"SELECT count(*) FROM {name}") == [(2,)]


def test_what_names_no_table_sees_all_of_them(asked: Asked) -> None:
    names = {name for (name,) in asked.ask("SHOW TABLES FROM events")}
    assert {"raw_events", "sessions", "event_sessions", "rejected_events"} <= names
    assert ("is_late",) in asked.ask("SELECT column_name FROM information_schema.columns WHERE table_schema = 'events'")


def test_no_event_is_compared_with_every_session(asked: Asked) -> None:
    """200,000 events of 20,000 sessions take half a second so, and half a minute in a loop over both."""
    [(_, plan)] = asked.ask("EXPLAIN FROM events.event_sessions")
    assert "Asof Join" in plan
    assert "Loop" not in plan


def test_times_are_utc(asked: Asked) -> None:
    hours = asked.ask(
        "SELECT DISTINCT hour(started_at), date_trunc('day', ended_at) = '2024-01-01' FROM events.sessions"
    )
    assert sorted(hours) == [(10, False), (10, True)]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELEC 1", r'Parser Error: syntax error at or near "SELEC"'),
        ("SELECT 1; SELECT 2", "one statement is answered at a time; here are 2"),
        ("", "here are 0"),
        ("SELECT * FROM events.sesions", 'Table with name sesions does not exist! Did you mean "sessions"?'),
        ("SELECT entity FROM events.sessions", 'Referenced column "entity" not found in FROM clause!'),
        ("FROM events.event_changes", "Nothing was taken in yet for events.event_changes"),
        ("SELECT CASE WHEN range = 9999 THEN error('late') END FROM range(10000)", "late"),
        (
            "DELETE FROM events.sessions",
            "tables are only read here, by SELECT, DESCRIBE, SHOW or EXPLAIN; this is DELETE",
        ),
        ("SET enable_external_access = true", "this is SET"),
        ("INSTALL httpfs", "this is LOAD"),
        ("ATTACH 'x.db'", "this is ATTACH"),
        ("COPY (SELECT 1) TO 'x.csv'", "this is COPY"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "disabled by configuration"),
        ("SELECT * FROM read_text('/etc/hostname')", "disabled by configuration"),
        ("SELECT * FROM 'x.parquet'", 'Cannot access file "x.parquet"'),
        ("SELECT * FROM read_parquet('https://localhost/x')", "disabled by configuration"),
        ("FROM stream", "stream does not exist"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence_and_leaves_nothing(
    sql: str, reason: str, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError) as raised:
        asked.ask(sql)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_into_memory_goes_aside(asked: Asked) -> None:
    [path] = asked.ask("SELECT value FROM duckdb_settings() WHERE name = 'temp_directory'")
    assert path == (str(asked.folder / "aside"),)
