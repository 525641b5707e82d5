"""docs/tutorial.md, typed from its first line to its last; what it shows is among what the commands print.

Only `run` is done by hand, as its Spark and its Dagster take minutes and are started by other tests.
"""

import os
import re
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.stream import load_streams
from dedup_platform.testing import light_platform
from dedup_platform_tests.conftest import PROJECT

PAGE = PROJECT / "docs" / "tutorial.md"
HOME = Path(".dedup_platform")
LATE = Path("data/visits/2026-01-08-late.json")
STREAM_FILE = Path("streams/visits.yaml")


def run() -> str:
    """What `dedup-platform run` does, in this process."""
    [stream] = load_streams(STREAM_FILE).values()
    platform = light_platform(HOME.absolute(), stream, lambda: datetime.now(UTC))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    platform.publish_changes(stream.name)
    platform.points.make(stream.name)
    platform.audit(stream.name)
    return ""


def typed(line: str) -> str:
    program, *arguments = shlex.split(line)
    assert program == "dedup-platform"
    if arguments == ["run"]:
        return run()
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, line
    return done.output


def plain(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.mark.usefixtures("spark_for_commands")
def test_what_the_page_says_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "STREAMS"):
        monkeypatch.delenv(f"DEDUP_PLATFORM_{name}", raising=False)
    printed = ""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} == {"sh", "", "json", "yaml"}
    for language, block in blocks:
        if language == "sh":
            printed = "\n".join(map(typed, block.splitlines()))
        elif language == "json":
            LATE.write_text(block)
            # Files that were just written rest for a while.
            os.utime(LATE, (time.time() - 60, time.time() - 60))
        elif language == "yaml":
            said, times = re.subn(r"^partitions: .*\n", block, STREAM_FILE.read_text(), flags=re.MULTILINE)
            assert times == 1
            STREAM_FILE.write_text(said)
        else:
            shown = plain(printed)
            for line in plain(block):
                assert any(line in each for each in shown), f"{line!r} is not among\n{printed}"
        if (tmp_path / "first").is_dir():
            monkeypatch.chdir(tmp_path / "first")
    assert Path("report.html").read_text("utf-8").startswith("<!")
