"""What README.md tells to type after `make demo` answers, word for word."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dedup_platform import cli
from dedup_platform.demo import generate, stream_file
from dedup_platform.stream import load_stream
from dedup_platform.testing import light_platform
from dedup_platform_tests.test_docs import PROJECT, fenced

HOME = Path(".dedup_platform/demo")
README = PROJECT / "README.md"


def test_the_tables_of_the_demo_are_queried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = load_stream(stream_file(HOME, generate(HOME, events=500)).absolute())
    platform = light_platform(HOME.absolute(), stream, lambda: datetime.now(UTC))
    platform.ingest(stream.name)
    platform.repair(stream.name)

    [block] = [block for block in fenced(README, "sh") if "dedup-platform sql" in block]
    settings, *commands = map(shlex.split, block.splitlines())
    for setting in settings[1:]:
        monkeypatch.setenv(*setting.split("="))
    for _, *arguments in commands:
        done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
        assert done.exit_code == 0
        assert len(done.output.splitlines()) > 3
    for name in ("HOME", "STREAMS"):
        monkeypatch.delenv(f"DEDUP_PLATFORM_{name}")

    [block] = fenced(README, "python")
    names: dict[str, Any] = {}
    exec(block, names)
    assert len(names["sessions"]) == platform.rows(stream.name, "sessions") > 0
