"""What all tests share: one Spark session a process, and the real data where it is at hand."""

import gc
import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import hypothesis
import psutil  # type: ignore[import-untyped]
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dedup_platform.settings import AWS_JAR, ENV_PREFIX, JARS, POSTGRES_JAR, Settings
from dedup_platform.spark.connect_server import ConnectServer, connect_server
from dedup_platform.spark.jars import jars_conf
from dedup_platform.spark.session import spark_session
from dedup_platform.testing.servers import KafkaServer, PostgresServer, S3Server, free_port
from dedup_platform_tests.servers import new_name, running

PROJECT = Path(__file__).parent.parent
BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For the Java processes that tests start: in so little time none of them earns back what optimizing it costs."""
_IS_SHARED = pytest.StashKey[bool]()
"""Whether the Spark of this process is that of the fixture `spark`."""
FEW_ROWS = {"spark.sql.shuffle.partitions": "2"}
"""For Spark where there are few rows: each partition of a shuffle is a task."""
NO_DATA = "test data is absent: "
TEST_DATA = f"{ENV_PREFIX}TEST_DATA"


def pytest_configure() -> None:
    """Forget the deployment of whoever runs the tests: they make their own, in temporary folders.

    Their Java processes are all brief, too.
    """
    for name in list(os.environ):
        if (name.startswith(ENV_PREFIX) and name != TEST_DATA) or name == "DAGSTER_HOME":
            del os.environ[name]
    # xdist tells its workers how wide the terminal is; what commands print must not depend on it.
    os.environ.pop("COLUMNS", None)
    os.environ["JAVA_TOOL_OPTIONS"] = BRIEF_JAVA
    # A shell has what it starts in the background ignore Ctrl-C, and what that starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A machine may be busy: how long an example takes proves nothing.
    settings = hypothesis.settings
    settings.register_profile("patient", settings.get_profile(settings.get_current_profile_name()), deadline=None)
    settings.load_profile("patient")
    psutil.cpu_percent()  # what the summary asks is counted from here


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--thorough`: what CI has no time for. `--spark-remote`: where `spark` is."""
    parser.addoption("--thorough", action="store_true", help="run the longest tests in full (an hour more)")
    parser.addoption("--spark-remote", help="a Spark Connect server (sc://...) to use, in place of a local Spark")
    parser.addoption("--seeds", type=int, default=0, help="run the soak tests, each with so many seeds")
    parser.addoption("--events", type=int, default=1_000_000, help="events of each soak test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`soak_seed`: as many as `--seeds` says. `sinks_seed`: a fifth of them, since those take longer."""
    seeds = metafunc.config.getoption("--seeds")
    for name, count in (("soak_seed", seeds), ("sinks_seed", -(-seeds // 5))):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, range(count))


def pytest_collection_finish() -> None:
    """Look for garbage less often: what was imported stays, and most of what tests make is not in cycles."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Soak tests are asked for by `--seeds`: each seed takes four minutes."""
    return True if collection_path.name == "soak" and not config.getoption("--seeds") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `thorough` are run with `--thorough` only: what they prove is proved by others, too, or in part."""
    if not config.getoption("--thorough"):
        longest = [item for item in items if item.get_closest_marker("thorough")]
        config.hook.pytest_deselected(items=longest)
        items[:] = [item for item in items if item not in longest]


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the longest tests are to be run in full."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture(scope="session")
def soak_events(request: pytest.FixtureRequest) -> int:
    """How many events each soak test produces."""
    return int(request.config.getoption("--events"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A skip fails where CI=true: nothing may be missing there but the data, which is not the project's."""
    report = yield
    reason = str(report.longrepr)
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true" and NO_DATA not in reason:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which CI=true forbids: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Minutes by folder, so that whoever adds tests sees what they cost. Of all processes together.

    Processors that are idle for long could do with one more process of tests.
    """
    busy = psutil.cpu_percent()
    seconds, tests = dict[str, float](), Counter[str]()
    for report in (each for reports in terminalreporter.stats.values() for each in reports):
        if isinstance(report, pytest.TestReport):
            parts = Path(report.nodeid.partition("::")[0]).parts[1:]
            folder = parts[0] if len(parts) > 1 else "."
            seconds[folder] = seconds.get(folder, 0.0) + report.duration
            tests[folder] += report.when == "call"
    if not tests:
        return
    terminalreporter.section("minutes by folder")
    for folder, spent in sorted(seconds.items(), key=itemgetter(1), reverse=True):
        terminalreporter.write_line(f"{spent / 60:6.1f}  {tests[folder]:5d} tests  {folder}")
    terminalreporter.write_line(f"{sum(seconds.values()) / 60:6.1f}  {tests.total():5d} tests  in all processes")
    terminalreporter.write_line(f"{busy:6.0f} %  the processors were busy")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real event data: `$DEDUP_PLATFORM_TEST_DATA`, else `../shared/data` beside the project."""
    return _folder_of_data("data")


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of cases transcribed from other projects' tests, beside the folder of data."""
    return _folder_of_data("cases")


@pytest.fixture(scope="session")
def published_sessions(cases: Path) -> list[dict[str, Any]]:
    """Events and the sessions that other engines' tests and manuals publish for them."""
    return list(json.loads((cases / "session_cases.json").read_text(encoding="utf-8"))["cases"])


def _folder_of_data(name: str) -> Path:
    data = Path(os.environ.get(TEST_DATA) or PROJECT.parent / "shared" / "data")
    folder = data.parent / name if name != "data" else data
    if not folder.is_dir():
        pytest.skip(f"{NO_DATA}no folder {folder}")
    return folder


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Settings:
    """The deployment of `spark`, in a temporary folder. Its Spark has all jars, for tests of other catalogs."""
    remote, jars = request.config.getoption("--spark-remote"), jars_conf((*JARS, POSTGRES_JAR, AWS_JAR))
    home = tmp_path_factory.mktemp("home")
    return Settings(home=home, spark_master="local[2]", spark_remote=remote, spark_conf=jars | FEW_ROWS)


@pytest.fixture(scope="session")
def spark(settings: Settings, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The one Spark session of this process; its catalog `lake` is that of `settings`."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("there is no Java (JAVA_HOME is not set and java is not on the PATH)")
    session = spark_session(settings)
    request.config.stash[_IS_SHARED] = True
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _spark_is_the_shared_one(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that starts a Spark in this process by itself: tests after it would get one without their jars."""
    yield
    context = SparkContext._active_spark_context  # what is public would start one
    if context is not None and not request.config.stash.get(_IS_SHARED, False):
        context.stop()
        pytest.fail("this test started a Spark of its own: it should ask for the fixture `spark_for_commands`")


@pytest.fixture
def spark_for_commands(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that run in this process get a session of the shared Spark, whose catalog is theirs."""
    monkeypatch.setattr(SparkSession, "_instantiatedSession", spark.newSession())


@pytest.fixture(scope="session")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A warm Spark Connect server for the processes that the tests of this process start."""
    home = tmp_path_factory.mktemp("server")
    settings = Settings(home=home, spark_master="local[2]", driver_memory="1g", spark_conf=FEW_ROWS)
    with connect_server(settings, free_port()) as server:
        yield server


def for_other_homes(server: ConnectServer) -> str:
    """The address of a server's shared session, for clients that have another home than the server. Secret."""
    return f"{server.shared_session};token={server.token}"


@pytest.fixture(scope="module", params=["SQLite", "Postgres"])
def control_database(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where the ledgers of a module's tests are: they run once with each."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "Postgres":
            server: PostgresServer = request.getfixturevalue("postgres_server")
            patch.setenv(f"{ENV_PREFIX}CONTROL_URI", server.create_database(new_name()))
        yield


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that the tests of this process share; each makes topics of its own, and none kills it."""
    with running(KafkaServer, tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server that the tests of this process share; each makes buckets of its own, and none kills it."""
    with running(S3Server, tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A Postgres that the tests of this process share; each makes databases of its own, and none kills it."""
    with running(PostgresServer, tmp_path_factory.mktemp("postgres")) as server:
        yield server
