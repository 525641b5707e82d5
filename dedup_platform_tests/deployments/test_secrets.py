"""No secret of the settings is anywhere but where it is needed: not in what is printed, logged, stored or listed."""

import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from psycopg2 import sql
from sqlalchemy.engine import URL

from dedup_platform.settings import ENV_PREFIX
from dedup_platform.stream import Stream
from dedup_platform.testing import lay_out, make_stream, record, utc, write_batch
from dedup_platform.testing.servers import PostgresServer, S3Server
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE
from dedup_platform_tests.end_to_end.processes import CommandLine
from dedup_platform_tests.servers import new_name, running

BUCKET = "lake"
DATABASES = ("catalog", "control", "dagster")


@dataclass
class Watched:
    """A deployment whose every secret is a word of its own, and all that could be overheard of it."""

    folder: Path
    stream: Stream
    postgres: PostgresServer
    s3: S3Server
    environment: dict[str, str]
    planted: dict[str, str]
    """What it is the secret of -> the word."""
    said: list[str] = field(default_factory=list)
    """What was printed, and the commands of the processes that did it."""

    def run(self, *arguments: str, **otherwise: str) -> int:
        """Run the command line to its end, with some variables set otherwise; returns its exit code."""
        commands = set[str]()
        with CommandLine(self.environment | otherwise).started(*arguments) as process:
            until = time.monotonic() + PATIENCE
            while process.poll() is None and time.monotonic() < until:
                commands |= set(_commands(process))
                time.sleep(0.05)
            out, err = process.communicate(timeout=1)
        self.said += [out, err, *commands]
        return process.returncode

    def overheard(self) -> Iterator[tuple[str, bytes]]:
        """Everything that was printed or stored, and where."""
        yield from (("what was printed, or a command", text.encode()) for text in self.said)
        for path in self.folder.rglob("*"):
            if path.is_file() and path != self.s3.log:
                yield str(path), path.read_bytes()
        for name in DATABASES:
            yield from ((f"the database {name}", row.encode()) for row in _dump(self.postgres, self._database(name)))

    def leaks(self) -> list[str]:
        """Which secret is where it must not be."""
        return [
            f"{what} in {place}: …{heard[max(0, at - 100) : at + 60]!r}"
            for place, heard in self.overheard()
            for what, word in self.planted.items()
            if (at := heard.find(word.encode())) >= 0
        ]

    def wrong(self, name: str) -> dict[str, str]:
        """The variable of this name with another, wrong secret, which must not be heard either."""
        variable = f"{ENV_PREFIX}{name}"
        word = self.planted[f"wrong {name}"] = _word()
        right = next(each for each in self.planted.values() if each in self.environment[variable])
        return {variable: self.environment[variable].replace(right, word)}

    def _database(self, name: str) -> str:
        return self.environment[f"{ENV_PREFIX}{name.upper()}_URI"].rpartition("/")[2]


@pytest.fixture
def watched(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Watched]:
    stream = make_stream(tmp_path, "watched", start="2024-03-01")
    keys = {"access key": _word(), "secret key": _word()}
    with running(
        S3Server, tmp_path, access_key=keys["access key"], secret_key=keys["secret key"], buckets=(BUCKET,)
    ) as s3:
        planted, environment = dict(keys), {}
        for name in DATABASES:
            planted[name] = _word()
            environment[f"{ENV_PREFIX}{name.upper()}_URI"] = _own_database(postgres_server, planted[name])
        planted["spark"] = _word()
        conf = {
            "spark.hadoop.fs.s3a.secret.key": planted["spark"],
            # What the event log tells is what Spark's UI shows.
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        }
        (tmp_path / "events").mkdir()
        environment |= {
            f"{ENV_PREFIX}HOME": str(tmp_path / "home"),
            f"{ENV_PREFIX}STREAMS": str(stream.origin),
            f"{ENV_PREFIX}WAREHOUSE": f"s3://{BUCKET}/warehouse",
            f"{ENV_PREFIX}S3_ENDPOINT": s3.endpoint,
            f"{ENV_PREFIX}S3_ACCESS_KEY_ID": keys["access key"],
            f"{ENV_PREFIX}S3_SECRET_ACCESS_KEY": keys["secret key"],
            f"{ENV_PREFIX}SPARK_CONF": json.dumps(conf),
        }
        yield Watched(tmp_path, stream, postgres_server, s3, BRIEF | environment, planted)


def test_no_secret_is_printed_logged_stored_or_listed(watched: Watched) -> None:
    deliver(watched.stream, "first", "2024-03-02T10:00")
    assert watched.run("run") == 0
    deliver(watched.stream, "never", "2024-03-01T11:00")
    for name in ("CATALOG_URI", "CONTROL_URI", "DAGSTER_URI", "S3_SECRET_ACCESS_KEY"):
        assert watched.run("--debug", "run", **watched.wrong(name)) != 0
    for name in ("CATALOG_URI", "CONTROL_URI"):
        assert watched.run("status", **watched.wrong(name)) != 0
    assert watched.leaks() == []
    # All that could tell something was looked at.
    heard = list(watched.overheard())
    assert any(b"org.apache.spark.deploy.SparkSubmit" in text for _, text in heard)
    assert {part for place, _ in heard for part in Path(place).parts} >= {"events", "receipts", "metadata"}
    assert any(b"redacted" in text and b"fs.s3a.secret.key" in text for _, text in heard)
    assert any(b"password authentication failed" in text for _, text in heard)
    assert any(b"STEP_FAILURE" in text for _, text in heard)


def deliver(stream: Stream, name: str, time: str) -> None:
    write_batch(stream, lay_out([record("a", name, utc(time), utc(time), page="/", quantity=1)], f"{name}.json"))


def _word() -> str:
    """A secret that occurs nowhere by chance."""
    return f"hush{secrets.token_hex(12)}"


def _own_database(server: PostgresServer, password: str) -> str:
    """The URI of a new database, of a user of its own."""
    name = new_name()
    server.create_database(name)
    with server.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password)))
        cursor.execute(sql.SQL("GRANT ALL ON SCHEMA public TO {}").format(sql.Identifier(name)))
    connection.close()
    uri = URL.create("postgresql+psycopg2", name, password, "127.0.0.1", server.port, name)
    return uri.render_as_string(hide_password=False)


def _commands(process: "subprocess.Popen[str]") -> Iterator[str]:
    """The command lines of a process and of all that it started, as every user of the machine can list them."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(process.pid)
        for each in (parent, *parent.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                yield " ".join(each.cmdline())


def _dump(server: PostgresServer, database: str) -> Iterator[str]:
    """Every row of every table of a database, as text."""
    connection = server.connect(database)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in cursor.fetchall():
            cursor.execute(sql.SQL("SELECT row::text FROM {} AS row").format(sql.Identifier(table)))
            yield from (text for (text,) in cursor.fetchall())
    connection.close()
