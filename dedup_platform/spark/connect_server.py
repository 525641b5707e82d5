"""A warm Spark for all runs of one machine: a Spark Connect server, set up as a run's own Spark would be."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pyspark

from dedup_platform.errors import SettingsError, SparkServerError
from dedup_platform.processes import with_parent
from dedup_platform.settings import Settings
from dedup_platform.spark import CONNECT_PORT
from dedup_platform.spark.connect import answers
from dedup_platform.spark.connect_token import server_conf, server_token
from dedup_platform.spark.jars import require_jars
from dedup_platform.spark.session import LOOPBACK, properties_file, spark_conf, use_this_python

__all__ = ["ConnectServer", "address", "command", "connect_server", "prepare"]

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SPARK_HOME = Path(pyspark.__file__).parent
_SECONDS_TO_START = 120  # the first start of all may download jars
_SECONDS_TO_END = 30


def address(port: int) -> str:
    """What `DEDUP_PLATFORM_SPARK_REMOTE` must be to use the server on this port of this machine."""
    # By its name and not by its number: only so does PySpark send a token without TLS.
    return f"sc://localhost:{port}"


def prepare(settings: Settings, port: int, keeps_sessions: bool = False) -> dict[str, str]:
    """Write the server's properties to `<home>/connect-server.conf`; returns the environment that it must be run in.

    In a file and not in the command, which every user of the machine can see: properties hold secrets, the token among
    them that clients must have.
    A session that nobody uses ends after an hour, unless the server keeps sessions.
    Raises SettingsError if the port is taken or if the settings name a server already, and what `require_jars` does.
    """
    if settings.spark_remote:
        named = settings.spark_remote.partition("/;")[0]
        raise SettingsError(f"DEDUP_PLATFORM_SPARK_REMOTE: names a server already, {named}")
    if answers(LOOPBACK, port):
        raise SettingsError(
            f"port {port} of {LOOPBACK} is taken. If a Spark Connect server has it that is yours, "
            f"DEDUP_PLATFORM_SPARK_REMOTE={address(port)} uses it; else choose another port."
        )
    require_jars(settings)
    settings.make_folders()
    use_this_python(settings)
    listening = str(settings.connect_address)
    binding = {"spark.connect.grpc.binding.address": listening, "spark.connect.grpc.binding.port": str(port)}
    if keeps_sessions:
        binding["spark.connect.session.manager.defaultSessionTimeout"] = "-1"
    file = _properties(settings)
    file.touch()
    file.chmod(0o600)
    conf = {**spark_conf(settings), **binding, **server_conf(settings)}
    file.write_text(properties_file(conf), encoding="utf-8")
    return {**os.environ, "SPARK_HOME": str(_SPARK_HOME)}


def command(settings: Settings) -> list[str]:
    """The command that runs the server. Each part of it replaces the one before: its process id is the server's."""
    return [str(_SPARK_HOME / "bin/spark-submit"), "--class", _CLASS, "--properties-file", str(_properties(settings))]


class ConnectServer:
    """A server on this machine's loopback interface, as a child of this process."""

    def __init__(self, settings: Settings, port: int) -> None:
        self.port = port
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._session = uuid4()

    @property
    def remote(self) -> str:
        """What `DEDUP_PLATFORM_SPARK_REMOTE` must be to use it."""
        return address(self.port)

    @property
    def shared_session(self) -> str:
        """As `remote`, for the runs of one home: they share a session, which the server keeps.

        Spark gives every session Python workers of its own, and all is imported anew for them: a second of each run.
        """
        return f"{self.remote}/;session_id={self._session}"

    @property
    def token(self) -> str:
        """What its clients need that have another home. Secret."""
        return server_token(self._settings) or ""

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        """Start it, anew if need be, and wait until it answers.

        Raises SettingsError if it may not be started, SparkServerError if it ends before it answers.
        """
        self.stop()
        environment = prepare(self._settings, self.port, keeps_sessions=True)
        # A process group of its own: Ctrl-C is for the runs first, and the server ends after them.
        self._process = subprocess.Popen(with_parent(command(self._settings)), env=environment, process_group=0)
        until = time.monotonic() + _SECONDS_TO_START
        while not answers(LOOPBACK, self.port):
            if self.pid is None or time.monotonic() > until:
                self.stop()
                raise SparkServerError(self.remote, "did not start; what it printed tells why")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it, and wait until it has ended."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def connect_server(settings: Settings, port: int = CONNECT_PORT) -> Iterator[ConnectServer]:
    """A server while the block runs."""
    server = ConnectServer(settings, port)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _properties(settings: Settings) -> Path:
    return settings.home / "connect-server.conf"
