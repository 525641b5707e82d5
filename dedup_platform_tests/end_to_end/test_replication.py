"""docs/replication.md to the letter: a topic with copies in, a table and a topic without copies out, by commands."""

import csv
import json
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from dedup_platform.settings import ENV_PREFIX
from dedup_platform.sinks.kafka_log import Log
from dedup_platform.spark.connect_server import ConnectServer
from dedup_platform.testing import utc
from dedup_platform.testing.servers import KafkaServer, PostgresServer
from dedup_platform_tests.conftest import PROJECT, for_other_homes
from dedup_platform_tests.end_to_end.processes import CommandLine
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.test_docs import fenced

PAGE = PROJECT / "docs" / "replication.md"
FIRST = utc("2026-01-03T10:00")
ORDERS = 30
Order = Mapping[str, str]
Copies = Mapping[tuple[str, str], tuple[str, str, datetime]]
"""Customer and number of an order -> its status, its amount and when it was received."""


def order(number: int, received: float, amount: str = "12.50") -> Order:
    """The order of a number, as it was received some seconds after it was made."""
    at = FIRST + timedelta(hours=7 * number)
    return {
        "customer": f"c{number % 7}",
        "order": str(number),
        "at": at.isoformat(),
        "received": (at + timedelta(seconds=received)).isoformat(),
        "status": "paid",
        "amount": amount,
    }


def first_received(sent: Sequence[Order]) -> Copies:
    """Each order as it was received first."""
    found = {}
    for each in sorted(sent, key=lambda each: datetime.fromisoformat(each["received"]), reverse=True):
        received = datetime.fromisoformat(each["received"])
        found[each["customer"], each["order"]] = (each["status"], each["amount"], received)
    return found


@dataclass
class Deployment:
    """What somebody has who follows the page: a topic, a database, the command line, and the page's stream file."""

    kafka: KafkaServer
    postgres: PostgresServer
    database: str
    topic: str
    once: str
    run: CommandLine

    def produce(self, sent: Sequence[Order]) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.brokers})
        for number, each in enumerate(sent):
            producer.produce(self.topic, json.dumps(each), partition=number % 2)
        assert producer.flush(30) == 0

    def commands(self, heading: str) -> list[str]:
        """Do what the page says under a heading; what each command printed."""
        section = PAGE.read_text("utf-8").split(f"## {heading}\n", 1)[1].split("\n## ")[0]
        lines = "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)).splitlines()
        words = [shlex.split(line) for line in lines if not line.startswith("export ")]
        assert all(command == ".venv/bin/dedup-platform" for command, *_ in words)
        return [self.run(*arguments) for _, *arguments in words]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        connection = self.postgres.connect(self.database)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(query)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def table(self) -> Copies:
        """What the page's query finds, by order; each is there once."""
        _, query = fenced(PAGE, "sql")
        assert all(len(row) == 4 for row in self.ask(query))
        rows = self.ask("SELECT entity_id, event_id, status, amount, arrival_time FROM public.orders")
        assert len({row[:2] for row in rows}) == len(rows) == len(self.ask(query))
        return {row[:2]: (row[2], str(row[3]), row[4]) for row in rows}

    def messages(self) -> Copies:
        """What a topic is folded to, by order."""
        newest: dict[bytes, dict[str, Any]] = {}
        for message in Log(self.once, {"bootstrap.servers": self.kafka.brokers})._committed(self.once):
            newest[message.key() or b""] = json.loads(message.value() or b"null")
        rows = [row for row in newest.values() if row]
        found = {(row["entity_id"], row["event_id"]): row for row in rows}
        assert len(found) == len(rows)
        return {
            key: (row["status"], row["amount"], datetime.fromisoformat(row["arrival_time"]))
            for key, row in found.items()
        }


