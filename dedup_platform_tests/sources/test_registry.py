"""Messages with a schema registry's header: what an unknown id, another schema and a silent registry come to."""

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.errors import SourceError
from dedup_platform.settings import ENV_PREFIX
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.messages import MessageReader
from dedup_platform.sources.records import MALFORMED_RECORD, UNKNOWN_SCHEMA
from dedup_platform.sources.registry import RefusedSchemaError, RegisteredSchema, SchemaRegistry, log_in, registry_with
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import decode_kept, message_stream
from dedup_platform_tests.sources.registries import References, Registry, schema_registry
from dedup_platform_tests.sources.schemas import BATCH, PLACE, PROTO, SINGLE, message_class, write_protos
from dedup_platform_tests.sources.test_avro import CLICK, avro_stream, datum, record
from dedup_platform_tests.sources.test_messages import contents, read

BAD = MALFORMED_RECORD
GOOD = {"user": "u", "id": "e", "at": "2024-03-01"}
SCHEMA = record(*CLICK)


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry_with.cache_clear()  # an earlier one may have had the same port
    with schema_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_protos(folder)
    return folder


def header(schema_id: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4)


def registered(message_format: str, registry: Registry, folder: Path | None = None, **parts: Any) -> Stream:
    return message_stream(message_format, folder, registry={"url": registry.url}, **parts)


def test_avro_is_read_by_the_schema_that_its_id_stands_for(registry: Registry) -> None:
    registry.add(7, json.dumps(SCHEMA))
    registry.add(2**32 - 1, json.dumps(record(*CLICK, {"name": "n", "type": "long"})))
    stream = registered("avro", registry)
    reader = MessageReader(stream)
    for _ in range(3):
        assert list(reader.records(header(7) + datum(SCHEMA, GOOD))) == [
            (datum(SCHEMA, GOOD), GOOD, '{"format":"avro","schema_id":7}')
        ]
    assert registry.asked == ["/schemas/ids/7"]
    [(payload, fields, context)] = read(stream, header(2**32 - 1) + datum(SCHEMA, GOOD) + b"\x0a")
    assert (payload, fields) == (datum(SCHEMA, GOOD) + b"\x0a", GOOD | {"n": "5"})
    assert context == '{"format":"avro","schema_id":4294967295}'


def test_avro_schemas_may_refer_to_others(registry: Registry) -> None:
    inner = {"type": "record", "name": "pkg.In", "fields": [{"name": "kind", "type": "pkg.Kind"}]}
    kind = {"type": "enum", "name": "pkg.Kind", "symbols": ["A", "B"]}
    outer = record(*CLICK, {"name": "in", "type": "pkg.In"}, {"name": "kind", "type": "pkg.Kind"})
    registry.add_version("kind", json.dumps(kind))
    registry.add_version("in", json.dumps(inner), [{"name": "pkg.Kind", "subject": "kind", "version": 1}])
    references = [
        {"name": name, "subject": subject, "version": 1} for name, subject in (("pkg.In", "in"), ("pkg.Kind", "kind"))
    ]
    registry.add(8, json.dumps(outer), references=references)
    value = header(8) + datum(SCHEMA, GOOD) + b"\2\0"
    assert contents(registered("avro", registry), value) == [GOOD | {"in": {"kind": "B"}, "kind": "A"}]


