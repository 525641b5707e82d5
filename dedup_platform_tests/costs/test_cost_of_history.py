"""What the repair of a late event reads and writes does not depend on how much history lies before it."""

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from dedup_platform import tables
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.costs.event_log import Scans, only_log, scans

SHORT, LONG = 3, 300
LONGEST = 600
METADATA_A_DAY = 150
"""Bytes of metadata that a repair may write more for each day of history (12 KB for 100 days, of 170 KB in all): the
entries beside the replaced ones in the manifests that three of its commits rewrite, and the lists' lines. No manifest
holds more than `lakehouse.overwrite.MOST_ENTRIES` of a commit, which is where this ends.
"""


@dataclass(frozen=True)
class Repair:
    """What the ingest and the repair of one late event cost: reads, and data files and bytes written by table."""

    scans: Scans
    given: list[int]
    """Bytes of each data file that tasks were given to read."""
    read: list[int]
    """Bytes that the tasks of each step read of them."""
    files: dict[str, int]
    bytes: dict[str, int]
    metadata: dict[str, int]


@pytest.fixture(scope="module")
def repairs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Repair]:
    """Days of history -> the repair of a late event at their end, all by one process."""
    folder = tmp_path_factory.mktemp("history")
    ended = subprocess.run(
        [sys.executable, "-m", "dedup_platform_tests.costs.child", str(folder), str(SHORT), str(LONG)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    log, found = only_log(folder / "log"), {}
    for days, line in zip((SHORT, LONG), ended.stdout.splitlines(), strict=True):
        said = json.loads(line)
        told = scans(log, said.pop("start"), said.pop("end"))
        found[days] = Repair(told, **said)
    return found


def test_a_repair_reads_as_many_data_files_and_bytes_after_a_long_history(repairs: dict[int, Repair]) -> None:
    # Tasks read all that a repair reads, what links cells included: Spark's own scans read nothing.
    assert repairs[LONG].scans == repairs[SHORT].scans == Scans(0, 0, 0, 0)
    assert repairs[SHORT].given
    assert repairs[LONG].given == repairs[SHORT].given
    events, fragments, sessions = repairs[SHORT].read
    assert events > 0
    assert fragments == 0, "they are made while the events are in memory"
    assert sessions > 0
    assert repairs[LONG].read == repairs[SHORT].read


def test_a_repair_writes_one_data_file_a_table_and_as_many_bytes_after_a_long_history(
    repairs: dict[int, Repair],
) -> None:
    assert repairs[SHORT].files == {**dict.fromkeys(tables.ALL, 1), tables.DUPLICATE_EVENTS: 0}
    assert repairs[LONG].files == repairs[SHORT].files
    assert repairs[LONG].bytes == repairs[SHORT].bytes


def test_metadata_grows_by_no_more_than_the_entries_of_the_history(repairs: dict[int, Repair]) -> None:
    more = sum(repairs[LONG].metadata.values()) - sum(repairs[SHORT].metadata.values())
    assert 0 < more <= METADATA_A_DAY * (LONG - SHORT)
