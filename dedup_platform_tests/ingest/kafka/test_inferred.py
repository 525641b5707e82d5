"""A stream file for a topic, proposed from its first messages, by the command."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform_tests.ingest.kafka.conftest import NewTopic
from dedup_platform_tests.ingest.kafka.topics import event


def infer(folder: Path, topic: str, brokers: str) -> str:
    """What the command says of a topic."""
    done = CliRunner().invoke(cli.app, ["infer", topic, "--brokers", brokers, "--to", str(folder / f"{topic}.yaml")])
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
