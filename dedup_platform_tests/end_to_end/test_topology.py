"""A day of the native topology: messages in, the sensors take them in and repair what came late, and all ends."""

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import yaml
from confluent_kafka import Producer

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.settings import load_settings
from dedup_platform.spark.connect import answers
from dedup_platform.stream import load_streams
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import free_port
from dedup_platform.testing.topology import Topology, natively
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.end_to_end.conftest import BRIEF, Webserver, wait_until

DOCKER = PROJECT / "docker"
COMMAND = [sys.executable, "-m", "dedup_platform.testing.topology"]
PATIENCE = 600
MINUTE = timedelta(minutes=1)
MISSING = "is not installed"


@contextmanager
def native(folder: Path) -> Iterator[tuple[psutil.Process, Topology]]:
    """The topology on ports of its own, once it says that all is well. Skips where a part of it is not installed."""
    log = folder / "topology.log"
    options = ["--environment", str(folder / "environment"), "--folder", str(folder)]
    with log.open("wb") as output:
        process = psutil.Popen([*COMMAND, *options], env=os.environ | BRIEF, stdout=output, stderr=output)
    try:
        wait_until(lambda: "Ctrl-C ends all" in log.read_text() or process.poll() is not None, "it is up", PATIENCE)
        if MISSING in log.read_text():
            pytest.skip(log.read_text())
        assert process.poll() is None, log.read_text()
        yield process, Topology(natively(folder / "environment", folder))
    finally:
        if process.poll() is None:
            end(process)
    assert process.returncode == 130, log.read_text()


def end(process: psutil.Popen) -> None:
    """End it as a service manager does; fails if anything of it outlives it."""
    started = process.children(recursive=True)
    process.send_signal(signal.SIGTERM)
    _, alive = psutil.wait_procs([process, *started], timeout=120)
    for each in alive:
        each.kill()
    assert not alive, f"{alive} outlived the process that started them"


def own_environment(folder: Path) -> None:
    """The files of docker/ with ports that are free now, and repairs that do not wait for more of the late."""
    text = (DOCKER / "environment").read_text()
    text = re.sub(r"(?m)^(\w+_PORT)=.*$", lambda found: f"{found[1]}={free_port()}", text)
    (folder / "environment").write_text(text.replace("DRIVER_MEMORY=2g", "DRIVER_MEMORY=1g"))
    shutil.copy(DOCKER / "dagster.yaml", folder)
    stream = yaml.safe_load((DOCKER / "streams" / "clicks.yaml").read_text())
    stream["late"]["settle"] = "1s"
    (folder / "streams").mkdir()
    (folder / "streams" / "clicks.yaml").write_text(yaml.safe_dump(stream))


def click(user: int, counter: int, at: datetime) -> dict[str, Any]:
    return {"user": f"u{user}", "device": f"d{user}", "counter": counter, "at": at.timestamp() * 1000, "url": "/"}


def produce(topology: Topology, *clicks: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": topology.filled("127.0.0.1:${KAFKA_PORT}"), "acks": "all"})
    for each in clicks:
        producer.produce("clicks", json.dumps(each), key=each["user"])
    assert producer.flush(PATIENCE) == 0


def opened(topology: Topology, patch: pytest.MonkeyPatch) -> Platform:
    """The same deployment, looked at from this process."""
    for name, value in topology.environment("daemon").items():
        patch.setenv(name, value)
    settings = load_settings()
    assert settings.streams
    return Platform(settings, load_streams(settings.streams), lambda: pytest.fail("only metadata is asked"))


def rows(platform: Platform) -> dict[str, int]:
    return {table: platform.rows("clicks", table) for table in tables.ALL}


@pytest.mark.thorough
def test_a_day_of_the_native_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_environment(tmp_path)
    with native(tmp_path) as (process, topology):
        server = Webserver(int(topology.variables["DAGSTER_PORT"]), process)
        platform = opened(topology, monkeypatch)
        noon = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(hours=36)
        first = [click(user, counter, noon + counter * MINUTE) for user in range(10) for counter in range(5)]
        produce(topology, *first, *first[:7])
        wait_until(lambda: has_succeeded(server, "clicks_ingest"), "the messages are taken in", PATIENCE)
        wait_until(lambda: platform.rows("clicks", tables.SESSIONS) == 10, "sessions are there", PATIENCE)
        assert rows(platform) == {
            tables.RAW_EVENTS: 57,
            tables.DUPLICATE_EVENTS: 7,
            tables.DEDUPLICATED_EVENTS: 50,
            tables.SESSION_FRAGMENTS: 10,
            tables.SESSIONS: 10,
        }
        kill_spark(process, int(topology.variables["SPARK_PORT"]))
        produce(topology, click(3, 99, noon + timedelta(hours=2)))
        wait_until(lambda: platform.rows("clicks", tables.SESSIONS) == 11, "what came late is repaired", PATIENCE)
        assert wrong_rows(platform, "clicks") == []


def has_succeeded(server: Webserver, job: str) -> bool:
    return any(run["jobName"] == job and run["status"] == "SUCCESS" for run in server.runs())


def kill_spark(process: psutil.Process, port: int) -> None:
    """Another one takes its place."""
    [killed] = (each for each in process.children() if any("SparkConnectServer" in word for word in each.cmdline()))
    killed.kill()
    wait_until(lambda: not killed.is_running(), "the topology has seen that Spark ended", PATIENCE)
    wait_until(lambda: answers("127.0.0.1", port), "another Spark answers", PATIENCE)
