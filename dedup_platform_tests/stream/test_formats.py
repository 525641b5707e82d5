"""What a stream file may say of formats, and how it is told that a schema does not have what the stream names."""

import json
import os
import pickle
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pydantic import ValidationError

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import Stream, load_stream
from dedup_platform_tests.sources.click_streams import message_stream
from dedup_platform_tests.sources.schemas import write_protos

# The lines' numbers are in what the tests expect.
PROTOBUF = dedent(
    """\
    name: clicks
    source:
      kind: files
      path: events/*.pb
      format: protobuf
      protobuf:
        schema: events.proto
        message: pkg.Batch
        records: events
    fields:
      entity_id: user
      event_id: [id, n]
      event_time: at
      attributes:
        amount: {field: price, type: double}
    partitions: {granularity: day, start: 2026-01-31}
    sessions: {timeout: 30m}
    """
)
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": name, "type": "string"} for name in ("user", "id", "at")],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    write_protos(folder)
    (folder / "broken.proto").write_text('syntax = "proto3";\nmessage {')
    (folder / "lonely.proto").write_text('syntax = "proto3";\nimport "elsewhere.proto";')
    (folder / "text.desc").write_text('{"user": "u"}')
    (folder / "empty.desc").write_bytes(b"")
    (folder / "click.avsc").write_text(json.dumps(CLICK))
    (folder / "string.avsc").write_text('"string"')
    (folder / "broken.avsc").write_text('{"type": "record"')
    return folder


def load(folder: Path, text: str) -> Stream:
    (folder / "clicks.yaml").write_text(text)
    return load_stream(folder / "clicks.yaml")


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(StreamFileError) as refused:
        load(folder, text)
    return [problem.removeprefix(f"{folder}/clicks.yaml:") for problem in refused.value.problems]


@pytest.mark.parametrize("name", ["events.proto", "-x.proto", "@x.proto", "--version.proto", "a b.proto"])
def test_a_schema_may_have_any_name_in_any_folder(tmp_path: Path, name: str) -> None:
    place = tmp_path / "a:b @c"
    (place / "grpc_tools").mkdir(parents=True)
    (place / "grpc_tools" / "__init__.py").write_text("raise SystemExit('was run')")
    write_protos(place)
    (place / "events.proto").rename(place / name)
    stream = load(place, PROTOBUF.replace("events.proto", f"'{name}'"))
    assert stream.source.protobuf
    files = FileDescriptorSet.FromString(stream.source.protobuf.schema_file.content).file
    assert [file.name for file in files][-1] == name


def test_a_pipe_is_no_schema_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "events.proto")
    assert problems(tmp_path, PROTOBUF) == [
        f"7: source.protobuf.schema: {tmp_path}/events.proto cannot be read: it is no regular file (got 'events.proto')"
    ]


def test_what_is_too_large_is_no_schema(tmp_path: Path) -> None:
    with (tmp_path / "events.desc").open("wb") as file:
        file.truncate(17 * 2**20)
    assert problems(tmp_path, PROTOBUF.replace("events.proto", "events.desc")) == [
        "7: source.protobuf.schema: is larger than 16 MiB, as no schema is (got 'events.desc')"
    ]


@pytest.mark.parametrize("schema", ["events.proto", "events.desc"])
def test_a_schema_goes_with_the_stream(folder: Path, schema: str) -> None:
    stream = load(folder, PROTOBUF.replace("events.proto", schema))
    assert stream.source.protobuf
    assert stream.source.protobuf.schema_file.path == schema
    assert stream.source.protobuf.schema_file.content == (folder / "events.desc").read_bytes()
    assert pickle.loads(pickle.dumps(stream)) == stream
    dumped = stream.model_dump()["source"]
    assert dumped["protobuf"] == {"schema": schema, "message": "pkg.Batch", "records": "events"}
    assert dumped["json"] is None


def test_another_schema_is_another_stream(folder: Path, tmp_path: Path) -> None:
    write_protos(tmp_path)
    stream = load(folder, PROTOBUF)
    assert load(tmp_path, PROTOBUF) == stream
    (tmp_path / "events.proto").write_text((folder / "events.proto").read_text() + "message More {}")
    assert load(tmp_path, PROTOBUF) != stream


