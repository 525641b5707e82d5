"""What Dagster's records tell about runs: which are dead, and what that frees."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil  # type: ignore[import-untyped]
import pytest

from dedup_platform.orchestration import runs
from dedup_platform.orchestration.build import build_definitions
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.pools import busy_pools
from dedup_platform.settings import Settings
from dedup_platform.testing import make_stream


@dg.op(pool="a.table")
def step() -> None: ...


@dg.job
def job() -> None:
    step()


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with open_instance(Settings(home=tmp_path)) as opened:
        yield opened


def started(instance: dg.DagsterInstance, process: str) -> dg.DagsterRun:
    """A run of this process that holds the slot of its pool."""
    run = instance.create_run_for_job(job, tags={runs.PROCESS: process})
    slots = instance.event_log_storage
    slots.initialize_concurrency_limit_to_default("a.table")
    assert slots.claim_concurrency_slot("a.table", run.run_id, "step").is_claimed
    return run


def label(process: psutil.Process, host: str | None = None, drift: float = 0.0) -> str:
    return f"{host or socket.gethostname()}/{process.pid}/{process.create_time() + drift:.2f}"


def is_buried(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    failed = runs.fail_dead_runs(instance) == [run.run_id]
    assert busy_pools(instance, ["a.table", "b.table"]) == ([] if failed else ["a.table"])
    return failed


def test_a_run_whose_process_was_killed_is_failed_and_gives_its_slot_back(instance: dg.DagsterInstance) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        run = started(instance, label(psutil.Process(process.pid)))
        assert not is_buried(instance, run), "it lives"
        process.kill()
        # Until it is dead, which is later than the call. It is not waited for yet: a zombie works no more.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
        assert is_buried(instance, run)
    assert instance.get_run_by_id(run.run_id).status == dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]


def test_another_process_with_the_same_id_is_not_the_runs(instance: dg.DagsterInstance) -> None:
    assert is_buried(instance, started(instance, label(psutil.Process(), drift=-3600)))


def test_a_clock_that_was_set_a_little_does_not_kill(instance: dg.DagsterInstance) -> None:
    assert not is_buried(instance, started(instance, label(psutil.Process(), drift=1.5)))


def test_runs_of_other_machines_are_left_alone(instance: dg.DagsterInstance) -> None:
    assert not is_buried(instance, started(instance, label(psutil.Process(), host="elsewhere", drift=-3600)))


def test_slots_of_runs_that_ended_are_freed(instance: dg.DagsterInstance) -> None:
    run = started(instance, label(psutil.Process()))
    instance.report_run_failed(run)
    assert runs.fail_dead_runs(instance) == []
    assert busy_pools(instance, ["a.table"]) == []


def test_what_an_ingest_touched_is_in_work_until_it_ends(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "clicks")
    seen: list[set[int]] = []

    @dg.op
    def ingest(context: dg.OpExecutionContext) -> None:
        context.log_event(dg.AssetMaterialization(dg.AssetKey(["clicks", "raw_events"]), partition="2024-03-01"))
        seen.append(set(runs.history(context.instance, stream, "sessions").in_work))

    @dg.job(name="clicks_ingest", executor_def=dg.in_process_executor)
    def ingest_job() -> None:
        ingest()

    ingest_job.execute_in_process(instance=instance)
    assert seen == [{stream.partitions.ordinal_of("2024-03-01")}]
    assert not runs.history(instance, stream, "sessions").in_work


def test_what_a_manual_run_works_on_is_in_work(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "clicks")
    definitions = build_definitions(Settings(home=tmp_path), {"clicks": stream})
    instance.create_run_for_job(
        definitions.resolve_implicit_global_asset_job_def(),
        tags={runs.RANGE_START: "2024-03-01", runs.RANGE_END: "2024-03-02"},
        asset_selection=frozenset({dg.AssetKey(["clicks", "sessions"])}),
    )
    first = stream.partitions.ordinal_of("2024-03-01")
    assert set(runs.history(instance, stream, "sessions").in_work) == {first, first + 1}
    assert not runs.history(instance, stream, "session_fragments").in_work
