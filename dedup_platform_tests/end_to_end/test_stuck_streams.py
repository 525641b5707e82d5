"""`dedup-platform run` with streams whose source never answers: the others are there before those have given up."""

import signal
from pathlib import Path

import pytest

from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import lay_out, make_stream, record, utc, write_batch
from dedup_platform_tests.end_to_end.conftest import BRIEF, PATIENCE, wait_until
from dedup_platform_tests.end_to_end.processes import CommandLine, said_by
from dedup_platform_tests.end_to_end.stuck import silence, write_stuck_stream


def test_a_stream_beside_two_that_are_stuck(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "healthy")
    events = [record("a", str(number), utc(f"2024-03-01T10:0{number}")) for number in range(3)]
    write_batch(stream, lay_out(events, "first.json"))
    home = tmp_path / "home"
    command = CommandLine(BRIEF | {"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_STREAMS": str(tmp_path)})
    platform = Platform(Settings(home=home), {"healthy": stream}, lambda: pytest.fail("only metadata is asked"))
    with silence() as brokers:
        for name in ("before", "last"):
            write_stuck_stream(tmp_path, name, brokers)
        with command.started("run") as process:
            wait_until(lambda: platform.rows("healthy", SESSIONS) == 1, "the healthy stream is there", PATIENCE)
            assert process.poll() is None, "the others gave up before it"
            process.send_signal(signal.SIGINT)
            _, said = said_by(process)
            assert process.returncode == 130
            assert "healthy: " in said
