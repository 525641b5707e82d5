"""From a late file's landing to its sessions: Dagster's daemon, sensor and queue included, on a warm and a cold Spark.

Warm is a Spark Connect server that runs are sent to; cold is a Spark of each run's own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import dagster as dg

from benchmarks.bench import Bench, land
from benchmarks.contender import Task
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM, deployment
from benchmarks.data import Events
from benchmarks.process import PROJECT, Contestant
from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import committed_at, head
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.orchestration.runs import ENDED
from dedup_platform.settings import ENV_PREFIX, Settings
from dedup_platform.spark.connect_server import connect_server

NAME = "landing"
EVENTS, DAYS = 100_000, 10
SENSOR_INTERVAL = 5
PATIENCE_SECONDS = 240
STEPS = ("tick", "dequeue", "launch", "ingest", "repair")


def measure(bench: Bench) -> None:
    """Late files one after another, each when the run of the one before has ended."""
    for kind in ("warm", "cold"):
        events = Events(EVENTS, DAYS, bench.options.copies)
        task = replace(bench.fresh_task(OURS, events, f"work/{NAME}"), buckets=1)
        bench.say(f"{NAME}: {kind}")
        with Contestant(OURS, task) as ours:
            ours.call("prepare")
            ours.call("update")
        settings = deployment(task)
        with ExitStack() as stack:
            environment = _environment(task, settings)
            if kind == "warm":
                server = stack.enter_context(connect_server(settings, free_port()))
                environment[f"{ENV_PREFIX}SPARK_REMOTE"] = server.shared_session
            instance = stack.enter_context(_dagster(environment, settings, Path(task.logs) / f"dagster-{kind}.log"))
            landings = []
            # The first one waits for Dagster's own start, and on a warm Spark for its warming up.
            for number in range(bench.options.runs + 1):
                late = events.write_late(bench.data, 10, 1, number)
                landings.append(_land(instance, settings, partial(land, late, task, f"late-{number}.parquet")))
                bench.say("  " + ", ".join(f"{step} {seconds:.1f} s" for step, seconds in landings[-1].items()))
        kept = landings[1:]
        total = [sum(landing.values()) for landing in kept]
        steps = {step: round(median(landing[step] for landing in kept), 2) for step in STEPS}
        bench.figures.seconds(f"{NAME}: {kind} Spark", OURS, total, steps=steps)
        bench.forget(task)


def _land(instance: dg.DagsterInstance, settings: Settings, land_file: Callable[[], object]) -> dict[str, float]:
    """Let a file land and wait for the end of the run that it starts; seconds of each step of its way."""
    known = {run.run_id for run in instance.get_runs()}
    landed = time.time()
    land_file()

    def finished() -> list[dg.RunRecord]:
        ended = dg.RunsFilter(job_name=f"{STREAM}_ingest", statuses=ENDED)
        return [record for record in instance.get_run_records(ended) if record.dagster_run.run_id not in known]

    _wait_until(lambda: bool(finished()), "the late file's run ends")
    [record] = finished()
    assert record.dagster_run.is_success, f"the run {record.dagster_run.run_id} failed"
    at = _times(instance, record.dagster_run.run_id)
    newest = head(Catalog(settings).load_table(STREAM, tables.SESSIONS))
    assert committed_at(newest).timestamp() > landed, "the run did not get to the sessions"
    ends = [
        record.create_timestamp.timestamp(),
        *(at[name] for name in ("dequeued", "started", "ingested", "repaired")),
    ]
    return dict(zip(STEPS, (end - begin for begin, end in zip([landed, *ends], ends, strict=False)), strict=True))


def _times(instance: dg.DagsterInstance, run_id: str) -> dict[str, float]:
    """When the run left the queue, when its first step started, when that, the ingest, was done, and when the sessions
    were published."""
    at: dict[dg.DagsterEventType, list[float]] = defaultdict(list)
    for entry in instance.all_logs(run_id):
        if entry.dagster_event:
            at[entry.dagster_event.event_type].append(entry.timestamp)
    done = at[dg.DagsterEventType.STEP_SUCCESS]
    return {
        "dequeued": at[dg.DagsterEventType.PIPELINE_STARTING][0],
        "started": at[dg.DagsterEventType.STEP_START][0],
        "ingested": done[0],
        # Checks come after it; what they check can be read.
        "repaired": at[dg.DagsterEventType.ASSET_MATERIALIZATION][-1],
    }


def _environment(task: Task, settings: Settings) -> dict[str, str]:
    return {
        f"{ENV_PREFIX}HOME": str(settings.home),
        f"{ENV_PREFIX}STREAMS": str(Path(task.home) / f"{STREAM}.yaml"),
        f"{ENV_PREFIX}DRIVER_MEMORY": "2g",
        f"{ENV_PREFIX}SENSOR_INTERVAL": str(SENSOR_INTERVAL),
        "DAGSTER_HOME": str(settings.home / "dagster"),
    }


@contextmanager
def _dagster(environment: Mapping[str, str], settings: Settings, log: Path) -> Iterator[dg.DagsterInstance]:
    """`dagster dev` while the block runs, and its instance."""
    os.environ["DAGSTER_HOME"] = environment["DAGSTER_HOME"]
    with open_instance(settings) as instance:
        dagster = Path(sys.executable).with_name("dagster")
        command = [str(dagster), "dev", "--host", "127.0.0.1", "--port", str(free_port())]
        with _process(command, environment, log):
            _wait_until(lambda: bool(instance.all_instigator_state()), "Dagster's daemon runs the sensors")
            yield instance


@contextmanager
def _process(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[None]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=PROJECT,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"in {PATIENCE_SECONDS} seconds it never came true that {what}")
        time.sleep(0.2)
