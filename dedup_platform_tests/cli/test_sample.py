"""`check --sample`: what it prints for people and for programs."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli

STREAM = """\
name: {name}
source: {{kind: files, path: "in/*.json", format: json}}
fields:
  entity_id: actor.id
  event_id: id
  event_time: at
  attributes: {{login: actor.login}}
partitions: {{granularity: day, start: 2024-01-01}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    (tmp_path / "clicks.yaml").write_text(STREAM.format(name="clicks"))
    event = {"actor": {"id": 7}, "id": "[bold]e", "at": "2024-03-01"}
    (tmp_path / "a.json").write_text(json.dumps(event) + "\n" + json.dumps(event | {"id": ""}) + "\nnonsense\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["check", "--streams", str(folder), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_sample_for_people(folder: Path) -> None:
    printed = run(folder, "--sample", str(folder / "a.json"))
    assert "record 0, index 0: an event" in printed
    assert "[bold]e" in printed
    assert "null: actor has no 'login'; it has: id" in " ".join(printed.split())
    assert "record 1, index 0: rejected as missing_event_id" in printed
    assert "it begins nonsense" in printed
    said = "Of the first 3 records: 1 events, 1 rejected as missing_event_id, 1 rejected as malformed_record."
    assert said in " ".join(printed.split())


def test_a_sample_for_programs(folder: Path) -> None:
    told = json.loads(run(folder, "--sample", str(folder / "a.json"), "--json"))
    assert (told["events"], told["rejected"]) == (1, {"missing_event_id": 1, "malformed_record": 1})
    first, second, third = told["records"]
    assert first["fields"]["entity_id"] == {"field": "actor.id", "text": "7", "value": "7", "trouble": None}
    assert (second["source_offset"], second["rejection_reason"]) == (1, "missing_event_id")
    assert third["fields"] == {}


def test_which_stream(folder: Path) -> None:
    (folder / "other.yaml").write_text(STREAM.format(name="other"))
    refused = CliRunner().invoke(cli.app, ["check", "--streams", str(folder), "--sample", str(folder / "a.json")])
    assert refused.exit_code == 2
    assert "of which stream? Name it with --stream: clicks, other" in " ".join(refused.output.replace("│", "").split())
    assert "1 events" in run(folder, "--sample", str(folder / "a.json"), "--stream", "other")
    alone = CliRunner().invoke(cli.app, ["check", "--streams", str(folder), "--stream", "other", "--offline"])
    assert (alone.exit_code, "other" in alone.output, "clicks" in alone.output) == (0, True, False)
