"""The harness of the benchmarks on a few thousand events: contenders agree, and the judge would see if they did not."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rich.console import Console

from benchmarks.bench import Bench
from benchmarks.contender import Output, Task
from benchmarks.contenders import DUCKDB, NAIVE, OURS, POLARS
from benchmarks.data import EVENT_COLUMNS, START, Events
from benchmarks.figures import Figures
from benchmarks.judge import DisagreementError, Judge
from benchmarks.machine import about
from benchmarks.measures import explain, ingest, publish, report, scale, tick
from benchmarks.options import parse
from benchmarks.page import write_page
from benchmarks.process import ContenderError, Contestant, Run
from dedup_platform_tests.conftest import PROJECT

EVENTS = Events(4_000, days=3, copies=0.05)
NAMES = (OURS, DUCKDB, NAIVE, POLARS)
FEW = 2
"""The first of them, where there is no time for all."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def results(cache: Path, tmp_path_factory: pytest.TempPathFactory, thorough: bool) -> dict[str, tuple[Run, Output]]:
    """What each contender did and wrote, each in a process of its own."""
    found = {}
    for name in NAMES if thorough else NAMES[:FEW]:
        folder = tmp_path_factory.mktemp(name)
        with Contestant(name, task(EVENTS.write(cache), folder)) as contestant:
            if name == OURS:
                contestant.call("ingest")
            contestant.call("clear")
            found[name] = (contestant.run("rebuild"), contestant.output())
    return found


def task(sources: Path, folder: Path) -> Task:
    return Task(str(sources), str(folder / "home"), "1g", buckets=1, logs=str(folder / "logs"))


def query(sql: str, *values: object) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.execute(sql, values).fetchall()


def test_contenders_agree(results: dict[str, tuple[Run, Output]]) -> None:
    judge = Judge(EVENTS.events)
    for name, (run, output) in results.items():
        verdict = judge.judge(name, output)
        assert (run.value["events"], run.value["sessions"]) == (verdict.events[0], verdict.sessions[0])
        assert EVENTS.events / 20 < verdict.sessions[0] < EVENTS.events / 5


def test_runs_are_measured(results: dict[str, tuple[Run, Output]]) -> None:
    for name, (run, output) in results.items():
        assert 0 < run.seconds < 60
        assert 30 < run.peak_mb < 10_000
        # The details alone are 100 bytes of each event, of which no more than a quarter can be squeezed out.
        assert run.data_bytes_written > EVENTS.events * 75
        assert run.data_files_written >= len(output.events) + len(output.sessions)
        if name == NAIVE:
            assert run.data_bytes_read is None
        else:
            assert run.data_bytes_read is not None
            assert run.data_bytes_read > EVENTS.events * 75, name


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("events", "SELECT * FROM found LIMIT 3999"),
        ("events", "SELECT * FROM found UNION ALL (SELECT * FROM found LIMIT 1)"),
        ("events", "(SELECT * FROM found LIMIT 3999) UNION ALL (SELECT * FROM found LIMIT 1)"),
        ("events", "SELECT * REPLACE (if(event_id = (SELECT min(event_id) FROM found), 'x', details) AS details)"
         " FROM found"),
        ("sessions", "SELECT * REPLACE (ended_at + INTERVAL 1 MICROSECOND AS ended_at) FROM found"),
        ("sessions", "SELECT * REPLACE (pages + 1 AS pages) FROM found"),
        ("sessions", "SELECT * REPLACE (revenue + 0.01 AS revenue) FROM found"),
    ],
)  # fmt: skip
def test_the_judge_sees_a_wrong_result(
    what: str, wrong: str, results: dict[str, tuple[Run, Output]], tmp_path: Path
) -> None:
    right = results[DUCKDB][1]
    file = tmp_path / "wrong.parquet"
    query(f"COPY (WITH found AS (FROM read_parquet({getattr(right, what)})) {wrong}) TO '{file}'")
    judge = Judge()
    judge.judge("right", right)
    with pytest.raises(DisagreementError, match=what):
        judge.judge("wrong", replace(right, **{what: [str(file)]}))


