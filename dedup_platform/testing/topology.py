"""`python -m dedup_platform.testing.topology`: the services of `docker/compose.yaml` as processes of this machine.

The same services, ports, variables and health checks, from the same file of variables. What differs natively is in
`natively`: all hosts are this machine's loopback interface, and folders are this machine's.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import NoReturn

from dotenv import dotenv_values

from dedup_platform.errors import DedupPlatformError, SettingsError
from dedup_platform.settings import ENV_PREFIX
from dedup_platform.spark.session import LOOPBACK
from dedup_platform.testing.servers import KafkaServer, PostgresServer, S3Server, ServerProcess

__all__ = ["HEALTH_INTERVAL", "HEALTH_TIMEOUT", "SERVICES", "Service", "Topology", "natively", "topology"]

HEALTH_INTERVAL = 10
"""Seconds between two looks at a service's health."""
HEALTH_TIMEOUT = 60
"""How many seconds a look may take: on a busy machine Dagster's own takes a while."""
_SECONDS_TO_START = 600
_SECONDS_TO_END = 60
_HOSTS = ("KAFKA_HOST", "POSTGRES_HOST", "S3_HOST", "SPARK_HOST", "LISTEN")


@dataclass(frozen=True)
class Service:
    """One service. Texts hold `${NAME}` for variables of the environment file.

    `health` is the command that succeeds while the service is well; `ports` are the variables of the ports published;
    `needs` are the services that must be well before it starts; `command` is what it runs in our own image.
    """

    name: str
    health: tuple[str, ...]
    ports: tuple[str, ...]
    environment: Mapping[str, str]
    needs: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


_DATABASE = (
    "postgresql+psycopg2://${POSTGRES_USER}:${POSTGRES_PASSWORD}@${POSTGRES_HOST}:${POSTGRES_PORT}/${POSTGRES_DB}"
)
_DAGSTER = {
    "DAGSTER_HOME": "${DATA}/dagster",
    "DEDUP_PLATFORM_HOME": "${DATA}",
    "DEDUP_PLATFORM_STREAMS": "${STREAMS}",
    "DEDUP_PLATFORM_DAGSTER_URI": _DATABASE,
}
_PLATFORM = {
    **_DAGSTER,
    "DEDUP_PLATFORM_WAREHOUSE": "s3://${S3_BUCKET}/warehouse",
    "DEDUP_PLATFORM_S3_ENDPOINT": "http://${S3_HOST}:${S3_PORT}",
    "DEDUP_PLATFORM_S3_ACCESS_KEY_ID": "${S3_ACCESS_KEY}",
    "DEDUP_PLATFORM_S3_SECRET_ACCESS_KEY": "${S3_SECRET_KEY}",
    "DEDUP_PLATFORM_CATALOG_URI": _DATABASE,
    "DEDUP_PLATFORM_CONTROL_URI": _DATABASE,
    "DEDUP_PLATFORM_KAFKA": '{"bootstrap.servers": "${KAFKA_HOST}:${KAFKA_SERVICES_PORT}"}',
    "DEDUP_PLATFORM_DRIVER_MEMORY": "${DRIVER_MEMORY}",
}
_SPARK = "sc://${SPARK_HOST}:${SPARK_PORT}/;authorization=Bearer%20${SPARK_TOKEN}"
_WITH_SPARK = {**_PLATFORM, "DEDUP_PLATFORM_SPARK_REMOTE": _SPARK}
_WEBSERVER = ("python", "-m", "dedup_platform.orchestration.webserver")
_CODE = ("-m", "dedup_platform.definitions")

