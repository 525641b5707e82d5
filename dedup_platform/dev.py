"""`python -m dedup_platform.dev`: Dagster's UI, daemon and sensors over one warm Spark, which ends with them.

The warm Spark is a Spark Connect server; where `DEDUP_PLATFORM_SPARK_REMOTE` names one already, none is started.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from dedup_platform.errors import DedupPlatformError, SettingsError
from dedup_platform.orchestration.embedded import make_dagster_home
from dedup_platform.processes import with_parent
from dedup_platform.settings import ENV_PREFIX, Settings, load_settings
from dedup_platform.spark import CONNECT_PORT
from dedup_platform.spark.connect_server import ConnectServer, connect_server
from dedup_platform.stream import read_streams

SECONDS_TO_END = 60
SECONDS_BETWEEN_STARTS = 5


def main() -> int:
    """Run until interrupted (Ctrl-C, SIGTERM, or the terminal closes); returns the exit code."""
    options = _options()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    try:
        settings = load_settings()
        _require_streams(settings)
        make_dagster_home(settings)
        with (
            _metrics(settings),
            _warm_spark(settings, options.spark_port) as server,
            _dagster(settings, server, options.port) as dagster,
        ):
            while dagster.poll() is None:
                _revive(server)
                time.sleep(1)
            return dagster.returncode
    except DedupPlatformError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _require_streams(settings: Settings) -> None:
    """Say what to do where Dagster would show nothing. StreamFileError if no stream file can be read."""
    if settings.stream_files is None:
        raise SettingsError(
            f"there are no streams to show: set {ENV_PREFIX}STREAMS to a stream file or a folder of them, as "
            f"`export {ENV_PREFIX}STREAMS=streams/clicks.yaml`, and start this again. `dedup-platform init DIR` and "
            "`make demo` make up a stream, and say at their end how to show it"
        )
    read_streams(settings.stream_files)


@contextmanager
def _metrics(settings: Settings) -> Iterator[None]:
    """Metrics for Prometheus while the block runs, where a port is named for them."""
    if settings.metrics_port is None or settings.stream_files is None:
        yield
        return
    # Loaded by those only who want it.
    from dedup_platform.platform.metrics_server import following, metrics_server

    address = str(settings.metrics_address)
    with metrics_server(following(settings, settings.stream_files), address, settings.metrics_port) as port:
        _say(f"Metrics: http://{address}:{port}/metrics")
        yield


def _warm_spark(settings: Settings, port: int) -> AbstractContextManager[ConnectServer | None]:
    return nullcontext() if settings.spark_remote else connect_server(settings, port)


@contextmanager
def _dagster(settings: Settings, server: ConnectServer | None, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`dagster dev` while the block runs; its runs find the server in their environment."""
    environment = {**os.environ, "DAGSTER_HOME": str(settings.dagster_home)}
    if server:
        _say(f"Spark Connect server: {server.remote}, process {server.pid}")
        environment[f"{ENV_PREFIX}SPARK_REMOTE"] = server.shared_session
    command = [sys.executable, "-m", "dedup_platform.orchestration.dagster_dev"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    # Interrupted it ends what it started itself.
    command = with_parent([*command, "-m", "dedup_platform.definitions"], signal="INT")
    # In a process group of its own it is interrupted once, by this process, and not by the terminal as well.
    dagster = subprocess.Popen(command, env=environment, process_group=0)
    try:
        yield dagster
    finally:
        dagster.send_signal(signal.SIGINT)
        try:
            dagster.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            dagster.kill()
            dagster.wait()


def _revive(server: ConnectServer | None) -> None:
    """Runs fail while there is no server; the next ones need not."""
    if server and server.pid is None:
        _say("the Spark Connect server ended; starting another one")
        try:
            server.start()
            _say(f"Spark Connect server: {server.remote}, process {server.pid}")
        except DedupPlatformError as error:
            _say(f"error: {error}")
            time.sleep(SECONDS_BETWEEN_STARTS)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dedup_platform.dev", description=__doc__)
    parser.add_argument("--port", type=int, default=3000, help="of Dagster's UI")
    parser.add_argument("--spark-port", type=int, default=CONNECT_PORT, help="of the Spark Connect server")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
