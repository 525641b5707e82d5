"""A real Kafka: one broker that is its own controller, started from its jars."""

import os
import shutil
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from dedup_platform.errors import MissingPartError, ServerStartError, WrongJarError
from dedup_platform.processes import free_port
from dedup_platform.settings import KAFKA_JAR
from dedup_platform.spark.jars import cache_folder, check_jars, download, java
from dedup_platform.testing.servers.process import LOOPBACK, ServerProcess

__all__ = ["PARTITIONS", "KafkaServer", "broker_settings", "install_kafka"]

PARTITIONS = 8
"""Of a topic, unless it says otherwise."""
MAX_MESSAGE_BYTES = 10 * 1024 * 1024
INSTALL = "python -m dedup_platform.testing.servers install kafka"

# Without one of these the broker would say nothing, not even why it does not start.
_LOGGER_JAR = "org.slf4j:slf4j-simple:1.7.36"
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")
_JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC", *_LOGGING)
_SECONDS_TO_ASK = 10
_SECONDS_BETWEEN_LOOKS = 0.05


class KafkaServer(ServerProcess):
    """A broker on the loopback interface; `folder` keeps its logs, settings and what it printed.

    Clients are told to connect to `advertised_port`, a proxy's that stands before it; by default to its own port.
    `properties` go before the broker's settings here; `clients` is how its own clients connect, where it asks who they
    are. Raises MissingPartError where Kafka or Java is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int | None = None,
        advertised_port: int | None = None,
        properties: Mapping[str, str] | None = None,
        clients: Mapping[str, str] | None = None,
    ) -> None:
        folder = folder.absolute()  # the server's own folder is another one
        self.port = port or free_port()
        self.brokers = f"{LOOPBACK}:{self.port}"
        self._settings = folder / "server.properties"
        self._data = folder / "logs"
        settings = broker_settings(self.port, advertised_port or self.port, free_port(), self._data)
        self._properties = settings | dict(properties or {})
        self._clients = dict(clients or {})
        super().__init__(
            "Kafka",
            [*_java_with_kafka(), "kafka.Kafka", str(self._settings)],
            folder / "kafka.log",
            self._lists_topics,
        )

    def start(self) -> None:
        """Start it, with an empty log the first time. Raises ServerStartError if it does not answer."""
        self._settings.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"{name}={value}\n" for name, value in self._properties.items()]
        self._settings.write_text("".join(lines), encoding="utf-8")
        if not (self._data / "meta.properties").exists():
            self._format()
        super().start()

    def create_topic(self, name: str, partitions: int = PARTITIONS, **config: str) -> None:
        """Create a topic whose records carry the time of their append to the log; returns when it can be used.

        `config` are Kafka's settings of topics, spelled with `_` for `.`. Fails if there is one of this name.
        """
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        client = self.admin()
        client.create_topics([topic], operation_timeout=_SECONDS_TO_ASK)[name].result()
        until = time.monotonic() + _SECONDS_TO_ASK
        # The broker answers before it lists it.
        while name not in client.list_topics(timeout=_SECONDS_TO_ASK).topics and time.monotonic() < until:
            time.sleep(_SECONDS_BETWEEN_LOOKS)

    def admin(self) -> AdminClient:
        """A client of confluent-kafka that administers this broker."""
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0, **self._clients})

    def _lists_topics(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        """Give the log's folder the identity that a broker wants to find in it."""
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # With "=", since an identity may begin with a minus.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={identity}", "--config", str(self._settings)]
        made = subprocess.run([*_java_with_kafka(), *tool], capture_output=True, text=True, check=False)
        if made.returncode:
            reason = f"ended with code {made.returncode}"
            raise ServerStartError("Kafka's StorageTool", reason, made.stdout + made.stderr)


def install_kafka() -> Path:
    """Download Kafka's jars unless they are there; returns their folder."""
    folder = _folder()
    if not folder.is_dir():
        # Aside first: a download that was interrupted must not look like one that was not.
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        download([KAFKA_JAR, _LOGGER_JAR], aside, aside.parent / "ivy", "[artifact]-[revision](-[classifier]).[ext]")
        try:
            check_jars(aside.glob("*.jar"))
        except WrongJarError:
            shutil.rmtree(aside)
            raise
        aside.rename(folder)
    return folder


def _folder() -> Path:
    return cache_folder() / f"kafka-{KAFKA_JAR.rpartition(':')[2]}"


def _java_with_kafka() -> list[str]:
    if not _folder().is_dir():
        raise MissingPartError(f"Kafka ({KAFKA_JAR})", INSTALL)
    return [str(java()), *_JAVA, "-cp", f"{_folder()}/*"]


def broker_settings(port: int, advertised: int, controller: int, data: Path) -> dict[str, str]:
    """A broker of its own: no copies of anything, ready for consumers at once."""
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{advertised}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SERVICES:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        # A broker that was killed is let in again when its former session has ended: by default, in 9 seconds.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "1000",
        "log.dirs": str(data),
        "num.partitions": str(PARTITIONS),
        "log.message.timestamp.type": "LogAppendTime",
        "message.max.bytes": str(MAX_MESSAGE_BYTES),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
