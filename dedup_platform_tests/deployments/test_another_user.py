"""Another user of the machine can neither read a deployment nor have its Spark do anything."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from pyspark.sql.connect.proto import ConfigRequest

from dedup_platform.settings import Settings
from dedup_platform.spark.connect_server import ConnectServer, connect_server
from dedup_platform.testing import lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.servers import free_port
from dedup_platform_tests.conftest import FEW_ROWS

NOBODY = 65534
_STRANGER = f"""
import json, os, sys
import grpc
from pyspark.sql.connect import proto

os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
port, request, *paths = sys.argv[1:]

def tried(path):
    try:
        return len(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read())
    except PermissionError:
        return "refused"

def asked():
    with grpc.insecure_channel(f"127.0.0.1:{{port}}") as channel:
        try:
            proto.SparkConnectServiceStub(channel).Config(proto.ConfigRequest.FromString(bytes.fromhex(request)), 30)
        except grpc.RpcError as error:
            return error.code().name
    return "answered"

print(json.dumps([asked(), dict((path, tried(path)) for path in paths)]))
"""

# Whoever is root becomes nobody in the end: with the imports done, which may lie where nobody can read.
_AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


@pytest.fixture(scope="module", autouse=True)
def _root() -> None:
    if _AS_ROOT and (not which("sudo") or subprocess.run([*_AS_ROOT, "true"], check=False).returncode):
        pytest.skip("only root can act as another user, or who may become root without a password")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may read: what pytest makes only its owner can look into."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def server(open_folder: Path) -> Iterator[ConnectServer]:
    settings = Settings(home=open_folder / "home", spark_master="local[1]", driver_memory="1g", spark_conf=FEW_ROWS)
    settings.make_folders()
    with connect_server(settings, free_port()) as server:
        yield server


def test_home_databases_and_spark_are_closed_to_others(open_folder: Path, server: ConnectServer) -> None:
    stream = make_stream(open_folder)
    at = utc("2024-03-01T10:00")
    write_batch(stream, lay_out([record("a", "b", at, at)], "first.json"))
    home = open_folder / "home"
    platform = light_platform(home, stream, lambda: utc("2030-01-01T00:00"))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    kept = [path for path in home.rglob("*") if path.is_file()]
    databases = {"catalog.db", "control.db", "connect-token", "connect-server.conf"}
    assert {path.name for path in kept} > databases
    answer, tried = as_nobody(server.port, [stream.origin, home, *kept])
    assert tried.pop(str(stream.origin)) > 0, "what is meant for all can be read"
    assert set(tried.values()) == {"refused"}
    assert answer == "UNAUTHENTICATED"


def test_databases_are_closed_also_where_the_home_is_not(open_folder: Path, server: ConnectServer) -> None:
    home = open_folder / "home"
    home.chmod(0o755)
    files = [home / name for name in ("catalog.db", "control.db", "connect-token", "connect-server.conf")]
    stream = make_stream(open_folder)
    light_platform(home, stream, lambda: utc("2030-01-01T00:00")).plan(stream.name)
    _, tried = as_nobody(server.port, files)
    assert set(tried.values()) == {"refused"}


def as_nobody(port: int, paths: list[Path]) -> tuple[str, dict[str, Any]]:
    """What a Spark server answers another user, and what comes of reading: how much is there, or that it is refused."""
    operation = ConfigRequest.Operation(get_all=ConfigRequest.GetAll())
    request = ConfigRequest(session_id="00112233-4455-6677-8899-aabbccddeeff", operation=operation)
    command = [
        *_AS_ROOT,
        sys.executable,
        "-c",
        _STRANGER,
        str(port),
        request.SerializeToString().hex(),
        *map(str, paths),
    ]
    answer, tried = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return answer, tried