def test_an_absolute_path_is_taken_as_it_is(folder: Path, tmp_path: Path) -> None:
    stream = load(tmp_path, PROTOBUF.replace("events.proto", f"{folder}/events.desc"))
    assert Stream.model_validate(stream.model_dump()) == stream
    assert Stream.model_validate_json(stream.model_dump_json()) == stream


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("events.proto", "gone.proto", "7: source.protobuf.schema: {}/gone.proto cannot be read: No such file"),
        ("events.proto", "parts", "7: source.protobuf.schema: {}/parts cannot be read: Is a directory (got 'parts')"),
        ("events.proto", "''", "7: source.protobuf.schema: is no path; write one that is absolute or relative to the"),
        ("events.proto", "[a]", "7: source.protobuf.schema: is no path; write one that is absolute or relative to the"),
        ("events.proto", "broken.proto", "7: source.protobuf.schema: cannot be compiled: broken.proto:2:9: Expe"),
        ("events.proto", "lonely.proto", "7: source.protobuf.schema: cannot be compiled: elsewhere.proto: File not "),
        ("events.proto", "text.desc", "7: source.protobuf.schema: is no Protobuf descriptor set; a schema in text is"),
        ("events.proto", "empty.desc", "7: source.protobuf.schema: is a descriptor set without any files"),
        ("events.proto", "partial.desc", "7: source.protobuf.schema: cannot be used: "),
        ("pkg.Batch", "Batch", "8: source.protobuf.message: is no message of the schema; allowed: "),
        (
            "events\nfields",
            "event\nfields",
            "9: source.protobuf.records: is no repeated message field of pkg.Batch;",
        ),
        (
            "events\nfields",
            "sender\nfields",
            "9: source.protobuf.records: is no repeated message field of pkg.Batch;",
        ),
        (
            "message: pkg.Batch",
            "message: pkg.Event",
            "9: source.protobuf.records: is no repeated message field of pk",
        ),
        ("schema:", "scheme:", "6: source.protobuf.schema: is missing"),
        (
            "records:",
            "record:",
            "9: source.protobuf.record: unknown key; did you mean records?; allowed: schema, mess",
        ),
        ("user", "users", "11: fields.entity_id: 'users' is no field of the records; allowed: user, id, at, n, price"),
        ("[id, n]", "[id, m]", "12: fields.event_id: 'm' is no field of the records; allowed: user, id, at, "),
        ("[id, n]", "{hash: [id, m]}", "12: fields.event_id.hash: 'm' is no field of the records; allowed: user, id, "),
        ("[id, n]", "m", "12: fields.event_id: 'm' is no field of the records; allowed: user, id, at, "),
        ("event_time: at", "event_time: when", "13: fields.event_time: 'when' is no field of the records; allowed: "),
        ("event_time: at", "event_time: at\n  arrival_time: got", "14: fields.arrival_time: 'got' is no field of "),
        ("field: price", "field: prize", "15: fields.attributes.amount: 'prize' is no field of the records; allowed: "),
        ("  format: protobuf", "  format: json", "2: source: protobuf is for the format protobuf, not for json"),
    ],
)
def test_what_a_stream_file_may_not_say_of_protobuf(folder: Path, old: str, new: str, expected: str) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    whole = FileDescriptorSet.FromString((folder / "events.desc").read_bytes())
    (folder / "partial.desc").write_bytes(FileDescriptorSet(file=whole.file[-1:]).SerializeToString())
    found = problems(folder, PROTOBUF.replace(old, new, 1))
    assert found[0].startswith(expected.format(folder)), found


def test_every_problem_of_a_schema_is_told_at_once(folder: Path) -> None:
    text = PROTOBUF.replace("[id, n]", "[id, m]").replace("price", "prize")
    assert [problem.split(":")[0] for problem in problems(folder, text)] == ["12", "15"]


def test_the_format_protobuf_needs_a_message(folder: Path) -> None:
    text = PROTOBUF.replace("  protobuf:\n    schema: events.proto\n    message: pkg.Batch\n    records: events\n", "")
    assert problems(folder, text) == [
        "2: source: the format protobuf needs its message; write protobuf: {schema: …, message: …} "
        "(got {'kind': 'files', 'path': 'events/*.pb', 'format': 'protobuf'})"
    ]


