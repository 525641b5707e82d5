"""What materializations tell besides numbers."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dedup_platform import cli, tables
from dedup_platform.orchestration.metadata import explained
from dedup_platform.testing import make_stream, utc


@pytest.mark.parametrize("granularity", ["day", "hour"])
def test_the_command_that_explains_a_row_of_the_partition(granularity: str, tmp_path: Path) -> None:
    stream = make_stream(tmp_path, granularity=granularity)
    partition = stream.partitions.ordinal(utc("2024-01-02T10:00"))
    told = {table: explained(stream, table, partition).get("explain") for table in tables.ALL}
    key = "2024-01-02" if granularity == "day" else "2024-01-02-10:00"
    assert told[tables.DEDUPLICATED_EVENTS] == f"dedup-platform explain event events EVENT_ID --at {key}"
    assert told[tables.SESSIONS] == f"dedup-platform explain session events SESSION_ID --at {key}"
    assert told[tables.SESSION_FRAGMENTS] is None
    for command in filter(None, told.values()):
        _, *words = shlex.split(str(command))
        answer = CliRunner().invoke(
            cli.app, [*words, "--streams", str(stream.origin)], env={"DEDUP_PLATFORM_HOME": str(tmp_path)}
        )
        assert answer.exit_code == 0, answer.output
        assert "There is no event" in answer.stdout or "No session" in answer.stdout
