"""No secret of the settings is anywhere but where it is needed: not in what is printed, logged, stored or listed."""

import json
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from psycopg2 import sql
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.engine import URL

from dedup_platform.settings import CATALOG, ENV_PREFIX
from dedup_platform.stream import Stream
from dedup_platform.testing import lay_out, make_stream, record, utc, write_batch
from dedup_platform.testing.servers import KafkaServer, PostgresServer, S3Server, free_port
from dedup_platform_tests.deployments.overheard import Watched, new_word
from dedup_platform_tests.deployments.rest_catalog import rest_catalog
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE, wait_until
from dedup_platform_tests.servers import asking_for_a_password, login, new_name, running
from dedup_platform_tests.sources.registries import Registry, schema_registry
from dedup_platform_tests.sources.test_avro import CLICK, datum, record as avro_record

BUCKET = "lake"
DATABASES = ("catalog", "control", "dagster")
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path, "watched", start="2024-03-01")


@pytest.fixture
def watched(tmp_path: Path, stream: Stream, postgres_server: PostgresServer) -> Iterator[Watched]:
    """Tables on S3, and databases in Postgres."""
    keys = {"access key": new_word(), "secret key": new_word()}
    with running(
        S3Server, tmp_path, access_key=keys["access key"], secret_key=keys["secret key"], buckets=(BUCKET,)
    ) as s3:
        planted, environment, databases = dict(keys), {}, {}
        for what in DATABASES:
            planted[what], databases[what] = new_word(), new_name()
            uri = own_database(postgres_server, databases[what], planted[what])
            environment[f"{ENV_PREFIX}{what.upper()}_URI"] = uri
        planted["spark"] = new_word()
        conf = {"spark.hadoop.fs.s3a.secret.key": planted["spark"]} | shown_by_spark(tmp_path)
        environment |= {
            f"{ENV_PREFIX}HOME": str(tmp_path / "home"),
            f"{ENV_PREFIX}STREAMS": str(stream.origin),
            f"{ENV_PREFIX}WAREHOUSE": f"s3://{BUCKET}/warehouse",
            f"{ENV_PREFIX}S3_ENDPOINT": s3.endpoint,
            f"{ENV_PREFIX}S3_ACCESS_KEY_ID": keys["access key"],
            f"{ENV_PREFIX}S3_SECRET_ACCESS_KEY": keys["secret key"],
            f"{ENV_PREFIX}SPARK_CONF": json.dumps(conf),
        }
        yield Watched(tmp_path, postgres_server, BRIEF | environment, planted, databases, frozenset({s3.log}))


def test_no_secret_is_printed_logged_stored_or_listed(watched: Watched, stream: Stream, thorough: bool) -> None:
    deliver(stream, "first", "2024-03-02T10:00")
    assert watched.run("run") == 0
    deliver(stream, "never", "2024-03-01T11:00")
    for name in ("CATALOG_URI", "CONTROL_URI", "DAGSTER_URI", "S3_SECRET_ACCESS_KEY") if thorough else ("CONTROL_URI",):
        assert watched.run("--debug", "run", **watched.wrong(f"{ENV_PREFIX}{name}")) != 0
    for name in ("CATALOG_URI", "CONTROL_URI") if thorough else ("CATALOG_URI",):
        assert watched.run("status", **watched.wrong(f"{ENV_PREFIX}{name}")) != 0
    assert watched.leaks() == []
    # All that could tell something was looked at.
    heard = list(watched.overheard())
    assert any(b"org.apache.spark.deploy.SparkSubmit" in text for _, text in heard)
    assert {part for place, _ in heard for part in Path(place).parts} >= {"events", "receipts", "metadata"}
    assert any(b"redacted" in text and b"fs.s3a.secret.key" in text for _, text in heard)
    assert any(b"password authentication failed" in text for _, text in heard)
    assert any(b"STEP_FAILURE" in text for _, text in heard)


