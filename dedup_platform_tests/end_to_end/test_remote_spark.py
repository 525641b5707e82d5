"""The platform on a Spark that is not its own, by settings alone: a Spark Connect server, and a standalone cluster."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE

import psutil  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.demo.clicks import generate
from dedup_platform.demo.files import stream_file
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark.connect_server import ConnectServer, connect_server
from dedup_platform.spark.connect_token import FILE, VARIABLE
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.comparison import published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import free_port
from dedup_platform_tests.conftest import FEW_ROWS, for_other_homes
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE, wait_until
from dedup_platform_tests.end_to_end.processes import CommandLine, run_tests, said_by, standalone_cluster

EVENTS = "1000"
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def server_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(server_home: Path) -> Iterator[ConnectServer]:
    """The one Spark Connect server of these tests. Its own settings name another home than its clients do."""
    settings = Settings(home=server_home, spark_master="local[2]", driver_memory="1g", spark_conf=FEW_ROWS)
    with connect_server(settings, free_port()) as started:
        yield started


def at_server(server: ConnectServer, home: Path, stream: Stream | None = None) -> CommandLine:
    """The command line over the server. Where there is no Java it cannot start a Spark of its own."""
    place = {"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_SPARK_REMOTE": server.remote, VARIABLE: server.token}
    place |= {"JAVA_HOME": "/nowhere"}
    return CommandLine(place | ({"DEDUP_PLATFORM_STREAMS": str(stream.origin)} if stream else {}))


@pytest.fixture(scope="module")
def local_rows(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Callable[[Stream], Rows]:
    """The rows that a local Spark makes of a demo's files, the late one among them from the start."""
    known: dict[datetime, Rows] = {}

    def rows(stream: Stream) -> Rows:
        # The demo makes up the week before today, and midnight may have come between two of them.
        start = stream.partitions.start
        if start not in known:
            home = tmp_path_factory.mktemp("local")
            platform = temporary_platform(home, stream, spark, lambda: datetime.now(UTC))
            platform.ingest(stream.name)
            platform.repair(stream.name)
            known[start] = rows_of(home, stream)
        return known[start]

    return rows


@pytest.mark.thorough
def test_the_demo_over_spark_connect_has_the_rows_of_a_local_spark(
    server: ConnectServer, local_rows: Callable[[Stream], Rows], tmp_path: Path
) -> None:
    assert "dedup_platform.dev" in at_server(server, tmp_path)("demo", "--events", EVENTS)
    stream = demo_of(tmp_path)
    assert rows_of(tmp_path / "demo", stream) == local_rows(stream)
    assert json.loads(at_server(server, tmp_path / "demo", stream)("verify", "--json")) == {stream.name: []}


def test_a_run_on_a_standalone_cluster_has_the_rows_of_a_local_spark(
    local_rows: Callable[[Stream], Rows], tmp_path: Path
) -> None:
    stream = few_days(tmp_path, "few")
    executors = FEW_ROWS | {"spark.executor.memory": "1g", "spark.executor.cores": "1"}
    with standalone_cluster(tmp_path, workers=2) as master:
        place = {"DEDUP_PLATFORM_SPARK_MASTER": master, "DEDUP_PLATFORM_SPARK_CONF": json.dumps(executors)}
        home = {"DEDUP_PLATFORM_HOME": str(tmp_path / "home"), "DEDUP_PLATFORM_STREAMS": str(stream.origin)}
        line = CommandLine(BRIEF | place | home)
        line("run")
        assert json.loads(line("verify", "--json")) == {stream.name: []}
    assert rows_of(tmp_path / "home", stream) == local_rows(stream)
    for worker in ("0", "1"):
        assert list((tmp_path / worker).glob("app-*/*/stderr")), f"worker {worker} had no executor"


@pytest.mark.thorough
def test_stages_and_sources_are_the_same_over_spark_connect(server: ConnectServer) -> None:
    """In a process of its own: PySpark is either with a server or without one."""
    files = "sources/test_files.py::test_"
    chosen = [
        "verification/test_stage_boundaries.py",
        "lake/test_conditions.py",
        *(f"{files}{name}" for name in ("rows_have_the_columns_of_raw_events", "no_bad_file_harms_another")),
        f"{files}a_file_that_is_not_as_it_was_listed_fails_the_job_by_name",
    ]
    run_tests(chosen, "--spark-remote", server.remote, environment={VARIABLE: server.token})


@pytest.mark.thorough
def test_runs_of_two_streams_share_the_server(server: ConnectServer, tmp_path: Path) -> None:
    streams = [few_days(tmp_path, name) for name in ("first", "second")]
    lines = [at_server(server, tmp_path / "home", stream) for stream in streams]
    with ExitStack() as started:
        for process in [started.enter_context(line.started("run")) for line in lines]:
            _, said = said_by(process)
            assert process.returncode == 0, said
    first, second = (rows_of(tmp_path / "home", stream) for stream in streams)
    assert first == second
    assert [len(first[table]) for table in (tables.RAW_EVENTS, tables.SESSIONS)] == [9, 3]


def opens_a_session(remote: str, home: Path, token: str = "") -> str:
    """What a client says of its work, or of why it has none."""
    place = {"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_SPARK_REMOTE": remote, VARIABLE: token}
    run = [sys.executable, "-c", COUNTS_TO_THREE]
    return subprocess.run(run, env=os.environ | place, stdout=PIPE, text=True, timeout=PATIENCE, check=True).stdout


