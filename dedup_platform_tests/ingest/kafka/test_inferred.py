"""A stream file for a topic, proposed from its first messages, by the command."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.errors import InferenceError
from dedup_platform_tests.ingest.kafka.conftest import NewTopic
from dedup_platform_tests.ingest.kafka.topics import START, Topic, event
from dedup_platform_tests.sources.registries import schema_registry
from dedup_platform_tests.sources.test_avro import datum


def infer(folder: Path, topic: str, brokers: str, *more: str) -> str:
    """What the command says of a topic."""
    to = str(folder / f"{topic}.yaml")
    done = CliRunner().invoke(cli.app, ["infer", topic, "--brokers", brokers, "--to", to, *more])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def test_messages_of_one_event_and_of_many(
    new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    append_time = {"message.timestamp.type": "LogAppendTime"}
    single, batched = new_topic(2, **append_time), new_topic(**append_time)
    events = [event(number, f"user {number % 7}", page={"path": f"/{number % 3}"}) for number in range(120)]
    single.produce(*events[:60])
    single.produce(*events[60:], partition=1)
    batched.produce(*({"sent": 1, "events": events[at : at + 20]} for at in range(0, 120, 20)))
    for topic, explode in ((single, None), (batched, "events")):
        told = infer(tmp_path, topic.name, topic.server.brokers)
        assert "of 120 records that wait 120 are events" in told
        said = yaml.safe_load((tmp_path / f"{topic.name}.yaml").read_text())
        assert said["source"] == {
            "kind": "kafka",
            "brokers": topic.server.brokers,
            "topic": topic.name,
            "format": "json",
        } | ({"explode": explode} if explode else {})
        assert said["fields"] == {"entity_id": "user", "event_id": "id", "event_time": "at"} | {
            "attributes": {"page_path": "page.path"}
        }


AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "page", "type": {"type": "record", "name": "Page", "fields": [{"name": "path", "type": "string"}]}},
    ],
}
FIELDS = {"entity_id": "user", "event_id": "id", "event_time": "at", "attributes": {"page_path": "page.path"}}


def clicks(begin: bytes = b"") -> list[bytes]:
    """Sixty messages of Avro behind these bytes."""
    events = [
        {"user": f"user {n % 7}", "id": f"e{n}", "at": START + timedelta(seconds=n), "page": {"path": f"/{n % 3}"}}
        for n in range(60)
    ]
    return [begin + datum(AVRO, each) for each in events]


@pytest.fixture
def topic(new_topic: NewTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topic:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    return new_topic(**{"message.timestamp.type": "LogAppendTime"})


def said_of(folder: Path, topic: Topic) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of the stream file that tell the format, and its fields."""
    said = yaml.safe_load((folder / f"{topic.name}.yaml").read_text())
    place = {"kind", "brokers", "topic"}
    return {name: value for name, value in said["source"].items() if name not in place}, said["fields"]


def test_avro_by_the_schema_that_is_named(topic: Topic, tmp_path: Path) -> None:
    topic.produce(*clicks())
    brokers = topic.server.brokers
    with pytest.raises(InferenceError, match=r"no JSON; say how they are written by --schema FILE"):
        infer(tmp_path, topic.name, brokers)
    (tmp_path / "click.avsc").write_text(json.dumps(AVRO))
    told = infer(tmp_path, topic.name, brokers, "--schema", str(tmp_path / "click.avsc"))
    assert "of 60 records that wait 60 are events" in told
    schema = str(tmp_path / "click.avsc")
    assert said_of(tmp_path, topic) == ({"format": "avro", "avro": {"schema": schema}}, FIELDS)


def test_the_registry_says_that_it_is_avro(topic: Topic, tmp_path: Path) -> None:
    topic.produce(*clicks(b"\0\0\0\0\7"))
    brokers = topic.server.brokers
    with pytest.raises(InferenceError, match="say how they are written by --registry URL"):
        infer(tmp_path, topic.name, brokers)
    with schema_registry() as registry:
        with pytest.raises(InferenceError, match="none of 60 messages begins by the id of a schema that the registry"):
            infer(tmp_path, topic.name, brokers, "--registry", registry.url)
        registry.add(7, json.dumps(AVRO))
        told = infer(tmp_path, topic.name, brokers, "--registry", registry.url)
        assert "of 60 records that wait 60 are events" in told
        assert said_of(tmp_path, topic) == ({"registry": {"url": registry.url}, "format": "avro"}, FIELDS)


def test_messages_of_json_behind_an_id(topic: Topic, tmp_path: Path) -> None:
    events = [event(number, f"user {number % 7}", page={"path": f"/{number % 3}"}) for number in range(60)]
    batches = ({"events": events[at : at + 20]} for at in range(0, 60, 20))
    topic.produce(*(b"\0\0\0\0\7" + json.dumps(each).encode() for each in batches))
    with schema_registry() as registry:
        registry.add(7, "{}", "JSON")
        told = infer(tmp_path, topic.name, topic.server.brokers, "--registry", registry.url)
        assert "of 60 records that wait 60 are events" in told
        said = {"registry": {"url": registry.url}, "format": "json", "explode": "events"}
        assert said_of(tmp_path, topic) == (said, FIELDS)


def test_protobuf_needs_its_schema_beside_the_registry(topic: Topic, tmp_path: Path) -> None:
    topic.produce(b"\0\0\0\0\7\0abc")
    with schema_registry() as registry:
        registry.add(7, 'syntax = "proto3"; message E { string id = 1; }', "PROTOBUF")
        with pytest.raises(InferenceError, match=r"are Protobuf; add their schema: --schema FILE\.proto"):
            infer(tmp_path, topic.name, topic.server.brokers, "--registry", registry.url)