SERVICES = (
    Service(
        "postgres",
        health=("pg_isready", "--host", LOOPBACK, "--port", "${POSTGRES_PORT}", "--username", "${POSTGRES_USER}"),
        ports=("POSTGRES_PORT",),
        environment={
            "POSTGRES_USER": "${POSTGRES_USER}",
            "POSTGRES_PASSWORD": "${POSTGRES_PASSWORD}",
            "POSTGRES_DB": "${POSTGRES_DB}",
            "PGPORT": "${POSTGRES_PORT}",
        },
    ),
    Service(
        "s3",
        health=("wget", "-q", "-O", "-", f"http://{LOOPBACK}:${{S3_PORT}}/health"),
        ports=("S3_PORT",),
        environment={"ROOT_ACCESS_KEY": "${S3_ACCESS_KEY}", "ROOT_SECRET_KEY": "${S3_SECRET_KEY}"},
    ),
    Service(
        "kafka",
        health=("/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server", f"{LOOPBACK}:${{KAFKA_PORT}}"),
        ports=("KAFKA_PORT",),
        environment={
            "KAFKA_LISTENERS": "PLAINTEXT://${LISTEN}:${KAFKA_PORT},SERVICES://${LISTEN}:${KAFKA_SERVICES_PORT},"
            "CONTROLLER://${LISTEN}:${KAFKA_CONTROLLER_PORT}",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{LOOPBACK}:${{KAFKA_PORT}},"
            "SERVICES://${KAFKA_HOST}:${KAFKA_SERVICES_PORT}",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@${KAFKA_HOST}:${KAFKA_CONTROLLER_PORT}",
        },
    ),
    Service(
        "spark",
        health=("python", "-c", f"import socket; socket.create_connection(('{LOOPBACK}', ${{SPARK_PORT}}), 5)"),
        ports=("SPARK_PORT",),
        environment={
            **_PLATFORM,
            "DEDUP_PLATFORM_CONNECT_ADDRESS": "${LISTEN}",
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": "${SPARK_TOKEN}",
        },
        needs=("postgres", "s3"),
        command=("dedup-platform", "connect-server", "--port", "${SPARK_PORT}"),
    ),
    Service(
        "webserver",
        health=(
            "python",
            "-c",
            f"from urllib.request import urlopen; urlopen('http://{LOOPBACK}:${{DAGSTER_PORT}}/server_info', None, 5)",
        ),
        ports=("DAGSTER_PORT",),
        environment=_DAGSTER,
        needs=("postgres", "s3", "kafka", "spark"),
        command=(*_WEBSERVER, "--host", "${LISTEN}", "--port", "${DAGSTER_PORT}", *_CODE),
    ),
    Service(
        "daemon",
        health=("dagster-daemon", "liveness-check"),
        ports=(),
        environment=_WITH_SPARK,
        # Both would create Dagster's tables: one after the other.
        needs=("webserver",),
        command=("dagster-daemon", "run", *_CODE),
    ),
)


@dataclass(frozen=True)
class Topology:
    """The services at work, by name and in the order of their start, and the variables that they have."""

    variables: Mapping[str, str]
    servers: dict[str, ServerProcess] = field(default_factory=dict)

    def environment(self, service: str) -> dict[str, str]:
        """The variables of one service, without those of this process."""
        [found] = (each for each in SERVICES if each.name == service)
        return {name: self.filled(text) for name, text in found.environment.items()}

    def filled(self, text: str) -> str:
        """A text with the variables' values in it."""
        return Template(text).substitute(self.variables)


def natively(environment: Path, folder: Path, **variables: str) -> dict[str, str]:
    """The variables of the file `environment` on this machine, with data below `folder`; `variables` go before them.

    Raises SettingsError if the file is not there or leaves a variable out.
    """
    if not environment.is_file():
        raise SettingsError(f"{environment}: there is no such file of variables")
    found = {name: value or "" for name, value in dotenv_values(environment, interpolate=False).items()}
    found |= dict.fromkeys(_HOSTS, LOOPBACK) | variables
    streams = environment.parent / found["STREAMS_FOLDER"]
    found |= {"DATA": str(folder / "platform"), "STREAMS": str(streams.resolve())}
    return found