def test_avro_is_resolved_to_the_schema_of_the_stream_file(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text(
        json.dumps(
            record(
                CLICK[0],
                {"name": "id", "type": "string", "aliases": ["key"]},
                CLICK[2],
                {"name": "page", "type": ["null", "string"], "default": None},
                {"name": "price", "type": "double", "default": 1.5},
                {"name": "many", "type": {"type": "array", "items": "int"}, "default": [1]},
            )
        )
    )
    old = record(CLICK[0], {"name": "key", "type": "string"}, CLICK[2], {"name": "gone", "type": "long"})
    registry.add(1, json.dumps(old))
    registry.add(2, json.dumps(record(CLICK[0], CLICK[2])))
    stream = registered("avro", registry, tmp_path, avro={"schema": "click.avsc"})
    value = datum(old, {"user": "u", "key": "e", "at": "2024-03-01", "gone": 3})
    assert contents(stream, header(1) + value) == [GOOD | {"page": None, "price": "1.5", "many": ["1"]}]
    assert contents(stream, header(2) + b"\2u\2t") == [UNKNOWN_SCHEMA]


@pytest.mark.parametrize(
    ("value", "context"),
    [
        (b"\0", {}),
        (b"\0\0\0\7", {}),
        (b"\1\0\0\0\7u", {}),
        (b'{"user": "u"}', {}),
        (header(9) + b"u", {"schema_id": 9}),
        (header(6) + b"u", {"schema_id": 6}),
        (header(5) + b"u", {"schema_id": 5}),
    ],
    ids=["no id", "a cut id", "another magic byte", "no header", "an unknown id", "a schema of JSON", "no schema"],
)
def test_what_no_schema_is_known_for_is_kept_and_named(
    registry: Registry, value: bytes, context: dict[str, Any]
) -> None:
    registry.add(6, "{}", "JSON")
    registry.add(5, '{"type": "nothing"}')
    [(payload, content, told)] = read(registered("avro", registry), value)
    assert (payload, content) == (value, UNKNOWN_SCHEMA)
    assert json.loads(told) == {"format": "avro"} | context | {"undivided": True}


def test_an_unknown_id_is_asked_for_once_by_a_reader(registry: Registry) -> None:
    reader = MessageReader(registered("avro", registry))
    assert [content for _ in range(3) for _, content, _ in reader.records(header(9))] == [UNKNOWN_SCHEMA] * 3
    assert registry.asked == ["/schemas/ids/9"]


def test_a_schema_that_is_registered_later_is_read_by_a_replay(registry: Registry) -> None:
    stream = registered("avro", registry)
    [(payload, content, context)] = MessageReader(stream).records(header(3) + datum(SCHEMA, GOOD))
    assert content == UNKNOWN_SCHEMA
    registry.add(3, json.dumps(SCHEMA))
    row = decode_kept(EventDecoder(stream), payload, context, "clicks", datetime(2024, 3, 2, tzinfo=UTC))
    assert (row[:2], row[-1]) == (("u", "e"), None)


@pytest.mark.parametrize("value", [header(7), header(7) + b"\2u", header(7) + b"\2u\2e\2t\0"])
def test_what_its_schema_does_not_describe_is_malformed(registry: Registry, value: bytes) -> None:
    registry.add(7, json.dumps(SCHEMA))
    assert contents(registered("avro", registry), value) == [BAD]


def test_a_header_without_a_registry_is_malformed(tmp_path: Path, folder: Path) -> None:
    value = header(1) + datum(SCHEMA, GOOD)
    assert contents(avro_stream(tmp_path, SCHEMA), value) == [BAD]
    assert contents(message_stream("json"), header(1) + b"{}") == [BAD]
    assert contents(message_stream("protobuf", folder, **SINGLE), header(1) + b"\0\x0a\1u") == [BAD]


def test_json_may_have_the_header_too(registry: Registry) -> None:
    registry.add(4, "{}", "JSON")
    stream = registered("json", registry, json={"records": "events"})
    assert read(stream, header(4) + b'{"events": [{"user": "u"}]}') == [
        (b'{"user":"u"}', {"user": "u"}, '{"format":"json","schema_id":4}')
    ]
    assert contents(stream, header(5) + b"{}") == [UNKNOWN_SCHEMA]
    assert contents(stream, header(4) + b"{") == [BAD]


def test_an_avro_schema_that_cannot_be_used_is_parsed_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = Mock(side_effect=ValueError("cannot be used"))
    monkeypatch.setattr("dedup_platform.sources.avro.messages.avro_record", parse)
    registry.add(1, json.dumps(SCHEMA))
    reader = MessageReader(registered("avro", registry))
    for _ in range(3):
        [(_, content, _)] = reader.records(header(1) + datum(SCHEMA, GOOD))
        assert content == UNKNOWN_SCHEMA
    assert parse.call_count == 1


def test_a_protobuf_schema_that_cannot_be_compiled_is_compiled_once(
    registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(1, PROTO + "// broken", "PROTOBUF")
    reader = MessageReader(registered("protobuf", registry, folder, **SINGLE))
    compiler = Mock(side_effect=ValueError("cannot be compiled"))
    monkeypatch.setattr("dedup_platform.stream.schemas.compiled_proto", compiler)
    for index in range(3):
        [(_, content, _)] = reader.records(header(1) + bytes([2, index << 1]) + b"\x0a\1u")
        assert content == UNKNOWN_SCHEMA
    assert compiler.call_count == 1


@pytest.mark.parametrize(("count", "is_looked_up"), [(100, True), (101, False)])
def test_of_indexes_there_may_be_a_hundred(
    count: int, is_looked_up: bool, registry: Registry, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = Mock(return_value=None)
    monkeypatch.setattr("dedup_platform.sources.protobuf.records._message_name", look_up)
    registry.add(1, PROTO, "PROTOBUF", [{"name": "parts/place.proto", "subject": "place", "version": 1}])
    registry.add_version("place", PLACE)
    indexes = bytes([count << 1 & 127 | 128, count >> 6]) + bytes(count)
    assert contents(registered("protobuf", registry, folder, **SINGLE), header(1) + indexes) == [UNKNOWN_SCHEMA]
    assert look_up.called == is_looked_up


def test_protobuf_is_read_behind_its_indexes(registry: Registry, folder: Path) -> None:
    registry.add_version("place", PLACE)
    registry.add(1, PROTO, "PROTOBUF", [{"name": "parts/place.proto", "subject": "place", "version": 1}])
    event = message_class(folder, "pkg.Event")(user="u", id="e").SerializeToString()
    batch = message_class(folder, "pkg.Batch")(events=[{"user": "u", "id": "e"}]).SerializeToString()
    fields = {"user": "u", "id": "e", "at": None}
    single, batches = (registered("protobuf", registry, folder, **parts) for parts in (SINGLE, BATCH))
    context = '{"format":"protobuf","schema_id":1}'
    assert read(single, header(1) + b"\0" + event) == [(event, fields, context)]
    assert read(single, header(1) + b"\2\0" + event) == [(event, fields, context)]
    assert read(batches, header(1) + b"\2\2" + batch) == [(event, fields, context)]


def test_batches_behind_a_header_are_read_together(registry: Registry, folder: Path) -> None:
    registry.add_version("place", PLACE)
    registry.add(1, PROTO, "PROTOBUF", [{"name": "parts/place.proto", "subject": "place", "version": 1}])
    stream = registered(
        "protobuf", registry, folder, fields={"event_time": {"field": "n", "format": "epoch_ms"}}, **BATCH
    )
    events = [{"user": "u", "id": str(number), "n": 1709290800000 + number} for number in range(3)]
    batch = message_class(folder, "pkg.Batch")(events=events).SerializeToString()
    together = MessageReader(stream).batch(header(1) + b"\2\2" + batch)
    assert together
    assert together[-1] == '{"format":"protobuf","schema_id":1}'
    for value in (header(1) + b"\2\2" + batch, header(9) + b"\2\2" + batch, header(1) + b"\0" + batch, batch, b""):
        read(stream, value)
    assert MessageReader(stream).batch(header(9) + b"\2\2" + batch) is None


@pytest.mark.parametrize(
    "indexes",
    [b"", b"\2\2", b"\2\4", b"\2\3", b"\4\2\0", b"\4\2\2", b"\1", b"\x80", b"\xff" * 11],
    ids=["none", "another", "beyond", "negative", "inner", "beyond inner", "-1 of them", "cut", "too long"],
)
def test_protobuf_of_another_message_is_refused(registry: Registry, folder: Path, indexes: bytes) -> None:
    registry.add_version("place", PLACE)
    registry.add(1, PROTO, "PROTOBUF", [{"name": "parts/place.proto", "subject": "place", "version": 1}])
    stream = registered("protobuf", registry, folder, **SINGLE)
    assert contents(stream, header(1) + indexes) == [UNKNOWN_SCHEMA]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ("message {", "x.proto"),
        ('syntax = "proto3"; import "y.proto"; message Event {}', "x.proto"),
        ('syntax = "proto3"; package pkg; message Event {}', "../x.proto"),
        ('syntax = "proto3"; package pkg; message Event {}', "/x/x.proto"),
        ('syntax = "proto3"; package pkg; message Event {}', "."),
        ('syntax = "proto3"; package pkg; message Event {}', "x" * 300),
    ],
)
def test_protobuf_by_a_schema_that_cannot_be_compiled_is_refused(
    registry: Registry, folder: Path, schema: str, name: str
) -> None:
    registry.add_version("x", 'syntax = "proto3";')
    registry.add(2, schema, "PROTOBUF", [{"name": name, "subject": "x", "version": 1}])
    assert contents(registered("protobuf", registry, folder, **SINGLE), header(2) + b"\0\x0a\1u") == [UNKNOWN_SCHEMA]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_answers_with_an_error_fails_the_reading(registry: Registry, status: int) -> None:
    registry.status = status
    with pytest.raises(SourceError, match=f"{registry.url}: the registry answers {status} .* to schemas/ids/1"):
        list(MessageReader(registered("avro", registry)).records(header(1)))


@pytest.mark.parametrize("answer", [b"<html>", b"[]", {"message": "hello"}, {"schema": 5}])
def test_what_is_no_registry_fails_the_reading(registry: Registry, answer: Any) -> None:
    registry.answers["/schemas/ids/1"] = answer
    with pytest.raises(SourceError, match="what answers to schemas/ids/1 is no schema registry"):
        list(MessageReader(registered("avro", registry)).records(header(1)))


@pytest.mark.parametrize("unknown", [b"<html>Not Found</html>", b'{"error_code":404,"message":"HTTP 404 Not Found"}'])
@pytest.mark.parametrize("schema_id", [7, 2**31, 2**32 - 1])
def test_an_id_that_is_not_found_is_unknown_if_there_is_a_registry(
    registry: Registry, unknown: bytes, schema_id: int
) -> None:
    registry.unknown = unknown
    stream = registered("avro", registry)
    with pytest.raises(SourceError, match=f"answers 404 Not Found to schemas/ids/{schema_id}"):
        contents(stream, header(schema_id))
    registry.answers["/subjects"] = []
    assert contents(stream, header(schema_id)) == [UNKNOWN_SCHEMA]
    reader = MessageReader(stream)
    for _ in range(3):
        list(reader.records(header(8)))
    assert (registry.asked.count("/schemas/ids/8"), registry.asked.count("/subjects")) == (1, 2)


def referring(*references: tuple[str, str]) -> References:
    return [{"name": name, "subject": subject, "version": 1} for name, subject in references]


class TestReferences:
    """Those of a schema are asked for once each, and are no way to keep us busy."""

    @pytest.fixture
    def schemas(self, registry: Registry) -> SchemaRegistry:
        return SchemaRegistry(registry.url)

    def test_a_schema_that_refers_to_itself_is_none(self, registry: Registry, schemas: SchemaRegistry) -> None:
        registry.add(1, '"string"', references=referring(("x", "a")))
        registry.add_version("a", '"string"', referring(("y", "b")))
        registry.add_version("b", '"string"', referring(("x", "a")))
        assert schemas.schema(1) is None
        assert len(registry.asked) == 3
        assert contents(registered("avro", registry), header(1)) == [UNKNOWN_SCHEMA]

    @pytest.mark.parametrize("length", [99, 100, 101, 3000])
    def test_there_are_at_most_a_hundred_one_behind_the_other(
        self, registry: Registry, schemas: SchemaRegistry, length: int
    ) -> None:
        registry.add(1, '"string"', references=referring(("n1", "s1")))
        for number in range(1, length + 1):
            more = referring((f"n{number + 1}", f"s{number + 1}")) if number < length else None
            registry.add_version(f"s{number}", str(number), more)
        found = schemas.schema(1)
        assert len(registry.asked) <= 101
        assert (found is not None) == (length <= 100)
        if found:
            assert found.references == tuple((f"n{number}", str(number)) for number in range(length, 0, -1))

    def test_there_are_at_most_a_hundred_beside_each_other(self, registry: Registry, schemas: SchemaRegistry) -> None:
        for many in (100, 101):
            registry.add(many, '"string"', references=referring(*((f"n{number}", "a") for number in range(many))))
        registry.add_version("a", '"int"')
        found = schemas.schema(100)
        assert found
        assert len(found.references) == 100
        assert schemas.schema(101) is None
        assert registry.asked.count("/subjects/a/versions/1") == 2

    def test_what_many_refer_to_is_asked_for_once(self, registry: Registry, schemas: SchemaRegistry) -> None:
        """2^24 ways lead to the last."""
        levels = 24
        for level in range(levels):
            below = referring(*((f"{side}{level}", f"s{level}") for side in "lr"))
            if level:
                registry.add_version(f"s{level - 1}", str(level - 1), below)
            else:
                registry.add(1, '"string"', references=below)
        registry.add_version(f"s{levels - 1}", "end")
        found = schemas.schema(1)
        assert found
        assert len(found.references) == 2 * levels
        assert len(registry.asked) == levels + 1

    @pytest.mark.parametrize(
        "said",
        [
            7,
            ["nothing"],
            [{"subject": "s", "version": 1}],
            [{"name": "x", "subject": 5, "version": 1}],
            [{"name": "x", "subject": "s", "version": "1/../../../config?x=#"}],
            [{"name": "x", "subject": "s", "version": True}],
        ],
    )
    def test_what_is_none_is_never_asked_for(self, registry: Registry, schemas: SchemaRegistry, said: Any) -> None:
        registry.answers["/schemas/ids/1"] = {"schema": '"string"', "references": said}
        with pytest.raises(SourceError, match=f"{registry.url}: what it tells of the references of a schema"):
            schemas.schema(1)
        assert registry.asked == ["/schemas/ids/1"]


SLOW = {
    "header": (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    "body of an error": (b"HTTP/1.1 500 Sorry\r\nContent-Length: 1000000\r\n\r\n", b"x"),
}


@pytest.mark.parametrize("part", SLOW)
def test_an_answer_that_comes_slowly_is_not_waited_for(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup_platform.sources.registry._SECONDS_IN_ALL", 0.3)
    begin, rest = SLOW[part]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(10_000)
                connection.sendall(begin)
                for _ in range(100):
                    connection.sendall(rest)
                    time.sleep(0.1)

        Thread(target=answer, daemon=True).start()
        reason = "answers 500 Sorry" if "error" in part else "cannot be reached: its answer takes too long"
        with pytest.raises(SourceError, match=f"the registry {reason}"):
            SchemaRegistry(f"http://127.0.0.1:{server.getsockname()[1]}").schema(1)


def test_a_missing_reference_fails_the_reading(registry: Registry) -> None:
    registry.add(1, json.dumps(SCHEMA), references=[{"name": "a", "subject": "a/b", "version": 1}])
    with pytest.raises(SourceError, match="it has no subjects/a%2Fb/versions/1, to which a schema refers"):
        list(MessageReader(registered("avro", registry)).records(header(1)))


def test_a_registry_that_is_down_fails_the_reading_and_the_replay() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    stream = message_stream("avro", registry={"url": url})
    with pytest.raises(SourceError, match=f"{url}: the registry cannot be reached: .*refused"):
        list(MessageReader(stream).records(header(1)))
    with pytest.raises(SourceError):
        decode_kept(
            EventDecoder(stream), b"", '{"format":"avro","schema_id":1}', "clicks", datetime(2024, 3, 2, tzinfo=UTC)
        )
    assert contents(stream, b"{}") == [UNKNOWN_SCHEMA]


def test_the_login_is_a_setting(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}REGISTRY_LOGIN", "me:pass:word")
    registry.add(7, json.dumps(SCHEMA))
    contents(registered("avro", registry), header(7) + datum(SCHEMA, GOOD))
    assert registry.logins == [f"Basic {base64.b64encode(b'me:pass:word').decode()}"]


def test_a_worker_is_told_the_login_with_its_task(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{ENV_PREFIX}REGISTRY_LOGIN", "the:server's")
    stream = registered("avro", registry)
    for login, sent in (("me:mine", f"Basic {base64.b64encode(b'me:mine').decode()}"), (None, None)):
        registry.logins.clear()
        log_in(stream.source, login)
        contents(stream, header(7))
        assert set(registry.logins) == {sent}


def test_without_a_login_none_is_sent(registry: Registry) -> None:
    contents(registered("avro", registry), header(7))
    assert set(registry.logins) == {None}


class TestRegistering:
    """A schema gets an id by which others can ask for it."""

    def test_a_schema_is_sent_once(self, registry: Registry) -> None:
        known = SchemaRegistry(registry.url)
        ids = [known.register(subject, "AVRO", text) for subject, text in (("a", "1"), ("b/c", "1"), ("a", "2"))]
        assert [known.register("a", "AVRO", "2"), *ids] == [3, 1, 2, 3]
        assert registry.asked == ["/subjects/a/versions", "/subjects/b%2Fc/versions", "/subjects/a/versions"]
        assert registry.registered == [("a", "AVRO", "1"), ("b%2Fc", "AVRO", "1"), ("a", "AVRO", "2")]
        assert known.schema(3) == RegisteredSchema("AVRO", "2", ())

    def test_the_login_is_sent(self, registry: Registry) -> None:
        registry_with(registry.url, "me:pass").register("a", "PROTOBUF", "1")
        assert registry.logins == [f"Basic {base64.b64encode(b'me:pass').decode()}"]

    @pytest.mark.parametrize("status", [400, 401, 403, 409, 422])
    def test_what_is_refused_is_told_with_the_reason(self, registry: Registry, status: int) -> None:
        registry.status, registry.reason = status, "it is incompatible: " + "x" * 5000
        told = f"{registry.url}: the registry answers {status} .* to subjects/a/versions: it is incompatible: x{{980}}$"
        with pytest.raises(RefusedSchemaError, match=told) as raised:
            SchemaRegistry(registry.url, "me:secret").register("a", "AVRO", "1")
        assert raised.value.code == status
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize("status", [404, 429, 500, 503])
    def test_what_may_pass_is_no_refusal(self, registry: Registry, status: int) -> None:
        registry.status = status
        with pytest.raises(SourceError, match=f"answers {status} ") as raised:
            SchemaRegistry(registry.url).register("a", "AVRO", "1")
        assert not isinstance(raised.value, RefusedSchemaError)
        registry.status = 200
        assert SchemaRegistry(registry.url).register("a", "AVRO", "1") == 1

    @pytest.mark.parametrize("answer", [b"<html>", [], {"message": "hello"}, {"id": "1"}])
    def test_what_is_no_registry_is_said_to_be_none(self, registry: Registry, answer: Any) -> None:
        registry.answers["/subjects/a/versions"] = answer
        with pytest.raises(SourceError, match="what answers to subjects/a/versions is no schema registry"):
            SchemaRegistry(registry.url).register("a", "AVRO", "1")


@given(value=st.binary(max_size=20))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_records_that_decode_again(known: Stream, value: bytes) -> None:
    read(known, value)
    read(known, header(7) + value)


@pytest.fixture(scope="module")
def known() -> Iterator[Stream]:
    with schema_registry() as registry:
        registry.add(7, json.dumps(SCHEMA))
        yield registered("avro", registry)
