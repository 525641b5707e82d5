"""Sinks in a real Kafka: what every sink must do, and what is Kafka's own."""

import json
import socket
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from dedup_platform.errors import RefusedRowsError, SinkError, SinkTakenError
from dedup_platform.sinks import Batch, Position
from dedup_platform.sinks.binary_messages import CODECS, Binary
from dedup_platform.sinks.kafka import KafkaTopic
from dedup_platform.sinks.kafka_log import Log
from dedup_platform.sinks.shapes import Envelope
from dedup_platform.stream import KafkaSink
from dedup_platform.testing.servers import KafkaServer
from dedup_platform.testing.servers.kafka import MAX_MESSAGE_BYTES
from dedup_platform.testing.sinks import TARGET, check_sink, some_changes
from dedup_platform_tests.servers import asking_for_a_password, login, new_name, running
from dedup_platform_tests.sinks.looking import check_totals
from dedup_platform_tests.sinks.reading import READERS, Read
from dedup_platform_tests.sources.registries import Registry, schema_registry

FIRST, SECOND = Position("feed", 1), Position("feed", 2)

NOTHING: Mapping[str, str] = {}
LOGIN = "me:very secret"


class Store:
    """A topic of its own."""

    def __init__(self, server: KafkaServer) -> None:
        self.brokers = server.brokers
        self.topic = new_name("copies-")

    def sink(self, envelope: str = "debezium", options: Mapping[str, str] = NOTHING, **said: str) -> KafkaTopic:
        where = {"kind": "kafka", "follows": "sessions", "brokers": self.brokers, "topic": self.topic}
        return KafkaTopic(TARGET, KafkaSink.model_validate(where | {"envelope": envelope} | said), dict(options), LOGIN)

    def committed(self, topic: str | None = None) -> list[Message]:
        """What a consumer gets that reads committed messages only."""
        log = Log(self.topic, {"bootstrap.servers": self.brokers})
        found = log._committed(topic or self.topic)
        return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))

    def messages(self, read: Read = json.loads) -> list[tuple[str, Any]]:
        """The keys, and the values as they are read."""
        values = ((each, each.value()) for each in self.committed())
        return [((each.key() or b"").decode(), None if value is None else read(value)) for each, value in values]

    def named_schemas(self) -> dict[str, dict[str, str]]:
        """What the topic of positions tells of the schemas of messages that name one."""
        told = {(each.key() or b"").decode(): each.value() for each in self.committed(f"{self.topic}.positions")}
        named = {key.removeprefix("schema/"): value for key, value in told.items() if key.startswith("schema/")}
        return {name: json.loads(value or b"") for name, value in named.items()}

    def counts(self, read: Read = json.loads) -> Mapping[str, int]:
        """The topic folded by key."""
        newest = dict(self.messages(read))
        rows = {key: value and value.get("after", value) for key, value in newest.items()}
        return {key: row["event_count"] for key, row in rows.items() if row}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as registry:
        yield registry


@pytest.fixture
def store(kafka_server: KafkaServer) -> Store:
    return Store(kafka_server)


@pytest.mark.parametrize("envelope", ["debezium", "row"])
def test_it_does_what_every_sink_must_do(store: Store, envelope: str) -> None:
    check_sink(lambda: store.sink(envelope), store.counts)


@pytest.mark.parametrize(("format_", "envelope"), [("avro", "debezium"), ("protobuf", "row")])
def test_it_does_so_in_other_formats(store: Store, format_: str, envelope: Envelope) -> None:
    read = READERS[format_](Binary(TARGET, envelope, CODECS[format_]).schema)
    check_sink(lambda: store.sink(envelope, format=format_), lambda: store.counts(read))


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_without_a_registry_messages_name_their_schema(store: Store, format_: str) -> None:
    sink = store.sink("row", format=format_)
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1), ("insert", 1, 1, "b", 1))))
    sink = store.sink("row", format=format_)
    sink.open()
    sink.write(Batch(FIRST, SECOND, some_changes(("delete", 2, 0, "a", 1), ("insert", 2, 1, "b", 2))))
    [(name, schema)] = store.named_schemas().items()
    assert schema == {"format": format_, "schema": Binary(TARGET, "row", CODECS[format_]).schema}
    headers = [(each.value() is None, dict(each.headers() or ())) for each in store.committed()]
    assert sorted(headers, key=repr) == [(False, {"dedup_platform.schema": name.encode()})] * 3 + [(True, {})]
    told = store.committed(f"{store.topic}.positions")
    assert [each.key() for each in told].count(f"schema/{name}".encode()) == 1


