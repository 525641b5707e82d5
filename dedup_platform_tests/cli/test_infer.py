"""The command `infer`: what it writes and where, what it asks, and that it overwrites nothing."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.cli import console
from dedup_platform.errors import AlreadyThereError, InferenceError, SourceError

SCRIPT = Path(sys.executable).with_name("dedup-platform")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of events, which is the current one."""
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("DEDUP_PLATFORM_STREAMS", raising=False)
    monkeypatch.setattr(console.out, "width", 200)
    monkeypatch.chdir(tmp_path)
    events = [
        {
            "id": f"e{n}",
            "user": f"u{n % 5}",
            "device": f"d{n % 7}",
            "at": f"2024-03-01T10:{n:02}:00Z",
            "page": f"/{n % 3}",
        }
        for n in range(60)
    ]
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks/a.json").write_text("".join(json.dumps(each) + "\n" for each in events))
    return tmp_path


def infer(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, ["infer", *arguments])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_stream_file_where_commands_look_for_it_and_nothing_else(folder: Path) -> None:
    told = infer("clicks")
    file = folder / "streams/clicks.yaml"
    assert "streams/clicks.yaml is written" in told
    assert "clicks: of 60 records that wait 60 are events" in told
    assert yaml.safe_load(file.read_text())["source"]["path"] == "../clicks/*.json"
    assert sorted(each.name for each in folder.iterdir()) == ["clicks", "streams"]
    os.utime(folder / "clicks/a.json", (1.72e9, 1.72e9))
    assert CliRunner().invoke(cli.app, ["check"]).exit_code == 0

    written = file.read_bytes()
    with pytest.raises(AlreadyThereError, match="name another file with --to") as raised:
        infer("clicks", "--entity", "device")
    assert (cli.exit_code(raised.value), file.read_bytes()) == (2, written)


def test_options_choose(folder: Path) -> None:
    chosen = ["--entity", "device", "--entity", "user", "--id", "user", "--id", "at", "--time", "at", "--name", "taps"]
    infer("clicks/a.json", *chosen, "--to", "elsewhere/mine.yaml")
    said = yaml.safe_load((folder / "elsewhere/mine.yaml").read_text())
    assert (said["name"], said["source"]["path"]) == ("taps", "../clicks/a.json")
    assert said["fields"] | {"attributes": {}} == {
        "entity_id": {"first_of": ["device", "user"]},
        "event_id": ["user", "at"],
        "event_time": "at",
        "attributes": {},
    }


def test_what_cannot_be_proposed_writes_nothing(folder: Path) -> None:
    with pytest.raises(InferenceError, match="no record of the sample has usr; did you mean user"):
        infer("clicks", "--entity", "usr")
    with pytest.raises(SourceError, match="there is no such file or folder"):
        infer("nowhere")
    assert [each.name for each in folder.iterdir()] == ["clicks"]


def test_on_a_terminal_it_asks(folder: Path) -> None:
    """Two answers are the likeliest, one is another."""
    ours, theirs = pty.openpty()
    command = [str(SCRIPT), "infer", "clicks"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder)
    os.close(theirs)
    printed = ""
    for question, answer in (("When did", ""), ("What tells", ""), ("Whose sessions", "device")):
        printed = _until(ours, printed, question, "]: ")
        os.write(ours, f"{answer}\n".encode())
    _until(ours, printed, "Next: read")
    os.close(ours)
    process.wait(60)
    assert yaml.safe_load((folder / "streams/clicks.yaml").read_text())["fields"]["entity_id"] == "device"


def _until(terminal: int, printed: str, *expected: str) -> str:
    """What was printed once these texts stand there, one behind the other."""
    end = time.monotonic() + 60
    while not _are_there(printed, expected):
        assert time.monotonic() < end, printed
        if select.select([terminal], [], [], 1)[0]:
            printed += os.read(terminal, 65536).decode()
    return printed


def _are_there(printed: str, expected: tuple[str, ...]) -> bool:
    at = 0
    for each in expected:
        at = printed.find(each, at) + len(each)
        if at < len(each):
            return False
    return True