def with_rights(postgres: PostgresServer, database: str) -> str:
    """A role of its own, which may do no more than the page says that it must."""
    grant, _ = fenced(PAGE, "sql")
    role = new_name()
    connection = postgres.connect(database)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{postgres.password}'")
            cursor.execute(grant.replace("loader", role))
    finally:
        connection.close()
    return role


@pytest.fixture
def deployment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kafka_server: KafkaServer,
    postgres_server: PostgresServer,
    connect: ConnectServer,
) -> Deployment:
    topic, once, database = new_name("orders-"), new_name("once-"), new_name()
    kafka_server.create_topic(topic, 2, message_timestamp_type="CreateTime")
    postgres_server.create_database(database)
    role = with_rights(postgres_server, database)
    text, more, _ = fenced(PAGE, "yaml")
    once_more = more.split("sinks:\n", 1)[1]
    address = f"postgresql://{role}@127.0.0.1:{postgres_server.port}/{database}"
    said = f"{text}{once_more}".replace("127.0.0.1:9092", kafka_server.brokers)
    said = said.replace("postgresql://loader@127.0.0.1:5432/marts", address)
    said = said.replace("topic: orders.once", f"topic: {once}").replace("topic: orders,", f"topic: {topic},")
    file = tmp_path / "orders.yaml"
    file.write_text(said)
    monkeypatch.chdir(tmp_path)
    settings = {
        "STREAMS": str(file),
        "HOME": str(tmp_path / "home"),
        "POSTGRES": json.dumps({"password": postgres_server.password}),
        "SPARK_REMOTE": for_other_homes(connect),
    }
    environment = {f"{ENV_PREFIX}{name}": value for name, value in settings.items()}
    return Deployment(kafka_server, postgres_server, database, topic, once, CommandLine(environment))


def test_the_page_shows_the_example() -> None:
    text, *_ = fenced(PAGE, "yaml")
    example = (PROJECT / "streams" / "orders.yaml").read_text("utf-8")
    assert text == "".join(line for line in example.splitlines(keepends=True) if not line.startswith("#"))


@pytest.mark.thorough
def test_a_topic_with_copies_becomes_a_table_without(deployment: Deployment, tmp_path: Path) -> None:
    sent = [order(number, 2) for number in range(ORDERS)]
    sent += [order(number, 5) for number in range(0, ORDERS, 3)] + [order(4, 9, amount="13.00")]
    deployment.produce(sent)
    checked, _ = deployment.commands("The shortest way")
    assert "no sessions" in checked
    before = first_received(sent)
    assert deployment.table() == deployment.messages() == before
    [(first_version,)] = deployment.ask("SELECT max(_commit_version) FROM public.orders")

    # More copies, new orders, and of one a copy with another amount that was received before all others.
    more = [order(number, 7) for number in range(0, ORDERS, 2)] + [order(ORDERS + number, 2) for number in range(3)]
    more += [order(8, 1, amount="14.00")]
    deployment.produce(more)
    killed_amid(deployment.run)
    deployment.run("run")
    expected = first_received([*sent, *more])
    assert deployment.table() == deployment.messages() == expected
    written = f"SELECT entity_id, event_id FROM public.orders WHERE _commit_version > {first_version}"
    assert set(deployment.ask(written)) == {key for key, row in expected.items() if row != before.get(key)}
    assert deployment.ask("SELECT count(*) FROM public.orders_retired") == [(1,)]

    status, *_ = deployment.commands("What was dropped")
    assert "sessions" not in status
    with (tmp_path / "copies.csv").open() as file:
        beaten = list(csv.DictReader(file))
    assert len(beaten) == len(sent) + len(more) - len(expected)
    assert sorted(row["event_id"] for row in beaten if row["kind"] == "conflict") == ["4", *["8"] * 2]


def killed_amid(run: CommandLine) -> None:
    """A run that is killed as soon as it has taken in what waits: it may not have written what came of it."""
    with run.started("run") as process:
        assert process.stderr
        for line in process.stderr:
            if "raw_events" in line:
                break
        process.send_signal(signal.SIGKILL)
        process.wait()