def test_the_judge_knows_how_many_events_there_are(results: dict[str, tuple[Run, Output]]) -> None:
    with pytest.raises(DisagreementError, match="4,000 events of 4,001"):
        Judge(4_001).judge(DUCKDB, results[DUCKDB][1])


def test_a_failure_tells_who_and_why(cache: Path, tmp_path: Path) -> None:
    with (
        Contestant(DUCKDB, task(cache / "nowhere", tmp_path)) as contestant,
        pytest.raises(ContenderError, match=r"(?s)duckdb, rebuild: .*No files found"),
    ):
        contestant.call("rebuild")


def test_a_contender_that_fails_is_left_out_and_named(tmp_path: Path) -> None:
    bench = Bench(parse([]), Figures(tmp_path / "bench.json", parse([]).described(), about()), Console(quiet=True))
    bench.figures.add("rebuild_cold", DUCKDB, [Run({}, 2.0, 100, None, 10, 1, 5)])

    def fail() -> None:
        raise ContenderError

    with bench.leaving_out("rebuild_cold", NAIVE):
        fail()
    with pytest.raises(ContenderError), bench.leaving_out("rebuild_cold", OURS):
        fail()
    write_page(bench.figures, tmp_path / "page.md")
    cold = (tmp_path / "page.md").read_text("utf-8").split("## Everything from nothing, cold")[1]
    assert "left out: naive." in cold
    assert "| duckdb |" in cold


def test_events_are_as_promised(cache: Path) -> None:
    files = f"{EVENTS.write(cache)}/*.parquet"
    [(records, events, ids, entities, first, last)] = query(
        f"""SELECT count(*), count(DISTINCT (entity_id, event_id)), count(DISTINCT event_id), count(DISTINCT entity_id),
            epoch(min(event_time)), epoch(max(event_time)) FROM '{files}'"""
    )
    assert events == ids == EVENTS.events
    assert isinstance(records, int)
    assert 0.04 < records / EVENTS.events - 1 < 0.06
    assert isinstance(entities, int)
    assert EVENTS.entities * 0.9 < entities <= EVENTS.entities
    assert isinstance(first, float)
    assert isinstance(last, float)
    assert START.timestamp() <= first
    assert last < START.timestamp() + 3 * 86_400
    [wrong] = query(
        f"""SELECT count_if(arrival_time < event_time), count_if(length(details) != 100),
            count_if(length(event_id) != 36) FROM '{files}'"""
    )
    assert wrong == (0, 0, 0)


def test_copies_differ_in_their_arrival_only(cache: Path) -> None:
    same = ", ".join(name for name in EVENT_COLUMNS if name != "arrival_time")
    files = f"{EVENTS.write(cache)}/*.parquet"
    [(groups,)] = query(f"SELECT count(*) FROM (SELECT DISTINCT {same} FROM '{files}')")
    assert groups == EVENTS.events
    [(repeated,)] = query(f"SELECT count(*) - count(DISTINCT (entity_id, event_id, arrival_time)) FROM '{files}'")
    assert repeated == 0


def test_the_same_parameters_give_the_same_events(cache: Path, tmp_path: Path) -> None:
    def checksum(folder: Path) -> list[tuple[object, ...]]:
        return query(f"SELECT sum(hash({', '.join(EVENT_COLUMNS)})) FROM '{folder}/*.parquet'")

    assert checksum(EVENTS.write(cache)) == checksum(EVENTS.write(tmp_path))
    assert checksum(EVENTS.write(cache)) != checksum(replace(EVENTS, seed=2).write(tmp_path))


def test_one_entity_can_own_a_share(tmp_path: Path) -> None:
    folder = replace(EVENTS, skew=0.2).write(tmp_path)
    [(most,)] = query(f"SELECT max(n) FROM (SELECT count(*) AS n FROM '{folder}/*.parquet' GROUP BY entity_id)")
    assert isinstance(most, int)
    assert 0.15 < most / EVENTS.events < 0.25


def test_late_events_are_new_and_spread(cache: Path) -> None:
    known = EVENTS.write(cache)
    late = EVENTS.write_late(cache, 100, 2, 0)
    [(days, count, shared)] = query(
        f"""SELECT count(DISTINCT event_time::DATE), count(*),
            count_if(event_id IN (SELECT event_id FROM '{known}/*.parquet')) FROM '{late}/*.parquet'"""
    )
    assert (days, count, shared) == (2, 100, 0)
    other = EVENTS.write_late(cache, 100, 2, 1)
    [(both,)] = query(f"SELECT count(DISTINCT event_id) FROM read_parquet(['{late}/*.parquet', '{other}/*.parquet'])")
    assert both == 200


