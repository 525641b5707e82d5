"""The report: its figures are SQL's, its bytes are the tables', and nothing that came from outside is markup."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.ledger import TableSize
from dedup_platform.planning.figures import CellFigures, Lateness
from dedup_platform.platform.figures import PartitionFigures
from dedup_platform.report import Report, gather, page
from dedup_platform.report.gathering import SourceFigures
from dedup_platform.stream import Stream
from dedup_platform.testing import light_platform, make_stream
from dedup_platform_tests.end_to_end.browser import NO_CHROMIUM, chromium, chromium_command, open_page
from dedup_platform_tests.repaired import Repaired
from dedup_platform_tests.report.reading import PageTables

HOSTILE = '<img src=x onerror="document.title=1">&amp;\u202e\x1b[2J.json'
"""A name of a file that is markup, turns the direction of writing, and clears terminals."""
SHOWN = r'<img src=x onerror="document.title=1">&amp;\u202e\x1b[2J.json'
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Repaired:
    """Some random repairs; what came last came from the file with a hostile name."""
    made = Repaired(tmp_path_factory.mktemp("report"), seed=4)
    for _ in range(3):
        made.repair()
    again = [replace(each, attributes={"page": "/changed"}) for each in made.records[:12]]
    made.deliver(again, HOSTILE)
    made.platform.repair(made.stream.name)
    return made


@pytest.fixture(scope="module")
def html(repaired: Repaired) -> str:
    return page(gather(repaired.platform, repaired.stream.name))


@pytest.fixture(scope="module")
def sql(repaired: Repaired) -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB over the data files of the snapshots that readers see."""
    lake, stream = repaired.platform.lake, repaired.stream
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table in tables.ALL:
            scan = lake.catalog.load_table(stream.name, table).scan(snapshot_id=lake.current(stream, table))
            paths = [task.file.file_path.removeprefix("file://") for task in scan.plan_files()]
            connection.read_parquet(paths).create_view(table)
        yield connection


def numbers(row: list[str]) -> list[int]:
    return [int(text.replace(",", "")) for text in row]


def test_figures_by_day_are_those_of_sql(html: str, sql: duckdb.DuckDBPyConnection) -> None:
    header, *rows = PageTables(html).rows["periods"]
    assert header == ["day", "events", "copies", "conflicts", "late", "rejected", "sessions"]
    expected = sql.execute(
        """
        WITH counted AS (
            SELECT event_time::date AS day, 'events' AS what FROM deduplicated_events
            UNION ALL SELECT event_time::date, kind FROM duplicate_events
            UNION ALL SELECT event_time::date, 'late' FROM deduplicated_events
                WHERE arrival_time > date_trunc('day', event_time) + INTERVAL 25 HOUR
            UNION ALL SELECT arrival_time::date, 'rejected' FROM raw_events WHERE event_time IS NULL
            UNION ALL SELECT started_at::date, 'sessions' FROM sessions
        )
        SELECT day::varchar, *
        FROM (PIVOT counted ON what IN ('events', 'copy', 'conflict', 'late', 'rejected', 'sessions'))
        ORDER BY day
        """
    ).fetchall()
    assert [[day, *numbers(counts)] for day, *counts in rows] == [[day, *counts] for day, _, *counts in expected]


