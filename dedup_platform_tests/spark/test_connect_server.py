"""How a Spark Connect server is set up, and what is said where there is none; no Spark is started here."""

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