def test_only_whoever_knows_the_token_is_served(server: ConnectServer, server_home: Path, tmp_path: Path) -> None:
    by_number = server.remote.replace("localhost", "127.0.0.1")
    assert (server_home / FILE).read_text() == server.token
    assert opens_a_session(server.remote, server_home) == "3\n"
    assert opens_a_session(by_number, server_home) == "3\n"
    assert opens_a_session(by_number, tmp_path, server.token) == "3\n"
    assert opens_a_session(f"{by_number}/;authorization=Bearer%20{server.token}", tmp_path) == "3\n"
    for stranger in (opens_a_session(server.remote, tmp_path), opens_a_session(server.remote, server_home, "wrong")):
        assert stranger.startswith(f"the Spark Connect server {server.remote} does not know us: set {VARIABLE} ")
        assert "wrong" not in stranger


@pytest.mark.thorough
def test_runs_that_share_a_session_share_its_workers(server: ConnectServer, tmp_path: Path) -> None:
    def worker(remote: str) -> int:
        place = {"DEDUP_PLATFORM_HOME": str(tmp_path), "DEDUP_PLATFORM_SPARK_REMOTE": remote, VARIABLE: server.token}
        run = [sys.executable, "-c", ASKS_FOR_ITS_WORKER]
        return int(subprocess.run(run, env=os.environ | place, stdout=PIPE, timeout=PATIENCE, check=True).stdout)

    first = worker(server.shared_session)
    assert "dedup_platform.worker_daemon" in psutil.Process(first).parent().cmdline()
    assert worker(server.shared_session) == first
    assert worker(server.remote) != first


@pytest.mark.thorough
def test_workers_that_begin_after_the_folder_of_their_session_was_removed_can_work(
    server: ConnectServer, tmp_path: Path
) -> None:
    """As Spark removes it once a session was idle for half an hour."""

    def worker() -> tuple[int, Path]:
        place = {"DEDUP_PLATFORM_HOME": str(tmp_path), "DEDUP_PLATFORM_SPARK_REMOTE": for_other_homes(server)}
        run = [sys.executable, "-c", IMPORTS_WHAT_LOOKS_AROUND]
        told = subprocess.run(run, env=os.environ | place, stdout=PIPE, text=True, timeout=PATIENCE, check=True).stdout
        pid, folder = told.split(maxsplit=1)
        return int(pid), Path(folder.strip())

    pid, folder = worker()
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)
    assert worker()[0] != pid


@pytest.mark.thorough
def test_a_run_without_its_server_fails_clearly_and_the_next_one_goes_on(server: ConnectServer, tmp_path: Path) -> None:
    stream = load_stream(stream_file(tmp_path, generate(tmp_path, events=4_000)))
    home = tmp_path / "home"
    line = at_server(server, home, stream)
    with line.started("run") as run:
        wait_until(lambda: is_writing(home), "the run writes records", PATIENCE)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        _, said = said_by(run)
    assert run.returncode == 5
    assert f"the Spark Connect server {server.remote} went away in the middle of the work" in said
    assert f"the Spark Connect server {server.remote} does not answer" in line("run", code=5)
    server.start()
    line("run")
    assert wrong_rows(opened(home, stream), stream.name) == []


IMPORTS_WHAT_LOOKS_AROUND = """
import os
from pyiceberg import manifest
from dedup_platform.settings import load_settings
from dedup_platform.spark.session import spark_session
from dedup_platform.spark.workers import on_workers
told = lambda task: f"{os.getpid()} {os.getcwd()}".encode() if manifest.DataFile else b""
print(on_workers(spark_session(load_settings()), [b""], told)[0].decode())
"""
COUNTS_TO_THREE = """
from dedup_platform.errors import SparkServerError
from dedup_platform.settings import load_settings
from dedup_platform.spark.session import spark_session
try:
    print(spark_session(load_settings()).range(3).count())
except SparkServerError as error:
    print(error)
"""
ASKS_FOR_ITS_WORKER = """
import os
from dedup_platform.settings import load_settings
from dedup_platform.spark.session import spark_session
from dedup_platform.spark.workers import on_workers
print(on_workers(spark_session(load_settings()), [b""], lambda task: str(os.getpid()).encode())[0].decode())
"""


def few_days(folder: Path, name: str) -> Stream:
    stream = make_stream(folder, name, start="2024-03-01")
    times = [utc(f"2024-03-0{day}T10:0{minute}") for day in (1, 2, 3) for minute in range(3)]
    write_batch(stream, lay_out([record("a", f"{time}", time, page="/", quantity=1) for time in times], "first.json"))
    return stream


def is_writing(home: Path) -> bool:
    """Whether records are being written; they are not published yet, and nothing is built from them."""
    return any((home / "warehouse").glob(f"*/{tables.RAW_EVENTS}/data/**/*.parquet"))


def demo_of(home: Path) -> Stream:
    return load_stream(home / "demo" / "clicks.yaml")


def rows_of(home: Path, stream: Stream) -> Rows:
    """Table -> its rows as text and in order, read without Spark."""
    found = published_rows(opened(home, stream), stream.name)
    return {table: sorted(map(repr, rows)) for table, rows in found.items()}


def opened(home: Path, stream: Stream) -> Platform:
    """The tables in a home, to be looked at without Spark."""

    def no_spark() -> SparkSession:
        raise AssertionError("PyIceberg alone can read tables")

    return Platform(Settings(home=home), {stream.name: stream}, no_spark)