def test_figures_of_other_measures_stay_while_the_options_are_the_same(tmp_path: Path) -> None:
    file, run = tmp_path / "bench.json", Run({"steps": {"a": 1.0}}, 2.0, 100, None, 10, 1, 5)
    first = Figures(file, {"events": 1}, {})
    first.add("repair: small", OURS, [run])
    first.add("skew", OURS, [run, replace(run, seconds=4.0), replace(run, seconds=9.0)])
    second = Figures(file, {"events": 1}, {})
    assert second.measures["skew"][OURS]["median_s"] == 4.0
    assert second.measures["skew"][OURS]["steps"] == {"a": 1.0}
    second.begin("repair")
    assert list(second.measures) == ["skew"]
    assert Figures(file, {"events": 2}, {}).measures == {}


def test_ticks_are_measured_on_ledgers_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    monkeypatch.setattr(tick, "CELLS", {3: 1, 50: 4})
    monkeypatch.setattr(tick, "CHANGES_A_CELL", 2)
    options = parse(["--measures", "tick", "--folder", str(tmp_path), "--runs", "1"])
    bench = Bench(options, Figures(tmp_path / "bench.json", {}, {}), Console(quiet=True))
    tick.measure(bench)
    assert {name.rpartition(", ")[2] for name in bench.figures.measures} == {"3 cells", "50 cells"}
    cases = {name.removeprefix("tick: ").rpartition(", ")[0] for name in bench.figures.measures}
    assert {
        f"{look}, {stale}" for look in ("plan", "tick") for stale in ("every cell stale", "nothing stale", "1 stale")
    } < cases
    assert len(bench.figures.measures) == 2 * 17


def test_the_harness_writes_figures_a_plot_and_a_page(tmp_path: Path) -> None:
    docs = tmp_path / "docs" / "benchmarks.md"
    docs.parent.mkdir()
    arguments = [
        "--measures",
        "rebuild,rebuild_cold,skew",
        "--contenders",
        "duckdb,polars,spark (topic)",
        "--events",
        "5000",
    ]
    command = [sys.executable, "-m", "benchmarks", *arguments, "--folder", str(tmp_path), "--docs", str(docs)]
    told = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    measures = json.loads((tmp_path / "bench.json").read_text("utf-8"))["measures"]
    assert {name.split(":")[0] for name in measures} == {"rebuild", "rebuild_cold", "skew"}
    assert measures["rebuild_cold"].keys() == {DUCKDB, POLARS}
    assert len(measures["rebuild"][DUCKDB]["runs_s"]) == 3
    assert (tmp_path / "bench.png").stat().st_size == docs.with_suffix(".png").stat().st_size > 10_000
    page = docs.read_text("utf-8")
    assert "| duckdb |" in page.split("## Everything from nothing, cold")[1]
    assert str(PROJECT) not in page
    assert str(tmp_path) not in page


def test_what_a_large_stream_leaves_behind_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "DAYS", 3)
    monkeypatch.setattr(scale, "INGESTS", 4)
    monkeypatch.setattr(scale, "INGESTS_A_REPAIR", 2)
    options = parse(["--measures", "scale", "--folder", str(tmp_path)])
    bench = Bench(options, Figures(tmp_path / "bench.json", options.described(), about()), Console(quiet=True))
    scale.measure(bench)
    values = {name: each[OURS]["value"] for name, each in bench.figures.measures.items()}
    assert len(values) == 13
    assert all(value > 0 for value in values.values())
    page = tmp_path / "benchmarks.md"
    write_page(bench.figures, page)
    assert f"| metadata file of sessions | {values['scale: metadata file of sessions']:,} |" in page.read_text("utf-8")