def test_totals_lateness_and_lengths_are_those_of_sql(html: str, sql: duckdb.DuckDBPyConnection) -> None:
    told = PageTables(html).texts

    def value(query: str) -> Any:
        [found] = sql.execute(query).fetchone() or ()
        return found

    late = "epoch(arrival_time - date_trunc('day', event_time) - INTERVAL 25 HOUR)"
    lateness = f"SELECT {{}} FROM (SELECT {late} AS late FROM deduplicated_events WHERE late > 0)"
    for percent in (50, 95, 99):
        seconds = value(lateness.format(f"quantile_disc(floor(late), {percent / 100})"))
        assert told[f"lateness-p{percent}"] == f"{cut(seconds):,}"
    assert float(told["lateness-longest"].replace(",", "")) == value(lateness.format("max(late)"))
    of_sessions = "SELECT quantile_disc({}, 0.5) FROM sessions"
    assert told["session-median-events"] == f"{cut(value(of_sessions.format('event_count'))):,}"
    duration = "floor(epoch(ended_at - started_at))"
    assert told["session-median-seconds"] == f"{cut(value(of_sessions.format(duration))):,}"
    for name, query in {
        "records": "raw_events WHERE event_time IS NOT NULL",
        "events": "deduplicated_events",
        "copies": "duplicate_events WHERE kind = 'copy'",
        "conflicts": "duplicate_events WHERE kind = 'conflict'",
        "late": f"deduplicated_events WHERE {late} > 0",
        "rejected": "raw_events WHERE rejection_reason IS NOT NULL",
        "sessions": "sessions",
    }.items():
        assert told[f"total-{name}"] == f"{value(f'SELECT count(*) FROM {query}'):,}"
    _, *durations = PageTables(html).rows["durations"]
    begins = [0, 1, 10, 60, 300, 900, 1800, 3600, 10_800]
    counts = [value(f"SELECT count(*) FROM sessions WHERE {duration} >= {begin}") for begin in begins]
    expected = [before - after for before, after in zip(counts, [*counts[1:], 0], strict=True)]
    assert [numbers(row[1:]) for row in durations] == [[count] for count in expected[: len(durations)]]
    assert sum(expected) == value("SELECT count(*) FROM sessions")


def cut(number: float) -> int:
    """The first three digits of a number."""
    digits = str(int(number))
    return int(digits[:3].ljust(len(digits), "0"))


def test_worst_sources_and_reasons_are_those_of_sql(html: str, sql: duckdb.DuckDBPyConnection) -> None:
    _, *rows = PageTables(html).rows["worst-sources"]
    expected = sql.execute(
        """
        SELECT * FROM (SELECT source, count(*) AS records,
            (SELECT count(*) FROM duplicate_events d WHERE d.source = r.source AND kind = 'copy') AS copies,
            (SELECT count(*) FROM duplicate_events d WHERE d.source = r.source AND kind = 'conflict') AS conflicts,
            (SELECT count(*) FROM deduplicated_events e WHERE e.source = r.source
                AND arrival_time > date_trunc('day', event_time) + INTERVAL 25 HOUR) AS late,
            count(rejection_reason) AS rejected
        FROM raw_events r GROUP BY source) ORDER BY copies + conflicts + late + rejected DESC, source
        """
    ).fetchall()
    troubled = [list(row) for row in expected if sum(row[2:])]
    assert [[row[0].replace(SHOWN, HOSTILE), *numbers(row[1:6])] for row in rows] == troubled[:10]
    reasons = sql.execute(
        "SELECT rejection_reason, count(*) FROM raw_events WHERE rejection_reason IS NOT NULL GROUP BY 1"
    ).fetchall()
    _, *rows = PageTables(html).rows["reasons"]
    assert [(reason, *numbers(count)) for reason, *count in rows] == reasons


def test_the_same_tables_give_the_same_bytes(repaired: Repaired, html: str) -> None:
    again = repaired.another()
    assert page(gather(again, repaired.stream.name)) == html
    again = repaired.lose_what_is_kept()
    again.clock.advance(timedelta(days=400))  # type: ignore[attr-defined]  # one that is held
    assert page(gather(again, repaired.stream.name)) == html
    assert len(html.encode()) < MEGABYTE


