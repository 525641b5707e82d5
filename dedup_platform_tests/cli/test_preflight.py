"""A stream file that does not fit the records is told before they are taken in, and at the latest by the first run."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.cli import console

EVENT = {"actor": {"id": "ann"}, "id": "e1", "time": "2024-03-01T10:00:00Z", "note": ""}
FIELDS: dict[str, Any] = {"entity_id": "actor.id", "event_id": "id", "event_time": "time"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(tmp_path / "streams"))
    monkeypatch.setattr(console.out, "width", 200)
    (tmp_path / "streams").mkdir()
    return tmp_path


def write(folder: Path, name: str, *events: Any, path: str | None = None, **fields: Any) -> None:
    """A stream, and a file of its events, unless there are none."""
    if events:
        (folder / name).mkdir()
        (folder / name / "a.json").write_text("".join(json.dumps(event) + "\n" for event in events))
    said = {
        "name": name,
        "source": {"kind": "files", "path": path or f"{folder}/{name}/*.json", "format": "json", "settle": "0s"},
        "fields": FIELDS | fields,
        "partitions": {"granularity": "day", "start": "2024-01-01"},
        "sessions": {"timeout": "30m"},
    }
    (folder / "streams" / f"{name}.yaml").write_text(yaml.safe_dump(said))


def check(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["check", *arguments])
    found = cli.exit_code(done.exception) if isinstance(done.exception, Exception) else done.exit_code
    assert found == code, done.output
    return f"{done.output}{done.exception or ''}"


def test_each_field_is_counted(folder: Path) -> None:
    events = [EVENT, EVENT | {"id": "e2", "time": "soon"}, EVENT | {"id": ""}]
    write(folder, "clicks", *events, attributes={"note": "note"})
    assert "clicks: of 3 records that wait 1 are events, others rejected: unreadable_event_time 1, mis" in check()
    [told] = json.loads(check("--json"))
    assert (told["sample"]["events"], told["sample"]["rejected"]["missing_event_id"]) == (1, 1)
    numbers = {
        column: [each[name] for name in ("found", "empty", "absent", "unreadable")]
        for column, each in told["sample"]["columns"].items()
    }
    assert numbers == {
        "entity_id": [3, 0, 0, 0],
        "event_id": [2, 1, 0, 0],
        "event_time": [2, 0, 0, 1],
        "note": [0, 3, 0, 0],
    }
    assert told["sample"]["columns"]["event_id"]["values"] == ["e1", "e2"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"entity_id": "actor_id"}, "fields.entity_id: none of 1 records has actor_id; did you mean actor.id?; they"),
        ({"event_time": "tim"}, "fields.event_time: none of 1 records has tim; did you mean time?; they have: id, "),
        ({"event_id": "key"}, "fields.event_id: none of 1 records has key; they have: id, time, note, actor.id"),
        ({"attributes": {"x": "page"}}, "fields.attributes.x: none of 1 records has page; they have: id, time, no"),
        ({"event_time": {"field": "time", "format": "epoch_ms"}}, "all of the first 1 records would be rejected: un"),
    ],
)
def test_what_no_record_has_is_refused(fields: dict[str, Any], told: str, folder: Path) -> None:
    write(folder, "clicks", EVENT, **fields)
    assert f"{folder}/streams/clicks.yaml: {told}" in check(code=2)
    assert "none of" not in check("--offline")


def test_what_one_record_has_is_right(folder: Path) -> None:
    write(folder, "clicks", EVENT, EVENT | {"page": "/"}, attributes={"page": "page"})
    assert "clicks: of 2 records that wait 2 are events" in check()


@pytest.mark.parametrize("path", ["{folder}/nowhere/*.json", "{folder}/other/*.csv"])
def test_files_that_are_not_there(path: str, folder: Path) -> None:
    write(folder, "other", EVENT)
    write(folder, "clicks", path=path.format(folder=folder))
    told = check(code=5)
    assert "other: of 1 records that wait 1 are events" in told
    assert str(Path(path.format(folder=folder)).parent) in told


@pytest.mark.usefixtures("spark_for_commands")
def test_a_run_whose_records_become_nothing_fails_and_tells_the_way_out(folder: Path) -> None:
    write(folder, "nobody", EVENT, entity_id="user")
    write(folder, "rejected", EVENT, EVENT, event_id="key")
    write(folder, "right", EVENT)
    done = CliRunner().invoke(cli.app, ["run"])
    told = f"{done.output}{done.exception}"
    assert "none of 1 events has an entity (fields.entity_id), so there are no sessions" in told
    assert "rejected: all 2 records were rejected: missing_event_id 2; `dedup-platform rejected list rejected`" in told
    assert "right: none" not in told

    planned = CliRunner().invoke(cli.app, ["plan"]).output
    assert "rejected: 2 records are rejected. `dedup-platform rejected list rejected` tells why" in planned
    assert "right:" not in planned

    write_again(folder, "nobody")
    write_again(folder, "rejected")
    write(folder, "waiting", EVENT)
    redecode = "`dedup-platform redecode nobody --partitions 2024-03-01..2024-03-01`"
    for teller in ("plan", "status", "check"):
        told = CliRunner().invoke(cli.app, [teller]).output
        assert 'nobody: the stream file changed: fields.entity_id: "user" -> "actor.id"' in told
        assert f"nobody: 1 records were taken in before, and what became of them stays; {redecode}" in told
        assert "2 would be events by now: `dedup-platform rejected replay rejected` takes them in" in told
        assert ("waiting: 1 files (81 B) wait at the source; `dedup-platform run`" in told) == (teller == "plan")
        assert "right: the" not in told
    (folder / "streams/waiting.yaml").unlink()
    for command in (
        ["redecode", "nobody", "--partitions", "2024-03-01..2024-03-01"],
        ["rejected", "replay", "rejected"],
        ["run"],
    ):
        assert CliRunner().invoke(cli.app, command).exit_code == 0


def write_again(folder: Path, name: str) -> None:
    """Mend a stream file."""
    file = folder / "streams" / f"{name}.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"fields": FIELDS}))