@pytest.mark.thorough
def test_feeds_and_sinks_are_measured_beside_the_least_that_can_be_done(tmp_path: Path) -> None:
    said = "--measures publish --events 4000 --days 3 --buckets 1 --runs 1 --memory 1g --folder"
    options = parse([*said.split(), str(tmp_path)])
    bench = Bench(options, Figures(tmp_path / "bench.json", options.described(), about()), Console(quiet=True))
    publish.measure(bench)
    cases = {name.partition(": ")[2]: each for name, each in bench.figures.measures.items() if name[:7] == "publish"}
    sinks = {case.split()[-1]: each for case, each in cases.items() if "sessions into" in case}
    assert {where: set(each) for where, each in sinks.items()} == {
        "Postgres": {OURS, publish.PLAIN_COPY},
        "Kafka": {*publish.FORMATS, publish.PLAIN_PRODUCER},
    }
    assert all(figure["rows_a_second"] > 0 for each in sinks.values() for figure in each.values())
    with_feeds, without = (cases[f"everything from nothing, {how} feeds"][OURS] for how in ("with", "without"))
    assert with_feeds["data_bytes_written"] > without["data_bytes_written"] + EVENTS.events * 75
    page = tmp_path / "benchmarks.md"
    write_page(bench.figures, page)
    rows = sinks["Kafka"][OURS]["rows_a_second"]
    assert f"ours {rows:,}, ours (avro) " in page.read_text("utf-8")


@pytest.mark.thorough
def test_files_that_land_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "HOURS", 3)
    said = "--measures ingest --events 4000 --days 3 --buckets 1 --runs 1 --memory 1g --folder"
    options = parse([*said.split(), str(tmp_path)])
    bench = Bench(options, Figures(tmp_path / "bench.json", options.described(), about()), Console(quiet=True))
    ingest.measure(bench)
    cases = {name.removeprefix("ingest: "): set(each) for name, each in bench.figures.measures.items()}
    assert cases.pop("Protobuf, none, 32 files") == {OURS, NAIVE}, "DuckDB reads none"
    others = [case for case, _ in ingest.cases(bench) if not case.startswith("Protobuf")]
    assert cases == {case: set(ingest.CONTENDERS) for case in (*others, ingest.NOTHING)}


def test_records_that_differ_are_told(tmp_path: Path) -> None:
    row = "SELECT 'e' AS entity_id, {id} AS event_id, now() AS event_time, now() AS arrival_time, 'p' AS page"
    for name, event_id, places in (("a", "'1'", "1"), ("b", "'2'", "1"), ("c", "'1'", "2")):
        rows = f"{row.format(id=event_id)}, 1.5 AS amount, 'x'::BLOB AS payload, 'f' AS source, 0 AS source_offset"
        query(f"COPY (SELECT r.* FROM ({rows}) AS r, range({places})) TO '{tmp_path / name}.parquet' (FORMAT parquet)")
    records = ingest.Records()
    records.judge(OURS, [str(tmp_path / "a.parquet")], "parquet")
    with pytest.raises(DisagreementError, match=r"DuckDB has .*, ours has"):
        records.judge("DuckDB", [str(tmp_path / "b.parquet")], "parquet")
    with pytest.raises(DisagreementError, match="2 records in 1 places"):
        records.judge("DuckDB", [str(tmp_path / "c.parquet")], "parquet")


@pytest.mark.thorough
@pytest.mark.parametrize(("measure", "cases"), [(explain, 3), (report, 2)], ids=["explain", "report"])
def test_commands_are_measured_cold(measure: Any, cases: int, tmp_path: Path) -> None:
    options = parse(["--events", "4000", "--days", "2", "--buckets", "1", "--folder", str(tmp_path)])
    bench = Bench(options, Figures(tmp_path / "bench.json", options.described(), about()), Console(quiet=True))
    measure.measure(bench)
    assert len(bench.figures.measures) == 1 + cases, "the ingest, and each case"
    for name, each in bench.figures.measures.items():
        assert name.startswith("ingest") or len(each[OURS]["runs_s"]) == options.runs


def test_another_checkout_must_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--beside", str(tmp_path)]):
        with pytest.raises(SystemExit):
            parse(["--measures", "beside", *more])
        assert "--beside FOLDER" in capsys.readouterr().err
    assert parse(["--measures", "beside", "--beside", str(PROJECT)]).beside == PROJECT
