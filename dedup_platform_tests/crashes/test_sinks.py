"""Processes that publish are killed at random: no sink gets a change twice, none misses one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest
from confluent_kafka import Message

from dedup_platform.settings import ENV_PREFIX
from dedup_platform.sinks.kafka_log import Log
from dedup_platform.stream import load_stream
from dedup_platform.tables import SESSIONS
from dedup_platform.testing.servers import KafkaServer, PostgresServer
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.claims.sleeping import sleeper
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.servers import new_name

KILLS, KILLS_THOROUGH = 4, 60
VERSIONS, ENTITIES = 5, 25
LONGEST_LIFE = 0.7
"""Seconds that a process lives at most before it is killed, once it begins."""
PATIENCE = 120


@dataclass
class Store:
    """A sink's end, and what it holds: how often each session's newest state was counted."""

    said: str
    environment: dict[str, str]
    kafka: Log | None = None
    postgres: tuple[PostgresServer, str] | None = None

    def counts(self) -> dict[str, int]:
        if self.kafka:
            newest = {message.key(): json.loads(message.value() or b"null") for message in self._messages()}
            return {row["session_id"]: row["event_count"] for row in newest.values() if row}
        assert self.postgres
        server, database = self.postgres
        connection = server.connect(database)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute("SELECT session_id, event_count FROM copies")
                return dict(cursor.fetchall())
        finally:
            connection.close()

    def twice(self) -> list[object]:
        """What is there more often than once: rows have a key in Postgres; of messages each change is one."""
        if not self.kafka:
            return []
        told = [(message.key(), message.value()) for message in self._messages()]
        return [each for each in told if each[1] is not None and told.count(each) > 1]

    def _messages(self) -> list[Message]:
        assert self.kafka
        return list(self.kafka._committed(self.kafka.topic))


@pytest.fixture(params=["kafka", pytest.param("postgres", marks=pytest.mark.thorough)])
def store(request: pytest.FixtureRequest) -> Store:
    follows = "follows: sessions"
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka_server")
        topic = new_name("copies-")
        said = f'{{kind: kafka, {follows}, brokers: "{kafka.brokers}", topic: {topic}, envelope: row}}'
        return Store(said, {}, kafka=Log(topic, {"bootstrap.servers": kafka.brokers}))
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    database = new_name()
    postgres.create_database(database)
    uri = f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{database}"
    said = f'{{kind: postgres, {follows}, uri: "{uri}", table: public.copies}}'
    secret = {f"{ENV_PREFIX}POSTGRES": json.dumps({"password": postgres.password})}
    return Store(said, secret, postgres=(postgres, database))


@pytest.fixture
def followed(tmp_path: Path, store: Store) -> Iterator[Followed]:
    """A stream with a sink, of whose table the sink is told at the middle of its history."""
    with replaced(has_spark=False):
        followed = Followed(tmp_path)
        file = followed.stream.origin
        file.write_text(f"{file.read_text()}publish: {{sinks: {{copy: {store.said}}}}}\n")
        followed.stream = load_stream(file)
        yield followed


def deliver(followed: Followed, number: int) -> None:
    """A version that makes sessions grow, brings new ones, and merges some of those before."""
    followed.take_in(
        *(followed.event(f"{number}/{each}", 25 * number, entity=f"e{each}") for each in range(ENTITIES)),
        *(
            followed.event(f"far{number}/{each}", 600 - 20 * number, entity=f"e{each}")
            for each in range(0, ENTITIES, 3)
        ),
    )
    followed.publish()


def publishing(followed: Followed, store: Store) -> subprocess.Popen[str]:
    module = "dedup_platform_tests.crashes.publishing"
    return subprocess.Popen(
        [sys.executable, "-m", module, str(followed.home), str(followed.stream.origin), "copy"],
        env=os.environ | store.environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_at_random_a_sink_ends_equal(followed: Followed, store: Store, thorough: bool) -> None:
    random = Random(len(store.said))
    wanted = KILLS_THOROUGH if thorough else KILLS
    killed = version = 0
    until = monotonic() + PATIENCE * (10 if thorough else 1)
    while killed < wanted and monotonic() < until:
        if version < VERSIONS or killed > version:
            deliver(followed, version)
            version += 1
        process = publishing(followed, store)
        assert process.stdout
        assert process.stdout.readline() == "begins\n"
        sleep(random.random() * LONGEST_LIFE)
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert killed >= wanted / 2, "processes ended before they could be killed"
    last = publishing(followed, store)
    assert last.communicate(timeout=PATIENCE)[0] == "begins\ndone\n"
    expected = {row["session_id"]: row["event_count"] for row in followed.sessions()}
    assert store.counts() == expected
    assert store.twice() == []


def test_two_publishers_at_once_write_each_change_once(followed: Followed, store: Store) -> None:
    for version in range(3):
        deliver(followed, version)
    for _ in range(2):
        pair = [publishing(followed, store) for _ in range(2)]
        ended = [process.communicate(timeout=PATIENCE) for process in pair]
        assert len(ended) == 2
        deliver(followed, version := version + 1)
    assert publishing(followed, store).communicate(timeout=PATIENCE)[0] == "begins\ndone\n"
    assert store.counts() == {row["session_id"]: row["event_count"] for row in followed.sessions()}
    assert store.twice() == []
    assert followed.platform.newest_version(EVENTS, SESSIONS)


def test_who_slept_through_a_claim_writes_nothing(followed: Followed, store: Store) -> None:
    for version in range(3):
        deliver(followed, version)
    expected = {row["session_id"]: row["event_count"] for row in followed.sessions()}
    step = f"before it writes to {'Kafka' if store.kafka else 'Postgres'}"
    with sleeper(followed.home, followed.stream.origin, "copy", step, store.environment) as wake:
        assert publishing(followed, store).communicate(timeout=PATIENCE)[0] == "begins\ndone\n"
        assert store.counts() == expected
        assert wake() == "SinkTakenError"
    assert store.counts() == expected
    assert store.twice() == []
    assert followed.platform.claims.of(EVENTS) == {}
