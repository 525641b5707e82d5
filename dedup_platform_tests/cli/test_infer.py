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
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.cli import console
from dedup_platform.errors import AlreadyThereError, InferenceError, SourceError
from dedup_platform.stream.schemas import compiled_proto, message_type
from dedup_platform_tests.sources.schemas import varint

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


PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Page { string path = 1; }
message Visit { string visitor = 1; string id = 2; google.protobuf.Timestamp at = 3; Page page = 4; }
message Visits { repeated Visit visits = 1; }
"""


def write_protobuf(folder: Path, name: str) -> None:
    """The schema, and a file of messages of this name with 60 visits among them, each behind its length."""
    (folder / "shop.proto").write_text(PROTO)
    descriptors = compiled_proto(folder, "shop.proto")
    message = GetMessageClass(message_type(descriptors, f"shop.{name}"))
    visits = [
        {"visitor": f"v{n % 5}", "id": f"e{n}", "at": f"2024-03-01T10:{n:02}:00Z", "page": {"path": f"/{n % 3}"}}
        for n in range(60)
    ]
    said = visits if name == "Visit" else [{"visits": visits[at : at + 20]} for at in range(0, 60, 20)]
    (folder / "visits").mkdir()
    with (folder / "visits" / "some.bin").open("wb") as file:
        for each in said:
            encoded = ParseDict(each, message()).SerializeToString()
            file.write(varint(len(encoded)) + encoded)


@pytest.mark.parametrize(("name", "more"), [("Visit", []), ("Visits", ["--explode", "visits"])])
def test_protobuf_is_read_by_the_schema_that_is_named(folder: Path, name: str, more: list[str]) -> None:
    write_protobuf(folder, name)
    told = infer("visits", "--schema", "shop.proto", "--message", f"shop.{name}", *more)
    assert "of 60 records that wait 60 are events" in told
    said = yaml.safe_load((folder / "streams" / "visits.yaml").read_text())
    records = {"records": "visits"} if more else {}
    assert said["source"] == {
        "kind": "files",
        "path": "../visits/*.bin",
        "format": "protobuf",
        "protobuf": {"schema": "../shop.proto", "message": f"shop.{name}"} | records,
    }
    assert {name: said["fields"][name] for name in ("entity_id", "event_id", "event_time")} == {
        "entity_id": "visitor",
        "event_id": "id",
        "event_time": "at",
    }


def test_what_a_schema_lacks_is_told(folder: Path) -> None:
    write_protobuf(folder, "Visit")
    for arguments, reason in (
        (["visits"], "Protobuf needs --schema FILE.proto"),
        (["visits", "--schema", "none.proto"], "none.proto: cannot be read: No such file"),
        (
            ["visits", "--schema", "shop.proto", "--message", "Visit"],
            r"^visits: source.protobuf.message: is no .* allowed: .*shop.Visit,",
        ),
        (["visits", "--schema", "clicks/a.avsc"], "cannot be read"),
        (["clicks", "--registry", "http://127.0.0.1:1"], "registry is for messages"),
    ):
        with pytest.raises(InferenceError, match=reason):
            infer(*arguments)
    assert not (folder / "streams").exists()


def test_of_a_schema_the_message_is_read_that_no_other_holds(folder: Path) -> None:
    write_protobuf(folder, "Visits")
    assert "60 are events" in infer("visits", "--schema", "shop.proto", "--explode", "visits")
    (folder / "shop.proto").write_text(f"{PROTO}message Other {{ string x = 1; }}")
    with pytest.raises(InferenceError, match=r"name one of them: shop.Visits, shop.Other \(--message NAME\)"):
        infer("visits", "--schema", "shop.proto", "--name", "others")


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