class Guarded:
    """A topic, a schema registry, a catalog behind REST, a Spark server and sinks, each of which wants a secret."""

    def __init__(self, folder: Path, postgres: PostgresServer, watched: Path, started: ExitStack) -> None:
        words = {what: new_word() for what in ("kafka", "registry", "postgres", "catalog", "spark")}
        self.kafka = started.enter_context(
            running(KafkaServer, folder / "kafka", **asking_for_a_password(words["kafka"]))
        )
        self.kafka.create_topic("clicks", 1)
        self.registry: Registry = started.enter_context(schema_registry())
        self.registry.add(7, json.dumps(avro_record(*CLICK)))
        (watched / "warehouse").mkdir()
        behind = SqlCatalog(CATALOG, uri=f"sqlite:///{folder}/behind.db", warehouse=str(watched / "warehouse"))
        started.callback(behind.close)
        catalog = started.enter_context(rest_catalog(behind, f"me:{words['catalog']}"))
        database = new_name()
        own_database(postgres, database, words["postgres"])
        self.spark_port = free_port()
        self.environment = {
            f"{ENV_PREFIX}HOME": str(watched / "home"),
            f"{ENV_PREFIX}STREAMS": str(watched / "guarded.yaml"),
            f"{ENV_PREFIX}WAREHOUSE": str(watched / "warehouse"),
            f"{ENV_PREFIX}CATALOG_URI": catalog.uri,
            f"{ENV_PREFIX}CATALOG_CREDENTIAL": f"me:{words['catalog']}",
            f"{ENV_PREFIX}KAFKA": json.dumps(login(words["kafka"])),
            f"{ENV_PREFIX}REGISTRY_LOGIN": f"me:{words['registry']}",
            f"{ENV_PREFIX}POSTGRES": json.dumps({"password": words["postgres"]}),
            f"{ENV_PREFIX}SPARK_CONF": json.dumps(shown_by_spark(watched)),
            TOKEN: words["spark"],
        }
        sinks = {
            "table": {
                "kind": "postgres",
                "follows": "sessions",
                "uri": f"postgresql://{database}@127.0.0.1:{postgres.port}/{database}",
                "table": "public.sessions",
            },
            "topic": {"kind": "kafka", "follows": "sessions", "brokers": self.kafka.brokers, "topic": "sessions"},
        }
        said = self._stream() | {"publish": {"sinks": sinks}}
        (watched / "guarded.yaml").write_text(yaml.safe_dump(said, sort_keys=False), encoding="utf-8")
        # The server's own settings, which it finds nowhere else.
        self.settings_file = watched / "home" / "connect-server.conf"
        self.watched = Watched(
            watched,
            postgres,
            BRIEF | self.environment,
            words,
            {"sinks": database},
            except_for=frozenset({self.settings_file}),
        )

    def produce(self, number: int) -> None:
        value = {"user": "ann", "id": f"e{number}", "at": f"2024-03-01T10:00:{number:02}Z"}
        producer = Producer({"bootstrap.servers": self.kafka.brokers, **login(self.watched.planted["kafka"])})
        producer.produce("clicks", b"\0" + (7).to_bytes(4) + datum(avro_record(*CLICK), value), partition=0)
        assert producer.flush(30) == 0

    def has_spark(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.spark_port)) == 0

    def _stream(self) -> dict[str, Any]:
        registry = {"url": self.registry.url}
        source = {"brokers": self.kafka.brokers, "topic": "clicks", "format": "avro", "registry": registry}
        return {
            "name": "guarded",
            "source": {"kind": "kafka", **source},
            "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"},
            "partitions": {"granularity": "day", "start": "2024-01-01"},
            "buckets": 1,
            "sessions": {"timeout": "30m"},
        }


@pytest.fixture
def guarded(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Guarded]:
    for name in ("servers", "watched"):
        (tmp_path / name).mkdir()
    with ExitStack() as started:
        yield Guarded(tmp_path / "servers", postgres_server, tmp_path / "watched", started)


@pytest.mark.thorough
def test_no_secret_of_sources_sinks_catalogs_and_servers_is_either(guarded: Guarded) -> None:
    watched = guarded.watched
    remote = {f"{ENV_PREFIX}SPARK_REMOTE": f"sc://127.0.0.1:{guarded.spark_port}"}
    with watched.running("connect-server", "--port", str(guarded.spark_port)):
        wait_until(guarded.has_spark, "the Spark server answers", PATIENCE)
        guarded.produce(1)
        assert watched.run("status", **remote, **watched.wrong(f"{ENV_PREFIX}CATALOG_CREDENTIAL")) != 0
        for name in (f"{ENV_PREFIX}KAFKA", f"{ENV_PREFIX}CATALOG_CREDENTIAL", TOKEN):
            assert watched.run("--debug", "run", **remote, **watched.wrong(name)) != 0
        guarded.registry.status = 401
        assert watched.run("--debug", "run", **remote, **watched.wrong(f"{ENV_PREFIX}REGISTRY_LOGIN")) != 0
        guarded.registry.status = 200
        assert watched.run("--debug", "run", **remote, **watched.wrong(f"{ENV_PREFIX}POSTGRES")) != 0
        assert watched.run("publish", **remote) == 0
    assert len(set(guarded.registry.logins)) == 2
    assert watched.leaks() == []
    assert stat.S_IMODE(guarded.settings_file.stat().st_mode) == 0o600
    heard = [text for _, text in watched.overheard()]
    for told in (
        b"brokers refuse the connection",
        b"answers 401",
        b"password authentication failed",
        f"{ENV_PREFIX}CATALOG_URI: ".encode(),
        b"SparkConnectServer",
        b"STEP_FAILURE",
    ):
        assert any(told in text for text in heard), told


def deliver(stream: Stream, name: str, time: str) -> None:
    write_batch(stream, lay_out([record("a", name, utc(time), utc(time), page="/", quantity=1)], f"{name}.json"))


def shown_by_spark(folder: Path) -> dict[str, str]:
    """Properties that have Spark write what its UI shows."""
    (folder / "events").mkdir()
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }


def own_database(server: PostgresServer, name: str, password: str) -> str:
    """The URI of a new database, of a user of its own."""
    server.create_database(name)
    with server.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password)))
        cursor.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(sql.Identifier(name)))
    connection.close()
    uri = URL.create("postgresql+psycopg2", name, password, "127.0.0.1", server.port, name)
    return uri.render_as_string(hide_password=False)