@pytest.mark.parametrize(("format_", "behind_id"), [("avro", b""), ("protobuf", b"\0")])
def test_with_a_registry_messages_begin_by_the_id_of_their_schema(
    store: Store, registry: Registry, format_: str, behind_id: bytes
) -> None:
    with closing(store.sink("row", format=format_, registry=registry.url)) as sink:
        sink.look()
        sink.open()
        assert registry.asked == [], "nothing is registered by who only looks"
        sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1)), begins=True, completes=True))
        sink.write(Batch(FIRST, SECOND, some_changes(("insert", 2, 0, "b", 2))))
    [(subject, kind, text)] = registry.registered
    assert (subject, kind) == (f"{store.topic}-value", format_.upper())
    assert registry.asked == [f"/subjects/{store.topic}-value/versions"]
    assert registry.logins == [f"Basic {b64encode(LOGIN.encode()).decode()}"]
    header = b"\0" + (1).to_bytes(4) + behind_id
    assert [each.value()[: len(header)] for each in store.committed() if each.value()] == [header] * 2  # type: ignore[index]
    read = READERS[format_](text)
    assert store.counts(lambda value: read(value[len(header) :])) == {"a": 1, "b": 2}
    assert store.named_schemas() == {}
    assert {each.headers() for each in store.committed()} == {None}


@pytest.mark.parametrize(
    ("status", "lasting", "what_to_do"),
    [
        (409, True, "Name another topic in the stream file, or let the registry take the schema"),
        (401, True, "Set DEDUP_PLATFORM_REGISTRY_LOGIN"),
        (422, True, "Mend the registry, or name another one in the stream file"),
        (503, False, "the registry answers 503"),
    ],
)
def test_a_registry_that_refuses_fails_the_sink_before_anything_is_written(
    store: Store, registry: Registry, status: int, lasting: bool, what_to_do: str
) -> None:
    batch = Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1)))
    with closing(store.sink("row", format="avro", registry=registry.url)) as sink:
        sink.open()
        registry.status, registry.reason = status, "it is incompatible"
        with pytest.raises(SinkError) as raised:
            sink.write(batch)
        told = str(raised.value)
        where = f"conformance: sink tried: {registry.url}: the registry answers {status} "
        assert told.startswith(where)
        assert f"to subjects/{store.topic}-value/versions: it is incompatible" in told
        assert what_to_do in told
        assert "secret" not in told
        assert raised.value.lasting == lasting
        assert (store.committed(), sink.look().position) == ([], None)
        registry.status = 200
        sink.write(batch)
    assert len(store.committed()) == 1


def test_a_registry_that_is_down_fails_the_sink(store: Store) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with closing(store.sink("row", format="avro", registry=url)) as sink:
            sink.open()
            with pytest.raises(SinkError, match=f"{url}: the registry cannot be reached: .*refused") as raised:
                sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    assert not raised.value.lasting
    assert "secret" not in str(raised.value)


def test_changes_come_in_debeziums_envelope(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1)), begins=True, completes=True))
    changes = some_changes(
        ("update_preimage", 2, 0, "a", 1),
        ("update_postimage", 2, 1, "a", 2),
        ("insert", 2, 2, "b", 1),
        ("delete", 2, 3, "b", 1),
    ).with_columns(reason=pl.lit("grown"), changed_columns=pl.lit(["event_count"]))
    sink.write(Batch(FIRST, SECOND, changes))
    told = store.messages()
    by_key = {key: [value for each, value in told if each == key] for key in ("a", "b")}
    assert [each["op"] for each in by_key["a"]] == ["r", "u"]
    assert [(each["before"] or {}).get("event_count") for each in by_key["a"]] == [None, 1]
    assert [each["after"]["event_count"] for each in by_key["a"]] == [1, 2]
    assert [each and each["op"] for each in by_key["b"]] == ["c", "d", None]
    update = by_key["a"][1]
    assert update["transaction"] == {"id": "2", "total_order": 1}
    assert update["source"] == {
        "connector": "dedup_platform",
        "name": "conformance",
        "table": "sessions",
        "snapshot": "false",
        "ts_ms": 1709251199999,
        "version": 2,
        "ordinal": 1,
        "snapshot_id": 20,
        "reason": "grown",
        "merged_into": None,
        "split_from": None,
        "changed_columns": ["event_count"],
    }


def test_every_value_comes_as_it_is(store: Store) -> None:
    texts = ["", '"quoted" {} {0}', "tab\tand\\back\r\n\0", "ünï 🎈", None]
    rows = [("insert", 1, number, f"{number}", number) for number in range(len(texts))]
    changes = some_changes(*rows).with_columns(
        page=pl.Series(texts), revenue=pl.Series([Decimal("9" * 36 + ".99")] * len(texts), dtype=pl.Decimal(38, 2))
    )
    sink = store.sink("row")
    sink.open()
    sink.write(Batch(None, FIRST, changes))
    found = dict(store.messages())
    assert [found[str(number)]["page"] for number in range(len(texts))] == texts
    assert found["0"] == {
        "session_id": "0",
        "started_at": "2024-02-29T23:59:59.999999Z",
        "event_count": 0,
        "page": "",
        "revenue": "9" * 36 + ".99",
        "_commit_version": 1,
    }


@pytest.mark.parametrize("options", [{}, {"message.max.bytes": "30000000"}], ids=["by us", "by the broker"])
def test_a_row_that_is_too_large_is_refused_and_the_transaction_taken_back(
    store: Store, options: dict[str, str]
) -> None:
    sink = store.sink(options=options)
    sink.open()
    changes = some_changes(("insert", 1, 0, "a", 1), ("insert", 1, 1, "b", 1))
    large = changes.with_columns(page=pl.Series([None, _noise(MAX_MESSAGE_BYTES * 2)]))
    with pytest.raises(RefusedRowsError, match=r"(?i)too large"):
        sink.write(Batch(None, FIRST, large))
    assert store.counts() == {}
    sink.write(Batch(None, FIRST, changes[:1]))
    assert store.counts() == {"a": 1}