@contextmanager
def topology(variables: Mapping[str, str], dagster_yaml: Path, folder: Path) -> Iterator[Topology]:
    """All services while the block runs; each keeps its data and its log in a folder of its own below `folder`.

    Raises MissingPartError if one is not installed, ServerStartError if one does not start.
    """
    at_work = Topology(variables)
    home = Path(at_work.filled(_PLATFORM["DAGSTER_HOME"]))
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(dagster_yaml, home / "dagster.yaml")
    with ExitStack() as started:
        for service in SERVICES:
            server = _server(service, at_work, folder / service.name)
            at_work.servers[service.name] = started.enter_context(server)
            ports = ", ".join(f"{LOOPBACK}:{variables[name]}" for name in service.ports)
            _say(f"{service.name}: healthy{f', {ports}' if ports else ''}")
        yield at_work


def _server(service: Service, at_work: Topology, folder: Path) -> ServerProcess:
    variables = at_work.variables
    match service.name:
        case "postgres":
            return PostgresServer(
                folder,
                port=int(variables["POSTGRES_PORT"]),
                user=variables["POSTGRES_USER"],
                password=variables["POSTGRES_PASSWORD"],
                databases=(variables["POSTGRES_DB"],),
            )
        case "s3":
            return S3Server(
                folder,
                port=int(variables["S3_PORT"]),
                access_key=variables["S3_ACCESS_KEY"],
                secret_key=variables["S3_SECRET_KEY"],
                buckets=(variables["S3_BUCKET"],),
            )
        case "kafka":
            own = at_work.environment("kafka")
            properties = {name.removeprefix("KAFKA_").replace("_", ".").lower(): own[name] for name in own}
            return KafkaServer(folder, port=int(variables["KAFKA_PORT"]), properties=properties)
        case _:
            return _own(service, at_work, folder)


def _own(service: Service, at_work: Topology, folder: Path) -> ServerProcess:
    """A service that runs in our own image: its own command and its own health check, in this Python."""
    whose = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    environment = {**whose, **at_work.environment(service.name), "PATH": path}
    health = [at_work.filled(word) for word in service.health]

    def is_healthy() -> bool:
        try:
            asked = subprocess.run(health, env=environment, capture_output=True, timeout=HEALTH_TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            return False
        return asked.returncode == 0

    return ServerProcess(
        service.name,
        [at_work.filled(word) for word in service.command],
        folder / f"{service.name}.log",
        is_healthy,
        environment=environment,
        seconds_to_start=_SECONDS_TO_START,
        seconds_between_looks=2,
        seconds_to_end=_SECONDS_TO_END,
    )


def main() -> int:
    """Run until interrupted (Ctrl-C, SIGTERM, or the terminal closes); returns the exit code."""
    options = _options()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)
    folder = options.folder.resolve()
    try:
        variables = natively(options.environment, folder)
        with topology(variables, options.environment.parent / "dagster.yaml", folder) as at_work:
            _say(
                f"Dagster's UI: http://{LOOPBACK}:{variables['DAGSTER_PORT']}; data and logs: {folder}; Ctrl-C ends all"
            )
            try:
                _keep_alive(at_work)
            finally:
                # What ends now ends in order, however often somebody asks.
                for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(ending, signal.SIG_IGN)
    except DedupPlatformError as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def _keep_alive(at_work: Topology) -> NoReturn:
    """Start again what ends by itself, as containers are."""
    while True:
        for server in at_work.servers.values():
            if server.pid is None:
                _say(f"{server.name} ended; starting it again")
                try:
                    server.start()
                except DedupPlatformError as error:
                    _say(f"error: {error}")
        time.sleep(1)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dedup_platform.testing.topology", description=__doc__)
    parser.add_argument("--environment", type=Path, default=Path("docker/environment"), help="the file of variables")
    parser.add_argument("--folder", type=Path, default=Path(".dedup_platform/native"), help="for data and logs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
