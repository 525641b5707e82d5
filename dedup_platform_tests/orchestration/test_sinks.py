"""Sinks in Dagster: each follows by its own job and sensor, and one that is down holds nothing back."""

import os
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest

from dedup_platform.errors import SinkError
from dedup_platform.orchestration import runs
from dedup_platform.planning.claims import ALL
from dedup_platform.platform.claims import Turn
from dedup_platform.tables import EVENT_CHANGES, SESSION_CHANGES, SESSIONS
from dedup_platform_tests.orchestration.conftest import Deployment, click
from dedup_platform_tests.sinks.sqlite_table import SqliteTable, copies, open_table

DAY = "2024-03-01"
FACTORY = "dedup_platform_tests.sinks.sqlite_table"
SINK = "{{kind: custom, follows: {table}, factory: '{factory}:open_table', options: {{file: FOLDER/{name}.db}}}}"
SINKS = {
    name: SINK.format(table=table, factory=FACTORY, name=name)
    for name, table in {"one": "sessions", "other": "deduplicated_events"}.items()
}
FOLLOWED = pytest.mark.parametrize(
    "deploy",
    [
        "{settle: 0s, grace: 0s}\npublish: {sinks: {"
        + ", ".join(f"{name}: {sink}" for name, sink in SINKS.items())
        + "}}"
    ],
    indirect=True,
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {name: str(tmp_path / f"{name}.db") for name in SINKS}


def run(deploy: Deployment, name: str) -> dg.ExecuteInProcessResult:
    job = deploy.definitions.resolve_job_def(runs.sink_job_name(deploy.stream, name))
    return job.execute_in_process(instance=deploy.instance, raise_on_error=False)


def told(deploy: Deployment, name: str) -> dict[str, object]:
    event = deploy.instance.get_latest_materialization_event(deploy.key(name))
    assert event
    assert event.asset_materialization
    return {key: value.value for key, value in event.asset_materialization.metadata.items()}


@FOLLOWED
def test_a_sink_follows_by_its_sensor(deploy: Deployment, files: dict[str, str]) -> None:
    assert deploy.tick("one_behind") == ([], "nothing is published yet")
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("b", f"{DAY}T10:00"))
    deploy.ingest()
    [request], _ = deploy.tick("one_behind")
    name = deploy.stream.name
    assert request.run_key == f"{name}/{name}_to_one/after none"
    assert run(deploy, "one").success
    assert deploy.tick("one_behind") == ([], "one has version 1")
    assert {name: told(deploy, "one")[name] for name in ("version", "insert", "refused", "suppressed")} == {
        "version": 1,
        "insert": 2,
        "refused": 0,
        "suppressed": 0,
    }
    assert len(copies(files["one"])) == 2
    [_], _ = deploy.tick("other_behind")


@FOLLOWED
def test_a_sink_or_a_feed_that_another_is_at_is_left_to_it(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    name, told = deploy.stream.name, list[str | None]()
    deploy.platform.ingest(name)
    deploy.platform.repair(name)
    deploy.platform.publish_changes(name, [SESSIONS])

    def step(turn: Turn) -> None:
        with turn.reading():
            if not told:
                told.append(deploy.tick("one_behind")[1])
                assert run(deploy, "one").success

    deploy.platform.claims.work(deploy.stream, "one", ALL, step)
    assert str(told[0]).startswith(f"version 1 waits; process {os.getpid()} on ")
    [_], _ = deploy.tick("one_behind")

    def follow(turn: Turn) -> None:
        with turn.reading():
            # Nobody is at the aliases.
            [_], _ = deploy.tick("unpublished_changes")
            deploy.platform.publish_changes(name, [SESSION_CHANGES])
            told.append(deploy.tick("unpublished_changes")[1])

    deploy.platform.claims.work(deploy.stream, EVENT_CHANGES, ALL, follow)
    assert str(told[1]).startswith(f"deduplicated_events wait; process {os.getpid()} on ")


@FOLLOWED
def test_a_sink_that_is_down_holds_back_neither_tables_nor_other_sinks(
    deploy: Deployment, files: dict[str, str]
) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    opened = SqliteTable.open

    def down(sink: SqliteTable) -> object:
        if sink._target.sink == "one":
            raise SinkError("clicks", "one", "it is down")
        return opened(sink)

    with patch.object(SqliteTable, "open", down), patch("tenacity.nap.time.sleep"):
        assert deploy.ingest().success
        assert not run(deploy, "one").success
        assert run(deploy, "other").success
    requests, reason = deploy.tick("one_behind")
    assert requests == []
    assert reason
    assert reason.startswith("version 1 waits; the sink is open: 3 tries since")
    assert "it is down; the next try is after" in reason
    assert len(copies(files["other"])) == 1
    deploy.later(600)
    [_], _ = deploy.tick("one_behind")
    assert run(deploy, "one").success
    assert len(copies(files["one"])) == 1


@FOLLOWED
def test_refused_rows_are_shown_by_a_check(deploy: Deployment, files: dict[str, str]) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("b", f"{DAY}T10:00"))
    deploy.ingest()

    def poisoned(target: object, options: dict[str, str]) -> SqliteTable:
        return open_table(target, {**options, "poison": "a"})  # type: ignore[arg-type]

    with patch(f"{FACTORY}.open_table", poisoned):
        done = run(deploy, "one")
    [check] = [each for each in done.get_asset_check_evaluations() if each.check_name == "none_refused"]
    assert not check.passed
    assert check.metadata["refused"].value == 1
    assert len(copies(files["one"])) == 1


@FOLLOWED
def test_a_run_that_was_killed_counts_as_a_failure(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"))
    deploy.ingest()
    job = deploy.definitions.resolve_job_def(runs.sink_job_name(deploy.stream, "one"))
    killed = deploy.instance.create_run_for_job(job, tags={runs.STREAM: deploy.stream.name})
    deploy.instance.report_run_failed(killed)
    requests, reason = deploy.tick("one_behind")
    assert requests == []
    assert reason
    assert f"run {killed.run_id[:8]} ended before it could say why" in reason
    assert deploy.platform.sinks.health(deploy.stream.name, "one").attempts == 1
    deploy.tick("one_behind")
    assert deploy.platform.sinks.health(deploy.stream.name, "one").attempts == 1, "it is counted once"
    deploy.later(60)
    [_], _ = deploy.tick("one_behind")
    assert run(deploy, "one").success
    assert deploy.tick("one_behind") == ([], "one has version 1")


@FOLLOWED
def test_what_commits_came_to_is_told_once_in_each_run(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", f"{DAY}T10:00"), click("a", f"{DAY}T10:00"))
    deploy.ingest()
    first = told(deploy, "audit")
    assert {name: first[name] for name in ("records_read", "copies", "total_copies")} == {
        "records_read": 2,
        "copies": 1,
        "total_copies": 1,
    }
    deploy.deliver("second.json", click("a", f"{DAY}T10:00"))
    deploy.ingest()
    second = told(deploy, "audit")
    assert (second["records_read"], second["copies"], second["total_copies"]) == (1, 1, 2)
    assert second["cells_unchanged"] == second["cells_checked"] != 0