FILES: list[tuple[dict[str, Any], str]] = [
    ({"format": "csv", "csv": {"columns": ["user", "id"]}}, "'at' is no field of the records; allowed: user, id"),
    ({"format": "csv", "csv": {"columns": ["at", "at"]}}, "names one field twice"),
    ({"format": "csv", "csv": {"columns": []}}, "must have at least 1 in it"),
    (
        {"format": "json", "json": {"records": "events"}},
        "json.records is for messages; for the lists in files write explode",
    ),
    ({"format": "csv", "explode": "a"}, "explode is for json, avro and parquet, not for csv: a line has no list"),
    ({"format": "avro", "explode": "*"}, 'explode: "*" is for json; a record of avro is no list, name one in it'),
    ({"format": "json", "explode": "a[0]"}, "'a[0]' is no path of names to a list of events, like Records or det"),
    ({"format": "json", "explode": "a..b"}, "'a..b' is no path of names to a list of events, like Records or det"),
    ({"format": "json", "explode": 7}, "must be a field: a name, a path like actor.id or items[0].sku, or a list"),
    ({"format": "avro", "avro": {"schema": "click.avsc"}}, "avro.schema is for messages; an Avro file holds the"),
    ({"format": "json", "registry": {"url": "http://r:1"}}, "registry is for messages; files do not begin by"),
]


@pytest.mark.parametrize(("source", "expected"), FILES)
def test_what_files_cannot_be_read_with(folder: Path, source: dict[str, Any], expected: str) -> None:
    stream = {
        "name": "clicks",
        "source": {"kind": "files", "path": "events/*"} | source,
        "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"},
        "partitions": {"granularity": "day", "start": "2024-01-01"},
        "sessions": {"timeout": "30m"},
    }
    [problem] = problems(folder, json.dumps(stream))
    assert expected in problem


MESSAGES: list[tuple[str, dict[str, Any], str]] = [
    ("parquet", {}, "parquet is for files; allowed for messages: csv, json, avro, protobuf"),
    ("json", {"explode": "a", "json": {"records": "a"}}, "explode and json.records say the same; write explode"),
    ("csv", {"csv": {"delimiter": ";;"}}, "must be one character, but no quote or end of a line"),
    ("csv", {"csv": {"delimiter": '"'}}, "must be one character, but no quote or end of a line"),
    ("csv", {"csv": {"quote": "''"}}, "must be one character, but no end of a line"),
    ("csv", {"csv": {"quote": "\n"}}, "must be one character, but no end of a line"),
    ("csv", {"csv": {"delimiter": "|", "quote": "|"}}, "quote and delimiter are both '|'"),
    ("csv", {"csv": {"encoding": "latin-one"}}, "'latin-one' is no known encoding; write one like utf-8, utf-16"),
    ("csv", {"csv": {"encoding": "unicode_escape"}}, "'unicode_escape' is no known encoding"),
    ("csv", {"csv": {"encoding": "cp99999"}}, "'cp99999' is no known encoding"),
    ("csv", {"csv": {"comment": ""}}, "is empty"),
    ("csv", {"csv": {"delimiter": ";"}}, "messages of csv have no header; write csv: {columns: […]}"),
    ("csv", {}, "messages of csv have no header; write csv: {columns: […]}"),
    ("csv", {"csv": {"columns": ["a"]}, "registry": {"url": "http://r:1"}}, "a registry has no schemas of csv"),
    ("avro", {}, "messages of avro need a schema; write avro: {schema: …} or registry: {url: …}"),
    ("avro", {"avro": {"schema": "string.avsc"}}, "is not the Avro schema of a record"),
    ("avro", {"avro": {"schema": "broken.avsc"}}, "is no Avro schema: "),
    ("avro", {"registry": {"url": "registry:8081"}}, "is no address; write one like http://registry:8081"),
    ("avro", {"registry": {"url": "http://me:secret@r"}}, "must hold no password; set DEDUP_PLATFORM_REGISTRY_LOGIN"),
]


@pytest.mark.parametrize(("message_format", "source", "expected"), MESSAGES)
def test_what_messages_cannot_be_read_with(
    folder: Path, message_format: str, source: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        message_stream(message_format, folder, **source)
    [error] = refused.value.errors()
    assert expected in error["msg"]