def _noise(length: int) -> str:
    from random import Random

    return "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=length))


def test_the_late_end_of_a_kafka_transaction_hits_no_later_one(store: Store) -> None:
    """The client gives up waiting for the end of a transaction; the broker ends it all the same, later."""
    sink = store.sink()
    sink.open()
    commit = Producer.commit_transaction

    def late(producer: Producer, *args: Any) -> None:
        commit(producer, *args)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    batch = Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1)))
    with patch("dedup_platform.sinks.kafka.Producer", _Deceived(late)):
        deceived = store.sink()
        deceived.open()
        with pytest.raises(SinkError, match="the brokers do not answer"):
            deceived.write(batch)
    with pytest.raises(SinkTakenError):
        deceived.write(batch)  # the producer is gone, whatever it was in the middle of
    assert deceived.open().position == FIRST, "what was committed is seen only after init_transactions"
    deceived.write(Batch(FIRST, SECOND, some_changes(("insert", 2, 0, "b", 1))))
    assert store.counts() == {"a": 1, "b": 1}


class _Deceived:
    """Makes producers whose commits end as a function says."""

    def __init__(self, commit: Any) -> None:
        self._commit = commit

    def __call__(self, options: Mapping[str, Any]) -> Any:
        made, commit = Producer(dict(options)), self._commit

        class Deceiving:
            def __getattr__(self, name: str) -> Any:
                return getattr(made, name)

            def commit_transaction(self, *args: Any) -> None:
                commit(made, *args)

        return Deceiving()


def test_a_transaction_that_was_left_open_is_taken_back_by_the_next_owner(store: Store) -> None:
    sleeper = store.sink()
    sleeper.open()
    assert sleeper._producer
    sleeper._producer.begin_transaction()
    sleeper._producer.produce(store.topic, key="left", value='{"event_count": 1}')
    sleeper._producer.flush(10)
    owner = store.sink()
    assert owner.open().position is None
    owner.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    assert store.counts() == {"a": 1}
    with pytest.raises(SinkError):
        sleeper.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "b", 1))))
    assert store.counts() == {"a": 1}


def test_brokers_that_are_not_there_are_said_without_the_password(store: Store) -> None:
    store.brokers = "127.0.0.1:1"
    sink = store.sink(options={"sasl.password": "very secret", "sasl.username": "me"})
    with patch("dedup_platform.sinks.kafka_log._SECONDS", 1.0), pytest.raises(SinkError) as raised:
        sink.open()
    assert "very secret" not in str(raised.value)


def test_brokers_that_refuse_the_login_are_said_at_once_and_without_it(tmp_path: Path) -> None:
    with running(KafkaServer, tmp_path, **asking_for_a_password("right")) as server:
        store = Store(server)
        with pytest.raises(SinkError, match="the brokers refuse the connection: ") as raised:
            store.sink(options=login("very wrong")).open()
        assert "very wrong" not in str(raised.value)
        assert store.sink(options=login("right")).open().position is None


def test_what_it_was_given_is_counted(store: Store) -> None:
    check_totals(store.sink)


def test_messages_that_are_forced_say_so(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1), ("insert", 1, 1, "b", 1))))
    sink.write(Batch(FIRST, FIRST, some_changes(("insert", 1, 0, "a", 1), ("delete", 1, 1, "b", 1)), forced=True))
    log = Log(store.topic, {"bootstrap.servers": store.brokers})
    found = [(each.key(), each.headers()) for each in log._committed(store.topic)]
    forced = [("dedup_platform.forced", b"true")]
    assert sorted(found, key=repr) == sorted(
        [(b"a", None), (b"b", None), (b"a", forced), (b"b", forced), (b"b", forced)], key=repr
    )
    assert [value["op"] for key, value in store.messages() if key == "a"] == ["c", "r"]


def test_a_topic_that_was_deleted_is_begun_anew(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    admin = AdminClient({"bootstrap.servers": store.brokers})
    admin.delete_topics([store.topic], operation_timeout=30)[store.topic].result()
    assert store.sink().look().position is None
    assert sink.open().position is None
    assert store.sink().look().position is None, "also once the topic is there again"
    assert sink.open().position is None
    sink.write(Batch(None, SECOND, some_changes(("insert", 2, 0, "b", 1)), begins=True, completes=True))
    assert store.counts() == {"b": 1}
    assert store.sink().look().position == sink.open().position == SECOND


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_positions_that_would_be_deleted_are_refused(store: Store, kafka_server: KafkaServer, policy: str) -> None:
    kafka_server.create_topic(f"{store.topic}.positions", 1, **{"cleanup.policy": policy})
    with pytest.raises(SinkError, match=rf"\.positions has cleanup\.policy={policy}, .* set it to compact") as raised:
        store.sink().open()
    assert raised.value.lasting
