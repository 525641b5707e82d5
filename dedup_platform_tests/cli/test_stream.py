"""`stream reset` and `stream drop`: what they say goes, that they ask, and how they end."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.cli import console
from dedup_platform.planning.claims import ALL
from dedup_platform.platform import Platform
from dedup_platform.stream import load_stream
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch

NAME = "events"
SCRIPT = Path(sys.executable).with_name("dedup-platform")


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Platform:
    """A stream of two files with a sink that has got all; of one file the source knows no more."""
    stream = make_stream(tmp_path, start="2024-03-01")
    content = yaml.safe_load(stream.origin.read_text())
    factory = "dedup_platform_tests.sinks.sqlite_table:open_table"
    sink = {"kind": "custom", "follows": "sessions", "factory": factory, "options": {"file": str(tmp_path / "copy.db")}}
    stream.origin.write_text(yaml.safe_dump(content | {"publish": {"sinks": {"copy": sink}}}))
    stream = load_stream(stream.origin)
    write_batch(stream, lay_out([record("a", "1", utc("2024-03-01")), record("b", "1", utc("2024-03-01"))], "one.json"))
    write_batch(stream, lay_out([record("a", "2", utc("2024-03-02"))], "two.json"))
    # Claims are live or not by the clock of the command that asks.
    found = light_platform(tmp_path / "home", stream, HeldClock(utc("2024-04-01")))
    found.ingest(NAME)
    found.repair(NAME)
    found.publish(NAME, "copy")
    (stream.files.root / "one.json").unlink()
    monkeypatch.setenv("DEDUP_PLATFORM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DEDUP_PLATFORM_STREAMS", str(tmp_path))
    monkeypatch.setattr(console.out, "width", 200)
    return found


def said(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli.app, ["stream", *arguments])
    found = cli.exit_code(done.exception) if isinstance(done.exception, Exception) else done.exit_code
    assert found == code, done.output
    return " ".join(f"{done.output}{done.exception or ''}".split())


def test_reset_says_what_goes_and_forgets_it(platform: Platform) -> None:
    asked = said("reset", NAME, code=cli.REFUSED)
    place = platform.stream(NAME).files.place
    assert "raw_events 3 " in asked
    assert "session_changes 3 " in asked
    assert f"2 files were read, and are read again: {place}" in asked
    assert "1 of them are there no more: their 2 records cannot be read again." in asked
    assert "The sink copy (custom) holds sessions. The next run that publishes gives it all rows once more" in asked
    assert "Forget all that was taken in of events? nothing was changed; --yes says yes beforehand" in asked
    assert platform.rows(NAME, SESSIONS) == 3

    assert "events begins anew with the next run." in said("reset", NAME, "--yes")
    assert platform.status(NAME).tables == ()
    assert "nothing was taken in yet; there is nothing to forget" in said("reset", NAME)
    assert "there is no stream named 'event'; known streams: events" in said("reset", "event", "--yes", code=2)


def test_drop_needs_no_stream_file(platform: Platform) -> None:
    origin = platform.stream(NAME).origin
    asked = said("drop", NAME, code=cli.REFUSED)
    assert "The sink copy (custom) keeps what it holds of sessions." in asked
    assert f"The stream file stays: {origin}. As long as it is there, a run begins the stream anew." in asked
    origin.unlink()
    assert "events is gone from the lake." in said("drop", NAME, "--yes")
    assert not Path(platform.settings.warehouse, NAME).exists()
    assert "there is no stream named 'events'" in said("drop", NAME, "--yes", code=2)


def test_who_is_at_work_is_not_disturbed(platform: Platform) -> None:
    def work(_: object) -> str:
        return said("reset", NAME, "--yes", code=3)

    from dedup_platform.planning.moments import utc_now

    platform.clock = utc_now
    [told] = platform.claims.work(platform.stream(NAME), SESSIONS, ALL, work).done
    assert "is at sessions. Nothing was changed." in told
    assert platform.rows(NAME, SESSIONS) == 3


def test_a_person_at_a_terminal_is_asked(platform: Platform) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    done = subprocess.run([SCRIPT, "stream", "reset", NAME], stdin=theirs, capture_output=True, text=True, check=False)
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, "Forget all that was taken in of events? [y/N]" in done.stderr) == (0, True)
    assert platform.rows(NAME, SESSIONS) == 0
