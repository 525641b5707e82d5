"""`make dev` where there is nothing to show: it says what to do, and starts nothing."""

import signal
import sys
from pathlib import Path

import pytest

from dedup_platform import dev
from dedup_platform.settings import ENV_PREFIX


@pytest.mark.parametrize(
    ("streams", "told"),
    [
        (None, "there are no streams to show: set DEDUP_PLATFORM_STREAMS to a stream file"),
        ("", "the folder has no stream file (*.yaml or *.yml)"),
        ("gone", "No such file or directory"),
    ],
)
def test_without_streams_it_says_what_to_do(
    streams: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no folder `streams`
    monkeypatch.setenv(f"{ENV_PREFIX}HOME", str(tmp_path / "home"))
    if streams is not None:
        monkeypatch.setenv(f"{ENV_PREFIX}STREAMS", str(tmp_path / streams))
    monkeypatch.setattr(sys, "argv", ["dev"])
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    assert dev.main() == 1
    for each, handler in before.items():
        signal.signal(each, handler)
    assert told in capsys.readouterr().err
    assert not (tmp_path / "home").exists()