def test_what_came_from_outside_is_no_markup(html: str) -> None:
    found = PageTables(html)
    assert not found.tags & {"img", "script", "link", "iframe", "object", "form"}
    assert any(row[0] == SHOWN for row in found.rows["worst-sources"])
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_a_browser_shows_it(html: str, sql: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    command = chromium_command()
    if not command:
        pytest.skip(NO_CHROMIUM)
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    [events] = sql.execute("SELECT count(*) FROM deduplicated_events").fetchone() or ()
    with chromium(command) as browser:
        shown = open_page(browser, file.as_uri())
        assert shown.title() == "Report of events"
        assert shown.locator("#total-events").inner_text() == f"{events:,}"
        assert shown.locator("#worst-sources").get_by_role("rowheader", name=SHOWN, exact=True).count() == 1
        boxes: list[Any] = [each.bounding_box() or {} for each in shown.locator("svg").all()]
        assert len(boxes) == 7
        assert all(box["width"] > 500 and box["height"] > 80 for box in boxes)
        late = shown.locator("#by-period svg").nth(1).locator("path.series-0")
        height = late.evaluate("path => path.getBBox().height")
        assert height == pytest.approx(146, abs=1), "the highest column is as high as the picture"
        shown.locator("#by-period summary").click()
        assert shown.locator("#periods").is_visible()


def test_streams_without_data_or_without_sessions_have_a_page(tmp_path: Path, repaired: Repaired) -> None:
    empty = make_stream(tmp_path, "empty")
    platform = light_platform(tmp_path / "home", empty, repaired.clock)
    for _ in range(2):
        assert "The tables hold no records yet." in page(gather(platform, "empty"))
        platform.lake.create(empty, 1)
    alone = repaired.stream.model_copy(update={"sessions": None})
    html = page(gather(repaired.another(alone), alone.name))
    assert "The stream file has no sessions." in html
    assert "total-sessions" not in html
    assert PageTables(html).rows["periods"][0][-1] == "rejected"
    assert PageTables(html).texts["total-events"] == f"{len_of_events(repaired):,}"


def len_of_events(repaired: Repaired) -> int:
    return sum(int(each["events"] or 0) for each in repaired.found().values())


@pytest.mark.parametrize(
    ("granularity", "count", "unit"), [("hour", 9600, "day"), ("day", 401, "month"), ("day", 15_000, "year")]
)
def test_a_page_of_many_partitions_is_small(tmp_path: Path, granularity: str, count: int, unit: str) -> None:
    html = page(made_up(make_stream(tmp_path, granularity=granularity), count))
    header, *rows = PageTables(html).rows["periods"]
    assert (header[0], len(html.encode()) < MEGABYTE) == (unit, True)
    assert sum(numbers(row[1:2])[0] for row in rows) == 5 * count


def made_up(stream: Stream, count: int) -> Report:
    """A report of many partitions, whose sources and reasons are as many and as long as they may be."""
    size = {tables.DEDUPLICATED_EVENTS: TableSize(1, 5, 1, 1), tables.RAW_EVENTS: TableSize(1, 6, 1, 1)}
    late = CellFigures(0, Lateness({seconds * 1000: 1 for seconds in range(100)}, timedelta(days=1)))
    first = stream.partitions.ordinal(stream.partitions.start)
    figures = dict.fromkeys(range(first, first + count), PartitionFigures(size))
    figures[first] = PartitionFigures(size, late)
    sources = tuple(SourceFigures("&" * 4000 + str(number), 10, 1, 1, 1, 1) for number in range(10))
    return Report(stream, {tables.RAW_EVENTS: 1}, figures, None, sources, 99, {f"reason {n}": 1 for n in range(1000)})


def test_the_command(repaired: Repaired, html: str, tmp_path: Path) -> None:
    def told(to: Path, code: int) -> str:
        words = ["report", "events", "--html", str(to), "--streams", str(repaired.stream.origin)]
        answer = CliRunner().invoke(cli.app, words, env={"DEDUP_PLATFORM_HOME": str(repaired.folder / "home")})
        assert answer.exit_code == code
        return answer.output

    made = tmp_path / "page.html"
    assert "page.html" in told(made, 0)
    assert (made.read_text(encoding="utf-8"), [*tmp_path.iterdir()]) == (html, [made])
    for wrong in (tmp_path / "nowhere" / "page.html", tmp_path):
        assert "--html" in told(wrong, 2)


def test_status_tells_programs_the_same_figures(repaired: Repaired) -> None:
    words = ["status", "--json", "--streams", str(repaired.stream.origin)]
    answer = CliRunner().invoke(cli.app, words, env={"DEDUP_PLATFORM_HOME": str(repaired.folder / "home")})
    [told] = json.loads(answer.stdout)
    key = repaired.stream.partitions.key
    assert told["figures"] == {key(partition): each for partition, each in repaired.expected().items()}
