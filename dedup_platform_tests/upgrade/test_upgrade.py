"""A home of the version before is read and goes on: nothing is stale, and rows and ids are what they were."""

import json
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.orchestration.embedded import open_instance
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import HeldClock, lay_out, light_platform, record, temporary_platform, utc
from dedup_platform.testing.comparison import digest, row_texts
from dedup_platform.testing.delivery import write_file
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.end_to_end.processes import CommandLine
from dedup_platform_tests.lives.state import Reader, Row, State
from dedup_platform_tests.upgrade.before import unpack
from dedup_platform_tests.variants import some

EVENTS = "events"
NOW = HeldClock(utc("2030-01-01T00:00"))
HAVE_NEW = {tables.SESSION_FRAGMENTS, tables.SESSIONS}
"""The tables that have a column which the version before did not know."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    unpack(tmp_path)
    return tmp_path


@pytest.fixture
def stream(folder: Path) -> Stream:
    return load_stream(folder / "events.yaml")


def opened(folder: Path, stream: Stream) -> Platform:
    return light_platform(folder / "home", stream, NOW)


def state(platform: Platform, stream: Stream) -> State:
    found = Reader().read(platform, stream)
    assert found
    return found


def digests(found: State) -> dict[str, dict[str, object]]:
    """As they were reckoned by the version before, of the columns that it knew."""
    texts = {table: row_texts(as_before(table, row) for row in found.all(table)) for table in tables.ALL}
    return {table: {"rows": len(rows), "sha256": digest(rows)} for table, rows in texts.items()}


def as_before(table: str, row: Row) -> Row:
    """A row without the column that was added since."""
    if table == tables.SESSION_FRAGMENTS:
        first = {name: value for name, value in row["first_arrived"].items() if name != "event_time"}
        return {**row, "first_arrived": first}
    return {name: value for name, value in row.items() if name != "first_arrived_event_time"}


def is_told(platform: Platform, table: str) -> list[bool]:
    """Of each row of a table whether its column that was added since is not null."""
    rows = platform.lake.catalog.load_table(EVENTS, table).scan().to_arrow().to_pylist()
    if table == tables.SESSION_FRAGMENTS:
        return [row["first_arrived"]["event_time"] is not None for row in rows]
    return [row["first_arrived_event_time"] is not None for row in rows]


def stale(platform: Platform) -> list[object]:
    return [cell for plan in platform.plan(EVENTS) for cell in plan.stale]


def ids(found: State) -> dict[tuple[str, object], str]:
    """Entity and start of each session -> its id."""
    return {(row["entity_id"], row["started_at"]): row["session_id"] for row in found.all(tables.SESSIONS)}


LOST: list[tuple[str, ...]] = [(), ("control.db",), ("control.db", "receipts")]


@pytest.mark.parametrize("lost", some(LOST, quick=[LOST[1]]), ids=["whole", "control", "both"])
def test_rows_are_what_they_were(lost: tuple[str, ...], folder: Path, stream: Stream) -> None:
    for path in (folder / "home").glob("control.db*") if "control.db" in lost else ():
        path.unlink()
    for path in (folder / "home" / "warehouse" / EVENTS / "receipts").iterdir() if "receipts" in lost else ():
        path.unlink()
    platform = opened(folder, stream)
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    assert digests(state(platform, stream)) == expected
    assert bool(stale(platform)) == ("receipts" in lost), "without receipts nothing proves what is built"
    assert platform.ingest(EVENTS) == [] if "receipts" not in lost else True
    platform.repair(EVENTS)
    assert digests(state(platform, stream)) == expected
    for table in HAVE_NEW:
        assert set(is_told(platform, table)) == {"receipts" in lost}, "what is rebuilt gets the column"
    differ = {line.partition(":")[0] for line in wrong_rows(platform, EVENTS)}
    # How many records were read is lost with the receipts.
    assert differ == ({tables.RAW_EVENTS} if "receipts" in lost else HAVE_NEW)
    assert {line.partition(":")[0] for line in wrong_rows(platform, EVENTS, is_upgraded=True)} == differ - HAVE_NEW


def test_what_is_there_is_verified_before_anything_is_written(
    folder: Path, stream: Stream, spark: SparkSession
) -> None:
    platform = temporary_platform(folder / "home", stream, spark, NOW)
    assert platform.verify(EVENTS) == []
    assert "first_arrived_event_time" not in platform.read(EVENTS, tables.SESSIONS).columns


def test_it_goes_on_by_the_command_line(folder: Path, stream: Stream) -> None:
    before = state(opened(folder, stream), stream)
    sessions = sorted(before.all(tables.SESSIONS), key=lambda row: row["started_at"])
    first, last = sessions[0], sessions[-1]
    late = last["ended_at"] + timedelta(minutes=1)
    new = record(last["entity_id"], "of the version after", late, utc("2024-06-01T00:00"))
    write_file(stream.files.root / "after.json", lay_out([new], "after.json"))
    home = folder / "home"
    run = CommandLine({"DEDUP_PLATFORM_HOME": str(home), "DEDUP_PLATFORM_STREAMS": str(stream.origin)})
    run("run")
    after = state(opened(folder, stream), stream)
    assert wrong_rows(opened(folder, stream), stream.name, is_upgraded=True) == []
    assert ids(after) == ids(before)
    [grown] = [row for row in after.all(tables.SESSIONS) if row["session_id"] == last["session_id"]]
    assert grown["ended_at"] == late
    is_known = is_told(opened(folder, stream), tables.SESSIONS)
    assert grown["first_arrived_event_time"] == last["started_at"], "its fragment was made anew"
    assert is_known.count(False) > len(is_known) / 2, "others were not"
    assert first in after.all(tables.SESSIONS)
    assert not stale(opened(folder, stream))
    assert run("verify").strip() == "events: equal"
    told = partitions_told(Settings(home=home), stream)
    assert stream.partitions.key(stream.partitions.ordinal(late)) in told


def partitions_told(settings: Settings, stream: Stream) -> set[str | None]:
    """The partitions of `sessions` of which Dagster has records, of both versions' runs."""
    with open_instance(settings) as instance:
        runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.SUCCESS]))
        assert len(runs) == 5
        events = instance.fetch_materializations(dg.AssetKey([stream.name, tables.SESSIONS]), limit=1000).records
        return {event.partition_key for event in events}
