"""`sql` on the command line: as a table, csv and JSON, and with mistakes."""

import csv
import json
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

AT = utc("2024-01-01T10:00")
EVIL = "\x1b]0;x\x07[red]\u202e\nforged"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a stream that was taken in, and the stream file."""
    folder = tmp_path_factory.mktemp("sql")
    stream = make_stream(folder)
    later = AT + timedelta(minutes=20)
    write_batch(stream, lay_out([record("a", "1", AT, page=EVIL, amount="1.50"), record("a", "2", later, quantity=7)]))
    platform = light_platform(folder / "home", stream, HeldClock(utc("2030-01-01T00:00")))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    return folder


@pytest.fixture(autouse=True)
def deployment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(folder / "home"))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(folder))
    monkeypatch.setattr(cli.out, "width", 200)


def ask(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["sql", *arguments])
    found = cli.exit_code(done.exception) if isinstance(done.exception, Exception) else done.exit_code
    assert found == code, done.output
    return f"{done.output}{done.exception or ''}"


def test_a_table_in_which_nothing_from_outside_is_obeyed() -> None:
    printed = ask(
        "SELECT page, quantity, ended_at - started_at AS length, is_late FROM events.event_sessions "
        "JOIN events.sessions USING (session_id) ORDER BY event_time"
    )
    header, _, first, second, *rest = [line.split() for line in printed.splitlines() if line.strip()]
    assert (header, rest) == (["page", "quantity", "length", "is_late"], [])
    assert first == [r"\x1b]0;x\x07[red]\u202e\nforged", "NULL", "0:20:00", "false"]
    assert second == ["NULL", "7", "0:20:00", "false"]
    assert r"\nforged" in ask(f"""SELECT 1 AS "{EVIL}" """)


def test_a_table_of_the_first_rows_says_that_there_are_more() -> None:
    printed = ask("FROM range(1001)")
    assert "999" in printed.split()
    assert "1000" not in printed.split()
    assert "These are the first 1,000 rows: --csv and --json print all" in printed
    assert "first 1,000" not in ask("FROM range(1000)")


def test_csv() -> None:
    selected = "page, revenue, {'a': started_at} AS struct, ended_at - started_at AS length, payload"
    text = ask(f"SELECT {selected} FROM events.sessions, events.raw_events ORDER BY page", "--csv")
    assert text.splitlines()[0] == '"page","revenue","struct","length","payload"'
    first, second = csv.DictReader(StringIO(text))
    assert (first["page"], first["revenue"], first["length"]) == (EVIL, "1.50", "0:20:00")
    assert json.loads(first["struct"]) == {"a": "2024-01-01T10:00:00+00:00"}
    assert second["page"] == ""
    assert ask("SELECT 1 AS n WHERE false", "--csv") == '"n"\n'


def test_json() -> None:
    sql = (
        "SELECT session_id IS NOT NULL AS has, sum(quantity) AS sum, max(amount) AS amount, max(event_time) AS last, "
        "max(event_time) - min(event_time) AS length, list(page ORDER BY event_time) AS pages, 'nan'::double AS nan, "
        "'\\x00'::blob AS bytes FROM events.event_sessions GROUP BY ALL"
    )
    assert json.loads(ask(sql, "--json")) == [
        {
            "has": True,
            "sum": 7,
            "amount": "1.50",
            "last": "2024-01-01T10:20:00+00:00",
            "length": 1200.0,
            "pages": [EVIL, None],
            "nan": "nan",
            "bytes": "AA==",
        }
    ]
    assert json.loads(ask("FROM range(5000)", "--json"))[-1] == {"range": 4999}
    assert ask("SELECT 1 WHERE false", "--json") == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["SELECT 1 AS a, 2 AS a", "--json"], "two columns are named a"),
        (["SELECT 1", "--json", "--csv"], "--csv and --json exclude each other"),
        (["SELECT * FROM events.nothing"], "nothing does not exist"),
        (["DROP TABLE events.sessions"], "tables are only read here"),
    ],
)
def test_mistakes_are_said_with_code_2(arguments: list[str], reason: str) -> None:
    assert reason in " ".join(ask(*arguments, code=2).replace("│", " ").split())


def test_a_stream_file_that_cannot_be_read_is_told_where_its_tables_are_missed(folder: Path) -> None:
    broken = folder / "broken.yaml"
    broken.write_text("name: broken\nsource: none\n")
    try:
        assert "broken.yaml:2" in ask("SELECT * FROM broken.sessions", code=2)
        assert ask("SELECT count(*) AS n FROM events.sessions", "--csv") == '"n"\n1\n'
    finally:
        broken.unlink()


def test_a_plan_is_drawn() -> None:
    assert "Filters: \"entity_id\" = 'a'" in " ".join(ask("EXPLAIN FROM events.sessions WHERE entity_id = 'a'").split())
