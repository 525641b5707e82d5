"""541,909 sales of a shop, with known counts: whole, and in shuffled batches with a tenth of the files twice."""

import shutil
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from dedup_platform import tables
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import temporary_platform

STREAM = """\
name: {name}
source: {{kind: files, path: {path}, format: csv, settle: 0s}}
fields:
  entity_id: CustomerID
  event_id: {{hash: "*"}}
  event_time: InvoiceDate
  arrival_time: {{file_modified: true}}
  attributes: {{country: Country, quantity: {{field: Quantity, type: long}}}}
missing_entity: keep
partitions: {{granularity: day, start: 2010-12-01}}
buckets: 1
deduplicate: {{key: [entity_id, event_id], window: 1d}}
sessions: {{timeout: {timeout}, aggregates: {{items: {{sum: quantity}}}}}}
"""
SESSIONS = {"30m": 19_969, "5m": 20_550, "15m": 20_161, "60m": 19_758}
BATCHES = 6
"""Where there is no time for more."""
TWICE = 40
ARRIVAL = {"arrival_time", "first_arrived_at", "first_arrived_event_time", "session_id", *tables.COORDINATES}
"""Columns that tell how a row came, and the ids that depend on it."""


def stream(folder: Path, name: str, path: Path, timeout: str = "30m") -> Stream:
    file = folder / f"{name}.yaml"
    file.write_text(STREAM.format(name=name, path=path / "*.csv.gz", timeout=timeout), encoding="utf-8")
    return load_stream(file)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, data_dir: Path) -> Platform:
    """All files, taken in and repaired once, and a stream whose files are still to be delivered."""
    folder = tmp_path_factory.mktemp("retail")
    (folder / "landing").mkdir()
    streams = [stream(folder, "whole", data_dir / "online_retail"), stream(folder, "shuffled", folder / "landing")]
    found = temporary_platform(folder / "home", streams, spark, utc_now)
    found.ingest("whole")
    found.repair("whole")
    return found


def test_known_counts(platform: Platform) -> None:
    counts = {table: platform.rows("whole", table) for table in tables.ALL if table != tables.SESSION_FRAGMENTS}
    assert counts == {
        tables.RAW_EVENTS: 541_909,
        tables.DEDUPLICATED_EVENTS: 536_641,
        tables.DUPLICATE_EVENTS: 5_268,
        tables.SESSIONS: SESSIONS["30m"],
    }
    assert platform.status("whole").rejected == 0


@pytest.mark.thorough
def test_shuffled_batches_with_files_twice_give_the_same_events_and_sessions(
    platform: Platform, data_dir: Path
) -> None:
    landing = platform.stream("shuffled").files.root
    random = Random(2010)
    files = sorted((data_dir / "online_retail").glob("*.csv.gz"))
    again = {f"again-{file.name}": file for file in random.sample(files, TWICE)}
    deliveries = [*((file.name, file) for file in files), *again.items()]
    random.shuffle(deliveries)
    for number in range(BATCHES):
        for name, file in deliveries[number::BATCHES]:
            shutil.copyfile(file, landing / name)
        platform.ingest("shuffled")
        platform.repair("shuffled")
        # All must be as in one go, whose counts are known.
        assert platform.verify("shuffled") == []
    for table in (tables.DEDUPLICATED_EVENTS, tables.SESSIONS):
        whole, shuffled = comparable(platform, "whole", table), comparable(platform, "shuffled", table)
        assert whole.count() == shuffled.count()
        assert whole.exceptAll(shuffled).count() == 0


def comparable(platform: Platform, name: str, table: str) -> DataFrame:
    rows = platform.read(name, table)
    return rows.select([column for column in rows.columns if column not in ARRIVAL])


@pytest.mark.parametrize(
    "timeout",
    [pytest.param(each, marks=() if each == "60m" else pytest.mark.thorough) for each in ("5m", "15m", "60m")],
)
def test_another_timeout_in_the_stream_file_rebuilds_sessions_alone(platform: Platform, timeout: str) -> None:
    known = platform.stream("whole")
    platform.streams["whole"] = stream(known.origin.parent, "whole", known.files.root, timeout)
    stale = {plan.table: {cell.reason for cell in plan.stale} for plan in platform.plan("whole")}
    assert stale == {
        tables.DEDUPLICATED_EVENTS: set(),
        tables.SESSION_FRAGMENTS: {"settings"},
        tables.SESSIONS: {"settings"},
    }
    platform.repair("whole")
    assert platform.rows("whole", tables.SESSIONS) == SESSIONS[timeout]
    assert [plan.stale for plan in platform.plan("whole")] == [(), (), ()]
