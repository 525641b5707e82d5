"""`init`: what it lays out is in the package, runs as it is, and overwrites nothing."""

import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.errors import AlreadyThereError
from dedup_platform.stream import load_streams
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, light_platform, utc
from dedup_platform.testing.comparison import published_rows
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.conftest import PROJECT


def init(folder: Path) -> str:
    done = CliRunner().invoke(cli.app, ["init", str(folder)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_laid_out_becomes_what_its_stream_file_says(tmp_path: Path) -> None:
    init(tmp_path / "first")
    file = tmp_path / "first/streams/visits.yaml"
    [stream] = load_streams(file).values()
    # A minute later than it was made: nothing of it has to rest any more.
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2030-01-01")))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    assert wrong_rows(platform, stream.name) == []
    rows = published_rows(platform, stream.name)
    said = {
        what: int(number)
        for number, what in re.findall(
            r"(\d+) (records become|events|records are|is rejected|sessions)", file.read_text()
        )
    }
    assert said == {
        "records become": len(rows[RAW_EVENTS]),
        "events": len(rows[DEDUPLICATED_EVENTS]),
        "records are": len(rows[DUPLICATE_EVENTS]),
        "is rejected": sum(row["rejection_reason"] is not None for row in rows[RAW_EVENTS]),
        "sessions": len(rows[SESSIONS]),
    }
    assert any(row["arrival_time"] > row["event_time"] + timedelta(hours=12) for row in rows[DEDUPLICATED_EVENTS])


def test_commands_find_it_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = init(tmp_path / "first")
    [go_there, check, run, _, _] = re.findall(r"^  (\S.*)$", told, re.MULTILINE)
    assert (go_there, check, run) == (f"cd {tmp_path / 'first'}", "dedup-platform check", "dedup-platform run")
    monkeypatch.chdir(tmp_path / "first")
    monkeypatch.delenv("DEDUP_PLATFORM_STREAMS", raising=False)
    checked = CliRunner().invoke(cli.app, check.split()[1:])
    assert checked.exit_code == 0
    assert "visits: of 17 records that wait 16 are events, others rejected: malformed_record 1" in checked.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    init(tmp_path)
    file = tmp_path / "streams/visits.yaml"
    file.write_text("mine")
    (tmp_path / "data/visits/2026-01-05.json").unlink()
    before = contents(tmp_path)
    with pytest.raises(AlreadyThereError, match="is there already, and nothing was changed") as raised:
        init(tmp_path)
    assert cli.exit_code(raised.value) == 2
    assert contents(tmp_path) == before


def test_all_that_is_no_python_is_in_the_wheel() -> None:
    said = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["package-data"]
    packed = {path for pattern in said["dedup_platform"] for path in (PROJECT / "dedup_platform").glob(pattern)}
    there = {path for path in (PROJECT / "dedup_platform").rglob("*") if path.is_file() and path.suffix != ".py"}
    assert {path for path in there if "__pycache__" not in path.parts} <= packed
