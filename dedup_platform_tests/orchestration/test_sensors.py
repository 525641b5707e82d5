"""The sensors on a real instance: what they ask for, when they wait, and the words they say it in."""

import os
import subprocess
import sys
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest

from dedup_platform import tables
from dedup_platform.orchestration import runs, sensors
from dedup_platform.planning.claims import Partitions
from dedup_platform.planning.planner import PlannedRun, TablePlan
from dedup_platform.platform.claims import Turn
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers

REQUESTED = pytest.mark.parametrize("deploy", ["{settle: 60s, max_runs_per_tick: 2}"], indirect=True)
DAYS = ("2024-03-01", "2024-03-02", "2024-03-05", "2024-03-09")


def ranges(requests: list[dg.RunRequest]) -> list[tuple[str, str]]:
    return [(each.tags[runs.RANGE_START], each.tags[runs.RANGE_END]) for each in requests]


def queue(deploy: Deployment, job: str, request: dg.RunRequest) -> dg.DagsterRun:
    """The run that Dagster's daemon makes of a request, before it starts."""
    return deploy.instance.create_run_for_job(
        deploy.definitions.resolve_job_def(job),
        tags={**request.tags, "dagster/run_key": str(request.run_key)},
        asset_selection=frozenset(request.asset_selection) if request.asset_selection else None,
    )


def test_new_input_says_what_it_leaves_alone(deploy: Deployment) -> None:
    (deploy.stream.files.root / ".hidden.json").write_text("{}\n")
    requests, reason = deploy.tick("new_input")
    assert not requests
    assert reason is not None
    assert reason.startswith("nothing new at the source")


@pytest.mark.parametrize("deploy", ["{settle: 0s}"], indirect=True)
def test_what_a_process_has_claimed_is_left_to_it(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"))
    deploy.platform.ingest(deploy.stream.name)
    day = Partitions(frozenset({deploy.stream.partitions.ordinal_of("2024-03-01")}))
    told = []

    def step(turn: Turn) -> None:
        with turn.reading():
            told.append(deploy.tick("late_partitions"))

    deploy.platform.claims.work(deploy.stream, tables.DEDUPLICATED_EVENTS, day, step)
    requests, reason = told[0]
    assert not requests
    assert reason is not None
    assert reason.startswith(f"2024-03-01: process {os.getpid()} on ")
    [_], _ = deploy.tick("late_partitions")


def test_new_input_asks_once_and_tries_again_with_a_pause(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"))
    [first], _ = deploy.tick("new_input")
    run = queue(deploy, f"{deploy.stream.name}_ingest", first)
    requests, reason = deploy.tick("new_input")
    assert not requests
    assert reason == f"run {run.run_id[:8]} ingests already"

    deploy.instance.report_run_failed(run)
    requests, reason = deploy.tick("new_input")
    assert not requests
    assert reason is not None
    assert reason.startswith("the ingest is retrying: 1 try since")
    assert f"run {run.run_id[:8]} ended before it could say why" in reason
    assert deploy.tick("new_input") == ([], reason), "a run that was lost is counted once"
    deploy.later(61)
    [second], _ = deploy.tick("new_input")
    assert second.run_key != first.run_key, "Dagster never starts a known key again"

    # The next file is another matter only if the earlier failure was not about taking files in.
    deploy.instance.add_run_tags(run.run_id, {runs.INGESTED: "true", runs.WATERMARK: "other"})
    deploy.later(1)
    [third], _ = deploy.tick("new_input")
    assert third.run_key != first.run_key


@REQUESTED
def test_late_partitions_repairs_ranges_of_stale_partitions(deploy: Deployment) -> None:
    ahead = (deploy.clock.now + timedelta(days=3)).strftime("%Y-%m-%dT12:00:00")
    deploy.deliver("first.json", *(click("a", f"{day}T10:00") for day in DAYS), click("a", ahead))
    ingested = deploy.ingest()
    assert set(numbers(ingested, tables.RAW_EVENTS)) == set(DAYS), "Dagster has no such partition for the day ahead"

    requests, reason = deploy.tick("late_partitions")
    assert not requests
    assert reason is not None
    assert "5 stale cells wait until nothing new came for 1m (late.settle)" in reason

    deploy.later(61)
    requests, _ = deploy.tick("late_partitions")
    assert ranges(requests) == [("2024-03-01", "2024-03-02"), ("2024-03-05", "2024-03-05")], "no more than two a tick"
    assert requests[0].asset_selection == [deploy.key(table) for table in tables.ALL if table != tables.RAW_EVENTS]
    assert requests[0].tags[runs.CELLS] == runs.STALE

    # What is queued is not asked for again, and what could not be asked for before now is.
    for request in requests:
        queue(deploy, f"{deploy.stream.name}_repair", request)
    result = deploy.follow("late_partitions", requests[0])
    assert [each["rows"] for each in numbers(result, tables.SESSIONS).values()] == [1, 1]
    assert_no_java(deploy)


def assert_no_java(deploy: Deployment) -> None:
    """Both sensors of this deployment, evaluated in a process of their own, start no Java."""
    script = Path(__file__).with_name("sensor_process.py")
    settings = deploy.platform.settings
    environment = {"DEDUP_PLATFORM_HOME": str(settings.home), "DEDUP_PLATFORM_STREAMS": str(deploy.stream.origin)}
    ended = subprocess.run(
        [sys.executable, str(script)], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["0", "java", "processes"]


@pytest.mark.parametrize("deploy", ["{settle: 0s, grace: 0s}"], indirect=True)
def test_a_partition_that_fails_again_and_again_is_left_out_and_the_rest_goes_on(deploy: Deployment) -> None:
    deploy.deliver("first.json", click("a", "2024-03-01T10:00"), click("b", "2024-03-02T10:00"))
    deploy.materialize(tables.RAW_EVENTS, partitions=DAYS[:2])
    deploy.materialize(tables.DUPLICATE_EVENTS, tables.DEDUPLICATED_EVENTS, partitions=DAYS[:2])
    data = Path(deploy.platform.settings.warehouse) / deploy.stream.name / tables.DEDUPLICATED_EVENTS
    [broken] = data.glob("**/*2024-03-02/**/*.parquet")
    broken.unlink()

    asked = []
    for pause in (0, 61, 121):
        deploy.later(pause)
        requests, _ = deploy.tick("late_partitions")
        asked.append(ranges(requests))
        for request in requests:
            breaks = request.tags[runs.RANGE_END] == DAYS[1]
            with pytest.raises(Exception, match="parquet") if breaks else nullcontext():
                deploy.follow("late_partitions", request)
    both, first, second = (DAYS[0], DAYS[1]), (DAYS[0], DAYS[0]), (DAYS[1], DAYS[1])
    assert asked == [[both], [both], [first, second]]

    requests, reason = deploy.tick("late_partitions")
    assert not requests
    assert reason is not None
    assert reason.startswith("2024-03-02: still stale after 3 tries; the next one starts after")


@pytest.mark.parametrize(
    ("behind", "most", "expected"), [(2, 10, [8, 9, 10]), (0, 10, [10, 10, 10]), (2, 2, [1, 1, 2]), (2, 1, [1, 1, 1])]
)
def test_a_tick_leaves_a_run_for_each_table_behind(behind: int, most: int, expected: list[int]) -> None:
    """Else a table would wait for ever behind one in which something is always stale."""
    run = PlannedRun((1,), "late", "w")
    plans = [
        TablePlan("s", table, (), (run,) if number <= behind else ()) for number, table in enumerate(tables.DERIVED)
    ]
    assert [share for _, share in sensors._shares(plans, most)] == expected
