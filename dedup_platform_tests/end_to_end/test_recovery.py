"""After a crash or a loss the next run goes on at once, and the tables are what they would have been."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.orchestration.embedded import open_instance, run_stream
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark.connect_server import ConnectServer
from dedup_platform.stream import Stream
from dedup_platform.testing import lay_out, make_stream, record, utc, write_batch
from dedup_platform_tests.conftest import for_other_homes
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE, wait_until
from dedup_platform_tests.end_to_end.processes import TELLS_WHERE_IT_IS, said_by
from dedup_platform_tests.orchestration.conftest import QUIET


@pytest.fixture
def stream(tmp_path: Path, request: pytest.FixtureRequest) -> Stream:
    made = make_stream(tmp_path, request.node.name[:60], start="2024-03-01")
    times = [utc(f"2024-03-0{day}T10:0{minute}") for day in (1, 2, 3) for minute in range(3)]
    write_batch(made, lay_out([record("a", f"{time}", time, page="/", quantity=1) for time in times], "first.json"))
    return made


@pytest.fixture
def platform(settings: Settings, stream: Stream, spark: SparkSession) -> Platform:
    return Platform(settings, {stream.name: stream}, lambda: spark)


class Run:
    """`dedup-platform run` in a process of its own."""

    def __init__(self, settings: Settings, stream: Stream, server: ConnectServer) -> None:
        environment = (
            os.environ
            | BRIEF
            | TELLS_WHERE_IT_IS
            | {
                "DEDUP_PLATFORM_HOME": str(settings.home),
                "DEDUP_PLATFORM_STREAMS": str(stream.origin),
                "DEDUP_PLATFORM_SPARK_REMOTE": for_other_homes(server),
            }
        )
        command = [str(Path(sys.executable).with_name("dedup-platform")), "run"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def end(self) -> tuple[int, str]:
        """Exit code and what was said."""
        _, said = said_by(self.process)
        return self.process.returncode, said


@pytest.fixture
def started() -> Iterator[list[Run]]:
    """Runs that end with the test."""
    processes: list[Run] = []
    yield processes
    for each in processes:
        if each.process.poll() is None:
            each.kill()


@pytest.mark.thorough
def test_after_a_sigkill_the_next_runs_do_not_wait_and_two_at_once_both_end(
    settings: Settings, stream: Stream, platform: Platform, started: list[Run], connect: ConnectServer
) -> None:
    started.append(Run(settings, stream, connect))
    with open_instance(settings) as instance:
        wait_until(lambda: holds_a_slot(instance, stream), "the run holds the slot of its first table", PATIENCE)
        [dead] = instance.get_runs(dg.RunsFilter(job_name=f"{stream.name}_ingest"))
        started[0].kill()
        assert instance.get_run_by_id(dead.run_id).status == dg.DagsterRunStatus.STARTED  # type: ignore[union-attr]

        started += [Run(settings, stream, connect), Run(settings, stream, connect)]
        ends = [each.end() for each in started[1:]]
        assert {code for code, _ in ends} <= {0, 3}, ends
        assert 0 in {code for code, _ in ends}, ends
        assert any(f"run {dead.run_id[:8]} was dead" in said for _, said in ends)
        assert instance.get_run_by_id(dead.run_id).status == dg.DagsterRunStatus.FAILURE  # type: ignore[union-attr]
        assert not holds_a_slot(instance, stream)
    assert platform.rows(stream.name, tables.RAW_EVENTS) == 9
    assert platform.verify(stream.name) == []


def test_the_ledger_and_dagsters_home_can_be_deleted_and_no_row_changes(
    settings: Settings, stream: Stream, platform: Platform
) -> None:
    run_stream(settings, stream, QUIET)
    before = {table: sorted(platform.read(stream.name, table).collect(), key=str) for table in tables.ALL}

    Path(settings.control_uri.removeprefix("sqlite:///")).unlink()
    shutil.rmtree(settings.dagster_home)
    run_stream(settings, stream, QUIET)

    reopened = Platform(settings, {stream.name: stream}, platform.lake.spark)
    for table, rows in before.items():
        assert sorted(reopened.read(stream.name, table).collect(), key=str) == rows, table
    assert not any(plan.stale for plan in reopened.plan(stream.name))
    with open_instance(settings) as instance:
        assert len(instance.get_runs(dg.RunsFilter(job_name=f"{stream.name}_ingest"))) == 1


def holds_a_slot(instance: dg.DagsterInstance, stream: Stream) -> bool:
    pools = instance.event_log_storage.get_concurrency_keys()
    return any(
        instance.event_log_storage.get_concurrency_info(pool).active_slot_count
        for pool in pools
        if pool.startswith(f"{stream.name}.")
    )
