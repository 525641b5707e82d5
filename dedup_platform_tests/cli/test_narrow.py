"""On a narrow terminal no value is cut: what is printed on a wide one is there, word by word."""

import re
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.cli import console
from dedup_platform.cli.grid import plain_table, print_table
from dedup_platform.orchestration import progress
from dedup_platform.spark.watching import tell
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

NARROW, WIDE = 60, 300
PAGE: dict[str, Any] = {"page": "/a", "amount": "1.50", "quantity": 1}
COMMANDS = {
    "status": 0,
    "plan": 0,
    "check": 0,
    "check --offline": 0,
    "rejected list a_stream_with_a_long_name --limit 5": 0,
    "stream reset a_stream_with_a_long_name": cli.REFUSED,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with something of everything: built, stale, rejected and waiting."""
    folder: Path = tmp_path_factory.mktemp("narrow")
    stream = make_stream(folder, "a_stream_with_a_long_name", start="2024-03-01")
    platform = light_platform(folder / "home", stream, HeldClock(utc("2024-04-01")))
    write_batch(stream, lay_out([record("a", "1", utc("2024-03-01T10:00"))], "first.json"))
    (stream.files.root / "a_file_with_a_long_name_of_rejected_records.json").write_text("no json\n")
    platform.ingest(stream.name)
    platform.repair(stream.name)
    platform.publish_changes(stream.name)
    write_batch(stream, lay_out([record("a", "2", utc("2024-03-02T10:00"))], "second.json"))
    platform.ingest(stream.name)
    write_batch(stream, lay_out([record("a", "3", utc("2024-03-03T10:00"), **PAGE)], "third.json"))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_word_is_there(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(folder / "home"))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(folder / "a_stream_with_a_long_name.yaml"))
    printed = {}
    for width in (NARROW, WIDE):
        monkeypatch.setattr(console.out, "width", width)
        done = CliRunner().invoke(cli.app, command.split())
        assert done.exit_code == COMMANDS[command], done.output
        printed[width] = done.stdout
    # How long something has waited goes on from one to the other.
    words = {width: set(re.findall(r"[\w./:-]+", re.sub(r"\b\d+s\b", "", text))) for width, text in printed.items()}
    assert {word for word in words[WIDE] - words[NARROW] if len(word) < NARROW - 2} == set()
    assert max(map(len, printed[WIDE].splitlines())) > NARROW


def test_a_table_that_fits_stays_one() -> None:
    table = plain_table("table", "rows#", "sources~")
    table.add_row("raw_events", "1,234", "one.json, two.json, three.json and 12 more of them")
    for width, is_table in ((50, True), (20, False)):
        narrow = Console(width=width)
        with narrow.capture() as told:
            print_table(narrow, table)
        assert ("───" in told.get()) == is_table
        assert {"raw_events", "1,234", "three.json"} <= set(re.findall(r"[\w,.]*\w", told.get()))


def test_bars_move_within_a_step() -> None:
    screen = StringIO()
    terminal = Console(file=screen, width=NARROW, force_terminal=True)

    def shown() -> str:
        time.sleep(0.3)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
        screen.seek(0)
        screen.truncate()
        assert max(map(len, re.split(r"[\r\n]", text))) <= NARROW
        return text

    with progress.shown(terminal, "clicks", 6) as listener:
        tell("files", 10, 40)
        assert "10 of 40 files" in shown()
        tell("files", 20, 40)
        text = shown()
        assert "step 1 of 6" in text
        assert "20 of 40 files" in text
        listener.done(1)
        text = shown()
        assert "step 2 of 6" in text
        assert "files" not in text.split("step 2 of 6")[-1]
        tell("tasks", 1, 3)
        assert "1 of 3 tasks" in shown()
