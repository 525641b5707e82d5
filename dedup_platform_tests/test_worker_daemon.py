"""Workers find imported what they need and can use all of it, in every one of many forks; without that, Spark's own."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Producer
from pyspark.serializers import UTF8Deserializer, read_int, write_with_length
from pyspark.sql import SparkSession

from dedup_platform.spark.workers import on_workers
from dedup_platform.testing.servers import KafkaServer
from dedup_platform.worker_daemon import threads_in_the_way, without_archives
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.working_daemon import ROWS

OURS, WORKING = "dedup_platform.worker_daemon", "dedup_platform_tests.working_daemon"
TAKEN = {
    "confluent_kafka",
    "dedup_platform.ingest.append",
    "dedup_platform.replay.rewrite",
    "dedup_platform.rules.sessions",
    "fastavro",
    "google.protobuf",
    "pandas",
    "polars",
    "pyarrow.parquet",
    "pyiceberg_core.transform",
}
PATIENCE = 120
"""Seconds after which a worker hangs, however busy the machine is."""
SECRET = "s"
AT_ONCE = 4


class Daemon:
    """One that was started as Spark starts it, and is spoken to as Spark does."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        self.process = process
        self.port = read_int(process.stdout)

    @contextmanager
    def worker(self) -> Iterator[tuple[int, socket.socket]]:
        """A worker that waits for what to do, by its id and the socket to it; it ends with the block."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
            with connection.makefile("rb") as answers, connection.makefile("wb") as said:
                pid = read_int(answers)
                write_with_length(SECRET.encode(), said)
                said.flush()
                assert UTF8Deserializer().loads(answers) == "ok"
            yield pid, connection

    def work(self, orders: list[Any]) -> list[dict[str, Any]]:
        """What workers make of orders, each in a fork of its own, all at the same time."""
        with ExitStack() as open_workers:
            files = [open_workers.enter_context(self.worker())[1].makefile("rwb") for _ in orders]
            for file, order in zip(files, orders, strict=True):
                write_with_length(json.dumps(order).encode(), file)
                file.flush()
            return [json.loads(UTF8Deserializer().loads(file)) for file in files]


@contextmanager
def daemon(*words: str, **environment: str) -> Iterator[Daemon]:
    """A daemon while the block runs; it ends, as Spark's does, when nobody can write to it any more."""
    as_by_polars = {"_RJEM_MALLOC_CONF": os.environ.get("_RJEM_MALLOC_CONF", "dirty_decay_ms:500")}
    told = {"PYTHON_WORKER_FACTORY_SECRET": SECRET, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "4"}
    told |= as_by_polars | environment
    command = [sys.executable, "-m", *words[:1], "pyspark.worker", *words[1:]]
    with subprocess.Popen(command, env=os.environ | told, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            yield Daemon(process)
            assert process.stdin
            process.stdin.close()
            process.wait(PATIENCE)
        finally:
            process.kill()
            with suppress(ProcessLookupError):  # its workers, if any hangs: the daemon leads their group
                os.killpg(process.pid, signal.SIGKILL)


def test_many_forks_can_use_polars_arrow_and_kafka(kafka_server: KafkaServer, thorough: bool) -> None:
    topic, count = new_name(), 50
    kafka_server.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": kafka_server.brokers})
    for number in range(count):
        producer.produce(topic, f"{number}")
    assert producer.flush(PATIENCE) == 0
    settings = {"bootstrap.servers": kafka_server.brokers, "group.id": topic}
    orders = [{"topic": topic, "count": count, "settings": settings}] * AT_ONCE
    with daemon(WORKING) as working:
        for _ in range(100 if thorough else 5):
            for done in working.work(orders):
                assert (done["rows"], done["messages"]) == (ROWS, count)


def test_workers_have_all_that_tasks_take_and_nothing_that_must_not_be_forked() -> None:
    with daemon(WORKING) as working:
        (done,) = working.work([None])
        threads = psutil.Process(working.process.pid).num_threads()
    assert set(done["modules"]) >= TAKEN
    assert not set(done["modules"]) & {"grpc", "dagster", "sqlalchemy", "boto3"}
    assert threads == 2, "another thread than the one of Polars that is known"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"_RJEM_MALLOC_CONF": "background_thread:true"}, "there are other threads, jemalloc_bg_thd S"),
        ({"PYTHONPATH": "{broken}"}, "no Kafka here"),
    ],
)
def test_where_it_cannot_serve_sparks_own_daemon_does(tmp_path: Path, environment: Mapping[str, str], why: str) -> None:
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError('no Kafka here')")
    broken = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with daemon(OURS, **{name: value.format(broken=broken) for name, value in environment.items()}) as started:
        with started.worker() as (pid, _):
            assert "pyspark.daemon" in psutil.Process(pid).cmdline()
        assert started.process.stderr
        assert why in started.process.stderr.readline().decode()


def test_it_ends_when_there_was_no_worker_for_long_and_not_before() -> None:
    with daemon(WORKING, "0.5") as working:
        with working.worker():
            time.sleep(3)
            assert working.process.poll() is None
        working.process.wait(PATIENCE)
        with pytest.raises(ConnectionRefusedError), working.worker():
            pass


def test_threads_of_others_must_not_be_forked() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert threads_in_the_way()
    finally:
        done.set()
        thread.join()


def test_archives_of_an_installed_spark_are_left_out(tmp_path: Path) -> None:
    installed, unpacked = tmp_path / "site-packages", tmp_path / "opt"
    archives = [folder / "pyspark" / "python" / "lib" / "pyspark.zip" for folder in (installed, unpacked)]
    for archive in archives:
        archive.parent.mkdir(parents=True)
        archive.touch()
    (installed / "pyspark" / "__init__.py").touch()
    path = ["", *map(str, archives), str(tmp_path / "mine.zip"), str(installed), str(unpacked)]
    assert without_archives(path) == ["", *path[2:]]


def asked(spark: SparkSession, question: Callable[[], Any]) -> Any:
    """What a worker of Spark answers."""
    (answer,) = on_workers(spark, [b""], lambda _: json.dumps(question()).encode())
    return json.loads(answer)


def test_sparks_workers_come_from_it(spark: SparkSession) -> None:
    def told() -> Any:
        archives = [each for each in sys.path if "pyspark" in each]
        return psutil.Process().parent().cmdline(), archives, list(sys.modules)

    command, archives, modules = asked(spark, told)
    assert OURS in command
    assert archives == []
    assert set(modules) >= TAKEN


@pytest.mark.thorough
def test_spark_starts_another_when_it_has_ended(spark: SparkSession) -> None:
    def told() -> Any:
        return os.getppid()

    daemon = psutil.Process(asked(spark, told))
    _, idle = psutil.wait_procs(daemon.children(), PATIENCE)
    assert idle == [], "Spark ends workers after a minute, which is sooner than the daemon ends"
    daemon.kill()
    daemon.wait(PATIENCE)
    assert asked(spark, told) != daemon.pid
