"""How a Spark Connect server is set up, and what is said where there is none; no Spark is started here."""

import os
import socket
import stat
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.errors import SettingsError, SparkServerError
from dedup_platform.settings import Settings
from dedup_platform.spark import connect_server
from dedup_platform.spark.connect import opened
from dedup_platform.spark.connect_token import FILE, VARIABLE, with_token
from dedup_platform.spark.session import spark_conf


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture
def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def never() -> SparkSession:
    raise AssertionError("no session must be opened")


def test_its_properties_are_those_of_a_run_and_nobody_else_reads_them(tmp_path: Path, free_port: int) -> None:
    settings = Settings(home=tmp_path / "a b", driver_memory="3g", spark_conf={"spark.x": " C:\\x\nsecret"})
    settings.home.mkdir()
    (settings.home / "connect-server.conf").touch(mode=0o644)
    environment = connect_server.prepare(settings, free_port)
    *_, file = connect_server.command(settings)
    lines = Path(file).read_text().splitlines()
    assert {
        "spark.driver.memory=3g",
        "spark.master=local[*]",
        "spark.python.daemon.module=dedup_platform.worker_daemon",
        "spark.connect.grpc.binding.address=127.0.0.1",
        f"spark.connect.grpc.binding.port={free_port}",
        f"spark.sql.catalog.lake.warehouse={tmp_path}/a b/warehouse",
        "spark.x=\\ C:\\\\x\\nsecret",
    } <= set(lines)
    assert stat.S_IMODE(Path(file).stat().st_mode) == 0o600
    assert "secret" not in " ".join(connect_server.command(settings))
    assert Path(environment["SPARK_HOME"], "bin", "spark-submit").exists()


def test_it_listens_elsewhere_only_where_it_is_told_to(tmp_path: Path, free_port: int) -> None:
    settings = Settings(home=tmp_path, connect_address=IPv4Address("0.0.0.0"))
    connect_server.prepare(settings, free_port)
    *_, file = connect_server.command(settings)
    assert "spark.connect.grpc.binding.address=0.0.0.0\n" in Path(file).read_text()


@pytest.mark.parametrize("keeps", [True, False])
def test_it_keeps_sessions_that_nobody_uses_only_where_it_is_told_to(
    tmp_path: Path, free_port: int, keeps: bool
) -> None:
    settings = Settings(home=tmp_path)
    connect_server.prepare(settings, free_port, keeps_sessions=keeps)
    *_, file = connect_server.command(settings)
    lines = Path(file).read_text().splitlines()
    assert ("spark.connect.session.manager.defaultSessionTimeout=-1" in lines) is keeps


def test_a_port_that_is_taken_is_refused_with_the_way_out(tmp_path: Path, taken_port: int) -> None:
    with pytest.raises(SettingsError, match=f"DEDUP_PLATFORM_SPARK_REMOTE=sc://localhost:{taken_port} uses it"):
        connect_server.prepare(Settings(home=tmp_path), taken_port)


def test_no_server_is_started_where_the_settings_name_one(tmp_path: Path, free_port: int) -> None:
    with pytest.raises(SettingsError, match=r"names a server already, sc://there$"):
        connect_server.prepare(Settings(home=tmp_path, spark_remote="sc://there/;token=secret"), free_port)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_that_is_not_there_is_named_at_once(tmp_path: Path, free_port: int, host: str) -> None:
    remote = f"sc://{host}:{free_port}/;user_id=me;token=secret"
    with pytest.raises(SparkServerError, match=rf"the Spark Connect server sc://{host}:{free_port} does not answer"):
        opened(Settings(home=tmp_path, spark_remote=remote), never)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new one, and nobody named a token in the environment."""
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "home"


def token_asked_for(settings: Settings, port: int) -> str | None:
    """What the server is told to ask for by its file of properties."""
    connect_server.prepare(settings, port)
    *_, file = connect_server.command(settings)
    named = [
        line for line in Path(file).read_text().splitlines() if line.startswith("spark.connect.authenticate.token=")
    ]
    return named[0].partition("=")[2] if named else None


def test_it_asks_for_the_token_of_its_home_which_nobody_else_reads(home: Path, free_port: int) -> None:
    settings = Settings(home=home)
    token = token_asked_for(settings, free_port)
    assert token
    assert len(token) > 40
    assert (home / FILE).read_text() == token
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert token not in " ".join(connect_server.command(settings))
    assert [file.name for file in home.iterdir() if FILE in file.name] == [FILE]
    (home / FILE).chmod(0o644)
    assert token_asked_for(settings, free_port) == token
    assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600


def test_tokens_of_two_homes_differ(home: Path, tmp_path: Path, free_port: int) -> None:
    one, other = (token_asked_for(Settings(home=each), free_port) for each in (home, tmp_path / "other"))
    assert one != other


def test_a_token_that_the_operator_named_goes_before(
    home: Path, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Settings(home=home, spark_conf={"spark.connect.authenticate.token": "named"})
    assert token_asked_for(named, free_port) == "named"
    assert token_asked_for(Settings(home=home), free_port) not in {None, "named"}
    monkeypatch.setenv(VARIABLE, "theirs")
    assert token_asked_for(Settings(home=home), free_port) is None
    assert connect_server.prepare(Settings(home=home), free_port)[VARIABLE] == "theirs"


def test_a_file_without_a_token_is_named(home: Path, free_port: int) -> None:
    home.mkdir()
    (home / FILE).touch()
    with pytest.raises(SettingsError, match=rf"{home}/{FILE}: holds no token"):
        connect_server.prepare(Settings(home=home), free_port)


@pytest.mark.parametrize(
    ("remote", "used", "sent"),
    [
        ("sc://localhost:1", "sc://localhost:1", True),
        ("sc://127.0.0.1:1/;user_id=me", "sc://localhost:1/;user_id=me", True),
        ("sc://[::1]:1", "sc://localhost:1", True),
        ("sc://127.0.0.1", "sc://localhost", True),
        ("sc://there:1", "sc://there:1", False),
        ("sc://10.0.0.7:1", "sc://10.0.0.7:1", False),
        ("sc://localhost.there:1", "sc://localhost.there:1", False),
        ("sc://127.0.0.1:1/;use_ssl=true", "sc://127.0.0.1:1/;use_ssl=true", False),
        ("sc://127.0.0.1:1/;token=own", "sc://127.0.0.1:1/;token=own", False),
        ("sc://127.0.0.1:1/;authorization=own", "sc://127.0.0.1:1/;authorization=own", False),
    ],
)
def test_the_token_of_the_home_goes_to_servers_of_this_machine_only(
    home: Path, free_port: int, remote: str, used: str, sent: bool
) -> None:
    token = token_asked_for(Settings(home=home), free_port)
    settings = Settings(home=home, spark_remote=remote)
    assert spark_conf(settings)["spark.remote"] == used
    with with_token(settings):
        assert os.environ.get(VARIABLE) == (token if sent else None)
    assert VARIABLE not in os.environ


def test_a_token_of_the_environment_is_left_there(home: Path, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    token_asked_for(Settings(home=home), free_port)
    monkeypatch.setenv(VARIABLE, "theirs")
    settings = Settings(home=home, spark_remote="sc://127.0.0.1:1")
    with with_token(settings):
        assert os.environ[VARIABLE] == "theirs"
    assert spark_conf(settings)["spark.remote"] == "sc://localhost:1"
