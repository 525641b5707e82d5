"""Sinks that follow a feed: from the middle of its history, over crashes, refusals and losses, to equality."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest

from dedup_platform.changes import Choice, Published, publisher
from dedup_platform.changes.reading import FeedReader
from dedup_platform.errors import SinkError, SinkTakenError
from dedup_platform.lake.pins import pins
from dedup_platform.planning.claims import TIME_TO_LIVE
from dedup_platform.sinks import Batch, Position, Target
from dedup_platform.sinks.kafka_log import Log
from dedup_platform.sinks.messages import Json, messages
from dedup_platform.sinks.sink import net
from dedup_platform.stream import CustomSink, FilesSink, KafkaSink, PostgresSink, Publish, Sessions
from dedup_platform.tables import SESSION_CHANGES, SESSIONS, column_names, columns
from dedup_platform.testing.servers import KafkaServer, PostgresServer
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.sqlite_table import SqliteTable, copies, position
from dedup_platform_tests.sinks.test_files import READ
from dedup_platform_tests.variants import some

FACTORY = "dedup_platform_tests.sinks.sqlite_table:open_table"


class Copied(Followed):
    """A stream with one sink of its sessions."""

    def __init__(self, folder: Path, **options: str) -> None:
        super().__init__(folder)
        self.file = str(folder / "copies.db")
        self.say(**options)

    def say(self, changes: str = "all", **options: str) -> None:
        """Declare the sink."""
        said = {"kind": "custom", "follows": SESSIONS, "factory": FACTORY, "changes": changes}
        sink = CustomSink.model_validate(said | {"options": {"file": self.file} | options})
        self.stream = self.stream.model_copy(update={"publish": Publish(sinks={"copy": sink})})

    def copy(self, retry: bool = False, again: Choice | None = None) -> Published:
        return self.platform.publish(EVENTS, "copy", retry, again)

    def is_equal(self) -> bool:
        return _texts(copies(self.file)) == _texts(self.sessions())


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Copied]:
    with replaced(has_spark=False):
        yield Copied(tmp_path)


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(json.dumps(dict(row), default=str, sort_keys=True) for row in rows)


def die_after_the_first_batch(published: Copied) -> None:
    write = SqliteTable.write

    def deadly(sink: SqliteTable, batch: Batch) -> None:
        write(sink, batch)
        raise KeyboardInterrupt

    with patch.object(SqliteTable, "write", deadly), pytest.raises(KeyboardInterrupt):
        published.copy()


def test_a_new_sink_begins_with_the_table_and_then_follows(published: Copied) -> None:
    for number in range(3):
        published.take_in(published.event(f"{number}", 60 * number), published.event(f"x{number}", 7, entity="x"))
        published.publish()
    done = published.copy()
    assert dict(done.sent) == {"insert": 4}  # and not what came before
    assert done.version == 3
    assert published.is_equal()
    published.take_in(published.event("late", 30))
    done = published.copy()
    assert dict(done.sent) == {"delete": 1, "update_preimage": 1, "update_postimage": 1}
    assert published.is_equal()
    assert dict(published.copy().sent) == {}


def test_a_sink_waits_for_the_first_row_of_its_table(published: Copied) -> None:
    published.take_in(published.event("a", 0, entity=None))
    assert published.copy().version == 0
    assert position(published.file) is None
    published.take_in(published.event("b", 0))
    assert dict(published.copy().sent) == {"insert": 1}
    assert published.is_equal()


def test_before_anything_was_taken_in_nothing_is_sent(published: Copied) -> None:
    assert published.copy().version == 0


def test_a_beginning_that_died_goes_on_with_the_same_rows_over_upkeep(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(12)))
    write, batches = SqliteTable.write, list[Batch]()

    def deadly(sink: SqliteTable, batch: Batch) -> None:
        if len(batches) == 1:
            raise KeyboardInterrupt
        batches.append(batch)
        write(sink, batch)

    with patch.object(SqliteTable, "write", deadly), pytest.raises(KeyboardInterrupt):
        published.copy()
    [pinned] = pins(published.platform.lake.catalog, published.stream, SESSIONS).values()
    assert position(published.file) == batches[0].after
    assert batches[0].after.snapshot_id == pinned
    published.take_in(published.event("late", 30))
    published.publish()
    published.clock.advance(published.stream.maintenance.snapshot_age * 10)
    published.platform.maintain(EVENTS)
    done = published.copy()
    assert done.sent["insert"] == 12 - len(batches[0].changes)
    assert published.is_equal()
    assert pins(published.platform.lake.catalog, published.stream, SESSIONS) == {}


def test_a_sink_that_is_given_up_in_its_beginning_holds_nothing_back(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(12)))
    die_after_the_first_batch(published)
    catalog = published.platform.lake.catalog
    published.platform.maintain(EVENTS)
    assert list(pins(catalog, published.stream, SESSIONS)) == ["copy"]
    published.stream = published.stream.model_copy(update={"publish": Publish()})
    published.platform.maintain(EVENTS)
    assert pins(catalog, published.stream, SESSIONS) == {}


def test_a_beginning_whose_snapshot_is_gone_begins_anew(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(12)))
    die_after_the_first_batch(published)
    published.take_in(published.event("late", 30))
    published.publish()
    at = position(published.file)
    assert at
    with patch("dedup_platform.changes.reading.is_kept", lambda *args: args[-1] != at.snapshot_id):
        done = published.copy()
    assert done.sent["insert"] == len(published.sessions())
    assert published.is_equal()


@pytest.mark.parametrize("lost", ["the sink's position", "the sink", "the feed"])
def test_what_is_lost_of_a_sink_is_begun_anew(published: Copied, lost: str) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(7)))
    published.copy()
    published.take_in(published.event("late", 30))
    published.publish()
    if lost == "the sink":
        Path(published.file).unlink()
    elif lost == "the feed":
        published.platform.lake.catalog.iceberg.drop_table((EVENTS, SESSION_CHANGES))
    else:
        SqliteTable(None, {"file": published.file})._database.execute("UPDATE state SET position = NULL")  # type: ignore[arg-type]
    done = published.copy()
    assert done.sent["insert"] == len(published.sessions())
    assert published.is_equal()


def test_a_sink_that_is_ahead_of_its_feed_begins_anew(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(7)))
    published.copy()
    at = position(published.file)
    assert at
    ahead = SqliteTable(None, {"file": published.file})  # type: ignore[arg-type]
    told = json.dumps([at.feed, at.version + 10, None, None])
    ahead._database.execute("UPDATE state SET position = ?", (told,))
    left = json.dumps({"session_id": "left"})
    ahead._database.execute("INSERT INTO copies VALUES ('left', ?, ?)", (at.version + 10, left))
    assert published.copy().version == at.version
    assert published.is_equal()


def test_a_beginning_that_died_and_then_fits_into_one_batch_leaves_nothing_behind(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 45 * number) for number in range(12)))
    die_after_the_first_batch(published)
    at = position(published.file)
    assert at
    published.take_in(*(published.event(f"bridge{number}", 45 * number + 22) for number in range(12)))
    published.publish()
    assert len(published.sessions()) == 1
    with patch("dedup_platform.changes.reading.is_kept", lambda *args: args[-1] != at.snapshot_id):
        published.copy()
    assert published.is_equal()


def test_a_row_that_is_refused_is_put_aside_and_the_rest_goes_on(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 0, entity=f"e{number}") for number in range(4)))
    published.copy()
    published.say(poison="e7")
    published.take_in(*(published.event(f"{number}", 0, entity=f"e{number}") for number in range(4, 12)))
    published.take_in(published.event("again", 1, entity="e1"))
    done = published.copy()
    assert done.refused == 1
    assert done.sent == {"insert": 7, "update_preimage": 1, "update_postimage": 1}
    there = {row["entity_id"] for row in copies(published.file)}
    assert there == {f"e{number}" for number in range(12) if number != 7}
    assert published.copy(retry=True).refused == 1  # it is still poison
    published.say()
    assert published.copy().refused == 1
    assert not published.is_equal()
    assert published.copy(retry=True).refused == 0
    assert published.is_equal()


def test_what_was_refused_and_is_gone_since_heals(published: Copied) -> None:
    published.take_in(published.event("a", 0), published.event("b", 45))
    published.say(poison="e")
    assert published.copy().refused == 2
    published.say()
    published.take_in(published.event("bridge", 20))
    done = published.copy()
    assert done.refused == 0, "the later change of each key takes the place of what was refused"
    assert published.is_equal()


def test_what_was_refused_and_is_gone_when_a_sink_begins_anew_heals(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 45 * number, page="bad") for number in range(3)))
    published.say(poison="bad")
    assert published.copy().refused == 3
    published.take_in(published.event("bridge", 20, page="bad"))
    SqliteTable(None, {"file": published.file})._database.execute("UPDATE state SET position = NULL")  # type: ignore[arg-type]
    with patch.object(SqliteTable, "write", autospec=True, side_effect=SqliteTable.write) as write:
        assert published.copy().refused == 2, "what is refused again stays"
    batches = [call.args[1] for call in write.call_args_list]
    assert not any({each.key for each in batch.refused} & {*batch.healed} for batch in batches)
    published.say()
    assert published.copy(retry=True).refused == 0
    assert published.is_equal()


def test_a_store_that_refuses_everything_is_not_asked_for_ever(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(9)))
    published.say(poison="e")
    with (
        patch.object(publisher, "MOST_REFUSED", 3),
        pytest.raises(SinkError, match=r"refuses every row \(e is poison\)"),
    ):
        published.copy()
    published.say()
    published.copy(retry=True)
    assert published.is_equal()


def test_what_matters_to_nobody_downstream_is_counted_and_not_sent(published: Copied) -> None:
    published.say(changes="downstream")
    published.take_in(published.event("a", 0, quantity=1), published.event("b", 20, quantity=1))
    published.copy()
    before = copies(published.file)
    published.take_in(published.event("c", 10, quantity=5))  # inside: neither end nor id change
    done = published.copy()
    assert (dict(done.sent), done.suppressed) == ({}, 2)
    assert copies(published.file) == before
    published.take_in(published.event("d", 30))
    assert published.copy().suppressed == 0
    assert published.is_equal()


def test_a_publisher_that_slept_is_refused(published: Copied) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(3)))
    published.copy()
    published.take_in(published.event("late", 30))
    write = SqliteTable.write

    def slept(sink: SqliteTable, batch: Batch) -> None:
        published.clock.advance(TIME_TO_LIVE)
        with patch.object(SqliteTable, "write", write):
            published.copy()
        write(sink, batch)

    with patch.object(SqliteTable, "write", slept), pytest.raises(SinkTakenError, match="another process publishes"):
        published.copy()
    assert published.is_equal()


def test_a_store_that_fails_is_tried_again_as_the_stream_says(published: Copied) -> None:
    published.take_in(published.event("a", 0))
    write, fails = SqliteTable.write, iter([True, True, False])

    def failing(sink: SqliteTable, batch: Batch) -> None:
        if next(fails):
            raise SinkError(EVENTS, "copy", "it is down")
        write(sink, batch)

    with patch.object(SqliteTable, "write", failing):
        published.copy()
    assert published.is_equal()
    published.take_in(published.event("b", 1))
    down = SinkError(EVENTS, "copy", "it is down")
    with patch.object(SqliteTable, "write", side_effect=down), pytest.raises(SinkError, match="it is down"):
        published.copy()


def test_a_new_attribute_reaches_the_sink_before_anything_is_taken_in(published: Copied) -> None:
    published.take_in(published.event("a", 0))
    published.copy()
    published.take_in(published.event("b", 10))
    aggregates = dict(published.stream.aggregates)
    name, aggregate = next(iter(aggregates.items()))
    more = aggregates | {f"{name}_again": aggregate}
    rules = Sessions(timeout=published.stream.session_timeout, aggregates=more)
    published.stream = published.stream.model_copy(update={"sessions": rules})
    published.copy()
    [row] = copies(published.file)
    assert row["event_count"] == 2
    assert row[f"{name}_again"] is None
    published.take_in(published.event("c", 20))
    published.copy()
    [row] = copies(published.file)
    assert row[f"{name}_again"] == row[name]


def test_versions_larger_than_a_batch_come_in_parts_and_end_whole(published: Copied) -> None:
    published.take_in(published.event("first", 0, entity="first"))
    published.copy()
    published.take_in(*(published.event(f"{number}", 0, entity=f"e{number}") for number in range(12)))
    write, places = SqliteTable.write, list[Position]()

    def noting(sink: SqliteTable, batch: Batch) -> None:
        write(sink, batch)
        places.append(batch.after)

    with patch.object(SqliteTable, "write", noting):
        published.copy()
    assert [(each.version, each.ordinal is None) for each in places] == [(2, False), (2, False), (2, True)]
    assert published.is_equal()


@pytest.mark.parametrize("envelope", some(["debezium", "row"], quick=["debezium"]))
def test_rows_that_are_tried_again_make_whole_messages(published: Copied, envelope: Literal["debezium", "row"]) -> None:
    published.take_in(*(published.event(f"{number}", 60 * number) for number in range(3)))
    published.copy()
    reader = FeedReader(published.platform.lake, published.stream, SESSIONS, "copy")
    kept = [row["session_id"] for row in published.sessions()][:2]
    now = reader.now([json.dumps([key]) for key in (*kept, "gone")], ["session_id"], Position("feed", 1))
    target = Target(EVENTS, "copy", SESSIONS, columns(published.stream, SESSIONS), ("session_id",))
    told = messages(now, Json(target, envelope), False)
    assert {key for key, value in told if value and "gone" not in key} == set(kept)
    assert [key for key, value in told if value is None] == ["gone"]


@pytest.mark.parametrize("envelope", some(["debezium", "row"], quick=["debezium"]))
def test_kafka_follows_a_stream(published: Copied, kafka_server: KafkaServer, envelope: str) -> None:
    topic = new_name("sessions-")
    said = {"kind": "kafka", "follows": SESSIONS, "brokers": kafka_server.brokers, "topic": topic, "envelope": envelope}
    published.stream = published.stream.model_copy(
        update={"publish": Publish(sinks={"copy": KafkaSink.model_validate(said)})}
    )
    for number in range(4):
        published.take_in(*(published.event(f"{number}/{minute}", 45 * number + minute) for minute in (0, 25)))
        published.copy()
        assert _folded(kafka_server, topic, envelope) == _counts(published.sessions())


def _folded(server: KafkaServer, topic: str, envelope: str) -> dict[str, int]:
    newest = {
        str(message.key(), "utf-8"): json.loads(message.value() or b"null")  # type: ignore[arg-type]
        for message in Log(topic, {"bootstrap.servers": server.brokers})._committed(topic)
    }
    rows = [value if envelope == "row" else value["after"] for value in newest.values() if value]
    return _counts(rows)


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {row["session_id"]: row["event_count"] for row in rows}


@pytest.mark.parametrize("format_", some(["json", "csv", "parquet"], quick=["parquet"]))
def test_files_follow_a_stream(published: Copied, tmp_path: Path, format_: str) -> None:
    sink = FilesSink.model_validate(
        {"kind": "files", "follows": SESSIONS, "path": str(tmp_path / "out"), "format": format_}
    )
    published.stream = published.stream.model_copy(update={"publish": Publish(sinks={"copy": sink})})
    for number in range(4):
        published.take_in(published.event(f"{number}", 45 * number), published.event(f"{number}b", 45 * number + 25))
        published.copy()
        found: dict[str, int] = {}
        for manifest in sorted((tmp_path / "out" / "manifests").iterdir()):
            for each in json.loads(manifest.read_text()).get("objects", ()):
                rows = READ[format_]((tmp_path / "out" / each["name"]).read_bytes())
                written, gone = net(rows, ["session_id"])
                found |= dict(written[["session_id", "event_count"]].iter_rows())
                found = {key: count for key, count in found.items() if key not in set(gone["session_id"])}
        assert found == _counts(published.sessions())


def test_postgres_follows_a_stream(published: Copied, postgres_server: PostgresServer) -> None:
    name = new_name()
    postgres_server.create_database(name)
    uri = f"postgresql://{postgres_server.user}@127.0.0.1:{postgres_server.port}/{name}"
    sinks = {
        table: PostgresSink(kind="postgres", follows=table, uri=uri, table=f"copied.{table}")
        for table in ("sessions", "deduplicated_events")
    }
    published.stream = published.stream.model_copy(
        update={"publish": Publish(sinks={f"pg_{name}": sink for name, sink in sinks.items()})}
    )
    published.settings = {"postgres": {"password": postgres_server.password}}
    for number in range(6):
        published.take_in(
            published.event(f"{number}", 45 * number, quantity=number), published.event("n", number, entity=None)
        )
        for table in sinks:
            published.platform.publish(EVENTS, f"pg_{table}")
            names = column_names(published.stream, table)
            connection = postgres_server.connect(name)
            with connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT {', '.join(names)} FROM copied.{table}")
                found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            connection.close()
            rows = published.platform.lake.catalog.load_table(EVENTS, table).scan().to_arrow().to_pylist()
            assert sorted(map(repr, _plain(found))) == sorted(map(repr, _plain(rows)))


def _plain(rows: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    return ({name: str(value) for name, value in row.items()} for row in rows)


class TestForced:
    """Rows that somebody wants again."""

    def damage(self, published: Copied) -> None:
        """Somebody takes the first copy away, and changes the others."""
        database = SqliteTable(None, {"file": published.file})._database  # type: ignore[arg-type]
        database.execute("UPDATE copies SET row = '{}', version = 1000")
        database.execute("DELETE FROM copies WHERE key = (SELECT min(key) FROM copies)")
        database.close()

    @pytest.fixture
    def damaged(self, published: Copied) -> Copied:
        for name in "abc":
            published.take_in(published.event(name, 0, entity=name), published.event(f"{name}2", 60, entity=name))
        published.copy()
        self.damage(published)
        return published

    def test_all_rows_are_a_beginning_anew(self, damaged: Copied) -> None:
        done = damaged.copy(again=Choice())
        assert (dict(done.sent), done.forced) == ({"insert": 6}, 6)
        assert damaged.is_equal()

    def test_rows_of_some_sessions_entities_or_partitions(self, damaged: Copied) -> None:
        before = position(damaged.file)
        ids = {(row["entity_id"], row["started_at"]): row["session_id"] for row in damaged.sessions()}
        first = Choice(sessions=frozenset([ids["a", min(time for _, time in ids)]]))
        assert dict(damaged.copy(again=first).sent) == {"insert": 1}
        assert dict(damaged.copy(again=Choice(entities=frozenset("ab"))).sent) == {"insert": 4}
        partitions = damaged.stream.partitions
        days = frozenset(partitions.ordinal(row["started_at"]) for row in damaged.sessions())
        assert damaged.copy(again=Choice(entities=frozenset("c"), partitions=frozenset([0]))).forced == 0
        assert damaged.copy(again=Choice(entities=frozenset("c"), partitions=days)).forced == 2
        assert damaged.is_equal()
        assert position(damaged.file) == before

    def test_rows_that_are_gone_are_deleted_again_as_they_were(self, published: Copied) -> None:
        published.take_in(published.event("a", 0), published.event("b", 45), published.event("x", 0, entity="x"))
        published.copy()
        old = {row["session_id"] for row in published.sessions()}
        published.take_in(published.event("bridge", 20))
        published.copy()
        [retired] = old - {row["session_id"] for row in published.sessions()}
        bogus = [(json.dumps([key]), 7, json.dumps({"session_id": key})) for key in (retired, "never there")]
        database = SqliteTable(None, {"file": published.file})._database  # type: ignore[arg-type]
        database.executemany("INSERT INTO copies VALUES (?, ?, ?)", bogus)
        database.close()
        assert published.copy(again=Choice(entities=frozenset("x"))).forced == 1
        assert len(copies(published.file)) == 4
        write, batches = SqliteTable.write, list[Batch]()

        def noting(sink: SqliteTable, batch: Batch) -> None:
            write(sink, batch)
            batches.append(batch)

        with patch.object(SqliteTable, "write", noting):
            assert dict(published.copy(again=Choice(entities=frozenset("e"))).sent) == {"insert": 1, "delete": 1}
        assert batches[-1].forced
        [gone] = batches[-1].changes.to_dicts()
        assert (gone["session_id"], gone["reason"], gone["merged_into"]) == (
            retired,
            "merged",
            next(row["session_id"] for row in published.sessions() if row["entity_id"] == "e"),
        )
        assert dict(published.copy(again=Choice(sessions=frozenset(["never there"]))).sent) == {"delete": 1}
        assert published.is_equal()

    def test_events_of_an_entity(self, tmp_path: Path) -> None:
        copied = Copied(tmp_path)
        sink = copied.stream.publish.sinks["copy"].model_copy(update={"follows": "deduplicated_events"})
        copied.stream = copied.stream.model_copy(update={"publish": Publish(sinks={"copy": sink})})
        with replaced(has_spark=False):
            copied.take_in(copied.event("a", 0), copied.event("b", 0, entity="other"))
            copied.copy()
            self.damage(copied)
            assert copied.copy(again=Choice(entities=frozenset(["e", "other"]))).forced == 2
        assert {row["event_id"] for row in copies(copied.file)} == {"a", "b"}

    def test_one_that_is_refused_is_put_aside_and_the_position_stays(self, damaged: Copied) -> None:
        before = position(damaged.file)
        damaged.say(poison="b")
        done = damaged.copy(again=Choice(entities=frozenset("abc")))
        assert (done.refused, done.forced) == (2, 4)
        assert position(damaged.file) == before
        damaged.say()
        assert damaged.copy(retry=True).refused == 0
        assert damaged.is_equal()

    def test_one_that_is_killed_can_be_said_again(self, damaged: Copied) -> None:
        with patch.object(publisher, "BATCH_ROWS", 2):
            write = SqliteTable.write

            def deadly(sink: SqliteTable, batch: Batch) -> None:
                write(sink, batch)
                raise KeyboardInterrupt

            for again in (Choice(), Choice(entities=frozenset("abc"))):
                self.damage(damaged)
                with patch.object(SqliteTable, "write", deadly), pytest.raises(KeyboardInterrupt):
                    damaged.copy(again=again)
                damaged.copy(again=again)
                assert damaged.is_equal()

    def test_a_store_that_fails_in_between_is_gone_on_with(self, damaged: Copied) -> None:
        write, sizes = SqliteTable.write, list[int]()

        def failing(sink: SqliteTable, batch: Batch) -> None:
            sizes.append(len(batch.changes))
            if len(sizes) % 2 == 0:
                raise SinkError(EVENTS, "copy", "it is down")
            write(sink, batch)

        with patch.object(publisher, "BATCH_ROWS", 2), patch.object(SqliteTable, "write", failing):
            assert damaged.copy(again=Choice()).forced == 6
            assert len(sizes) == 5, "three batches, two of them tried twice"
            with pytest.raises(SinkError):
                damaged.copy(again=Choice(entities=frozenset("abc")))
        assert damaged.is_equal()
