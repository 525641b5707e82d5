"""The platform on a Spark that is not its own, by settings alone: a Spark Connect server, and a standalone cluster."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.connect_server import ConnectServer, connect_server
from dedup_platform.demo.clicks import generate
from dedup_platform.demo.files import stream_file
from dedup_platform.lakehouse import Lakehouse
from dedup_platform.lakehouse.lakehouse import STAGING
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import lay_out, make_stream, record, utc, write_batch
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.end_to_end.conftest import BRIEF, free_port, wait_until
from dedup_platform_tests.end_to_end.processes import PATIENCE, CommandLine, standalone_cluster

EVENTS = "4000"
Rows = dict[str, list[str]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """The one Spark Connect server of these tests. Its own settings name another home than its clients do."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in BRIEF.items():
            environment.setenv(name, value)
        settings = Settings(home=tmp_path_factory.mktemp("server"), spark_master="local[2]", driver_memory="1g")
        with connect_server(settings, free_port()) as started:
            yield started


def at_server(server: ConnectServer, home: Path) -> CommandLine:
    """The command line over the server. Where there is no Java it cannot start a Spark of its own."""
    return CommandLine(
        {"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_SPARK_REMOTE": server.remote, "JAVA_HOME": "/nowhere"}
    )


@pytest.fixture(scope="module")
def local_rows(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rows]:
    """The rows of a demo on a local Spark, given its first day: it makes up the week before today."""

    @cache
    def rehearsed(first_day: str) -> Rows:
        home = tmp_path_factory.mktemp("local")
        CommandLine(BRIEF | {"DEDUP_PLATFORM_HOME": str(home)})("demo", "--events", EVENTS)
        assert str(demo_of(home).partitions.start) == first_day
        return rows_of(home)

    return rehearsed


def test_the_demo_over_spark_connect_has_the_rows_of_a_local_one(
    server: ConnectServer, local_rows: Callable[[str], Rows], tmp_path: Path
) -> None:
    line = at_server(server, tmp_path)
    printed = line("demo", "--events", EVENTS)
    assert "dedup_platform.dev" in printed
    stream = demo_of(tmp_path)
    demo = CommandLine(
        {
            **line.environment,
            "DEDUP_PLATFORM_HOME": str(tmp_path / "demo"),
            "DEDUP_PLATFORM_STREAMS": str(stream.origin),
        }
    )
    assert json.loads(demo("verify", "--json")) == {stream.name: []}
    demo("export", stream.name, "sessions", "--to", str(tmp_path / "sessions.csv"))
    rows = rows_of(tmp_path)
    assert len((tmp_path / "sessions.csv").read_text().splitlines()) == len(rows[tables.SESSIONS]) + 1
    assert rows == local_rows(str(stream.partitions.start))


def test_the_demo_on_a_standalone_cluster_has_the_rows_of_a_local_one(
    local_rows: Callable[[str], Rows], tmp_path: Path
) -> None:
    executors = {"spark.executor.memory": "1g", "spark.executor.cores": "1"}
    (tmp_path / "cluster").mkdir()
    with standalone_cluster(tmp_path / "cluster", workers=2) as master:
        place = {"DEDUP_PLATFORM_SPARK_MASTER": master, "DEDUP_PLATFORM_SPARK_CONF": json.dumps(executors)}
        CommandLine(BRIEF | place | {"DEDUP_PLATFORM_HOME": str(tmp_path / "home")})("demo", "--events", EVENTS)
    rows = rows_of(tmp_path / "home")
    assert rows == local_rows(str(demo_of(tmp_path / "home").partitions.start))
    for worker in ("0", "1"):
        assert list((tmp_path / "cluster" / worker).glob("app-*/*/stderr")), f"worker {worker} had no executor"


def test_stages_sources_and_runs_are_the_same_over_spark_connect(server: ConnectServer) -> None:
    """In a process of its own: PySpark is either with a server or without one."""
    chosen = [
        "stages/test_stage_boundaries.py",
        "lakehouse/test_conditions.py",
        "sources/test_files.py",
        "orchestration/test_assets.py",
    ]
    folder = PROJECT / "dedup_platform_tests"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--spark-remote", server.remote]
        + ["-k", "not share_tasks"]  # Spark Connect does not tell how many tasks a plan has
        + [str(folder / name) for name in chosen],
        cwd=PROJECT,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_runs_of_two_streams_share_the_server(server: ConnectServer, tmp_path: Path) -> None:
    streams = [few_days(tmp_path, name) for name in ("first", "second")]
    lines = [
        CommandLine({**at_server(server, tmp_path / "home").environment, "DEDUP_PLATFORM_STREAMS": str(stream.origin)})
        for stream in streams
    ]
    for process in [line.start("run") for line in lines]:
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    for line, stream in zip(lines, streams, strict=True):
        assert json.loads(line("verify", "--json")) == {stream.name: []}


def test_a_run_without_its_server_fails_clearly_and_the_next_one_goes_on(server: ConnectServer, tmp_path: Path) -> None:
    stream = load_stream(stream_file(tmp_path, generate(tmp_path, events=4_000)))
    home = tmp_path / "home"
    line = CommandLine({**at_server(server, home).environment, "DEDUP_PLATFORM_STREAMS": str(stream.origin)})
    run = line.start("run")
    wait_until(lambda: is_writing(home, stream), "the run writes records", PATIENCE)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 5
    assert f"the Spark Connect server {server.remote} went away in the middle of the work" in said
    assert f"the Spark Connect server {server.remote} does not answer" in line("run", code=5)
    server.start()
    line("run")
    assert json.loads(line("verify", "--json")) == {stream.name: []}


def few_days(folder: Path, name: str) -> Stream:
    stream = make_stream(folder, name, start="2024-03-01")
    times = [utc(f"2024-03-0{day}T10:0{minute}") for day in (1, 2, 3) for minute in range(3)]
    write_batch(stream, lay_out([record("a", f"{time}", time, page="/", quantity=1) for time in times], "first.json"))
    return stream


def is_writing(home: Path, stream: Stream) -> bool:
    """Whether rows are being written that are not published yet."""
    lake = lake_of(home, stream)
    found = [lake.catalog.load(stream.name, table) for table in tables.ALL]
    return any(branch.startswith(STAGING) for table in found if table for branch in table.refs())


def demo_of(home: Path) -> Stream:
    return load_stream(home / "demo" / "clicks.yaml")


def rows_of(home: Path) -> Rows:
    """Table of a demo -> its rows as text and in order, read without Spark."""
    stream = demo_of(home)
    lake = lake_of(home / "demo", stream)
    rows = {}
    for name in tables.ALL:
        table = lake.catalog.load_table(stream.name, name)
        rows[name] = sorted(map(repr, table.scan(snapshot_id=lake.current(stream, name)).to_arrow().to_pylist()))
    return rows


def lake_of(home: Path, stream: Stream) -> Lakehouse:
    """The tables in a home, to be looked at without Spark."""

    def no_spark() -> SparkSession:
        raise AssertionError("PyIceberg alone can read tables")

    return Platform.open(Settings(home=home), {stream.name: stream}, no_spark).lake
