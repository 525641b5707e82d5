"""Sinks that stood still for many commits, and sinks that do not know any more how far they had come."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from dedup_platform.platform import Platform
from dedup_platform.sinks.files import MANIFESTS
from dedup_platform.stream import FilesSink, KafkaSink, PostgresSink, Publish
from dedup_platform.tables import ROW_KEY, SESSIONS, column_names
from dedup_platform.testing import Record, lay_out, record, write_batch
from dedup_platform.testing.servers import KafkaServer, PostgresServer
from dedup_platform_tests.changes.test_feeds import ARRIVED, EVENTS, MINUTE, TEN, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Row
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.copies import (
    Shown,
    Told,
    folded,
    in_kafka,
    in_postgres,
    shown,
    told_by_files,
    told_by_kafka,
    wrong_order,
)

COMMITS, FEW_COMMITS = 200, 12
NOTE_EACH_WRITE = """
CREATE TABLE seen (number serial, session_id text, version bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen (session_id, version) VALUES (NEW.session_id, NEW._commit_version);
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER INSERT OR UPDATE ON copies FOR EACH ROW EXECUTE FUNCTION note();
"""
"""What a consumer of the table sees, in the order in which it sees it."""


class Standing(Followed):
    """A stream of some entities whose sessions grow, move and merge, and whose sinks mostly stand still."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.random = Random(7)
        self.names = column_names(self.stream, SESSIONS)

    @cached_property
    def working(self) -> Platform:
        """A process that lives on."""
        return self.platform

    def commit(self) -> None:
        """Take in an event of any time, and repair."""
        minutes = self.random.randrange(-600, 2400)
        self.take(self.event(f"{self._files}", minutes, f"e{self.random.randrange(5)}"))

    def lose_a_session(self, name: str) -> None:
        """Let a sink have one that is gone then: its only event is a copy of one that arrived before it."""
        self._arrived += 1
        self.take(record(name, name, TEN, ARRIVED + self._arrived * MINUTE))
        self.platform.publish(EVENTS, name)
        self.take(record(name, name, TEN + 100 * MINUTE, ARRIVED))

    def take(self, event: Record) -> None:
        self._files += 1
        write_batch(self.stream, lay_out([event], f"{self._files}.json"))
        self.working.ingest(EVENTS)
        self.working.repair(EVENTS)

    def rows(self) -> list[Shown]:
        return [shown(row, self.names) for row in self.sessions()]


class Copy:
    """What stands at the end of a sink."""

    sink: FilesSink | KafkaSink | PostgresSink

    def told(self) -> list[Told]:
        """All that it was ever told, where it keeps that."""
        return []

    def rows(self) -> list[Shown]:
        """Those that it holds."""
        return folded(self.told())

    def wrong_order(self, feed: list[Row]) -> list[str]:
        """What a consumer that reads along sees in the wrong order, or not."""
        return list(wrong_order(self.told(), feed))

    def erase(self) -> None:
        """Forget how far it has come."""
        raise NotImplementedError


class InPostgres(Copy):
    def __init__(self, server: PostgresServer, names: list[str]) -> None:
        self._server, self._database, self._names = server, new_name(), names
        server.create_database(self._database)
        uri = f"postgresql://{server.user}@127.0.0.1:{server.port}/{self._database}"
        self.sink = PostgresSink(kind="postgres", follows=SESSIONS, uri=uri, table="public.copies")

    def rows(self) -> list[Shown]:
        return in_postgres(self._server, self._database, "copies", self._names)

    def wrong_order(self, feed: list[Row]) -> list[str]:  # noqa: ARG002  # it tells no ordinals
        seen = in_postgres(self._server, self._database, "seen", ["number", "session_id", "version"])
        newest: dict[str, int] = {}
        wrong = [] if seen else ["nothing was seen"]
        for each in sorted(seen, key=lambda row: row["number"]):
            if each["version"] <= newest.get(each["session_id"], 0):
                wrong.append(f"{each} after version {newest[each['session_id']]}")
            newest[each["session_id"]] = each["version"]
        return wrong

    def erase(self) -> None:
        self.ask("DELETE FROM dedup_platform_sinks")

    def ask(self, statement: str) -> None:
        connection = self._server.connect(self._database)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
        connection.close()


class InFiles(Copy):
    def __init__(self, folder: Path, names: list[str]) -> None:
        self._folder, self._names = folder, names
        self.sink = FilesSink(kind="files", follows=SESSIONS, path=str(folder), format="json")

    def told(self) -> list[Told]:
        return list(told_by_files(self._folder, ROW_KEY[SESSIONS], self._names))

    def erase(self) -> None:
        for each in (self._folder / MANIFESTS).iterdir():
            each.unlink()


class InKafka(Copy):
    def __init__(self, server: KafkaServer) -> None:
        self._brokers, self._topic = server.brokers, new_name("copies-")
        self.sink = KafkaSink(kind="kafka", follows=SESSIONS, brokers=self._brokers, topic=self._topic)

    def told(self) -> list[Told]:
        return list(told_by_kafka(self._brokers, self._topic))

    def rows(self) -> list[Shown]:
        return in_kafka(self._brokers, self._topic)

    def erase(self) -> None:
        producer = Producer({"bootstrap.servers": self._brokers})
        producer.produce(f"{self._topic}.positions", key="position", value=None)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def standing(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresServer,
    request: pytest.FixtureRequest,
    thorough: bool,
) -> Iterator[tuple[Standing, dict[str, Copy]]]:
    """A stream, and its sinks: they began with the table, and stood still for all commits since."""
    with replaced(has_spark=False):
        standing = Standing(tmp_path_factory.mktemp("standing"))
        standing.settings = {"postgres": {"password": postgres_server.password}}
        postgres = InPostgres(postgres_server, standing.names)
        copies: dict[str, Copy] = {"postgres": postgres, "files": InFiles(standing.folder / "out", standing.names)}
        if thorough:
            copies["kafka"] = InKafka(request.getfixturevalue("kafka_server"))
        sinks = {name: copy.sink for name, copy in copies.items()}
        standing.stream = standing.stream.model_copy(update={"publish": Publish(sinks=sinks)})
        for _ in range(4):
            standing.commit()
        for name in copies:
            standing.platform.publish(EVENTS, name)
        postgres.ask(NOTE_EACH_WRITE)
        for _ in range(COMMITS if thorough else FEW_COMMITS):
            standing.commit()
        yield standing, copies


KINDS = ["postgres", "files", pytest.param("kafka", marks=pytest.mark.thorough)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_that_stood_for_many_commits_catches_up_in_order(
    kind: str, standing: tuple[Standing, dict[str, Copy]], thorough: bool
) -> None:
    stream, copies = standing
    before = {status.sink: status.version for status in stream.platform.sinks.status(EVENTS)}[kind]
    version = stream.platform.publish(EVENTS, kind).version
    assert version - (before or 0) == (COMMITS if thorough else FEW_COMMITS)
    assert sorted(map(repr, copies[kind].rows())) == sorted(map(repr, stream.rows()))
    assert copies[kind].wrong_order(stream.feed()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_whose_position_is_erased_begins_anew(kind: str, standing: tuple[Standing, dict[str, Copy]]) -> None:
    stream, copies = standing
    stream.lose_a_session(kind)
    there = {row["session_id"] for row in copies[kind].rows()}
    assert there - {row["session_id"] for row in stream.rows()}, "it holds what is there no more"
    copies[kind].erase()
    assert dict(stream.platform.publish(EVENTS, kind).sent) == {"insert": len(stream.rows())}
    assert sorted(map(repr, copies[kind].rows())) == sorted(map(repr, stream.rows()))
