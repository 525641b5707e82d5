"""Events decoded again where `fields` were wrong: they move, change or become rejected, and tables follow."""

import json
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.testing import record, temporary_platform, utc
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.replay.conftest import Deployment, touched

PARIS = "event_time: {field: happened, timezone: Europe/Paris}"
"""As if times without a zone were those of Paris, an hour ahead of UTC in winter."""
LATER_START = ("start: '2024-01-01'", "start: '2024-03-02'")
DAY = timedelta(days=1)


def line(happened: str, arrived: str = "2024-03-09T00:00:00", **fields: object) -> bytes:
    return json.dumps({"entity": "a", "id": "x", "happened": happened, "arrived": arrived, **fields}).encode()


def ordinals(deploy: Deployment, *days: str) -> list[int]:
    return [deploy.stream.partitions.ordinal_of(day) for day in days]


def times(deploy: Deployment, table: str) -> list[str]:
    rows = deploy.platform.read(deploy.name, table).selectExpr("cast(event_time as string) as time").collect()
    return sorted(row.time[:16] for row in rows)


def only_row(deploy: Deployment) -> dict[str, object]:
    [row] = deploy.platform.read(deploy.name, tables.RAW_EVENTS).toArrow().to_pylist()
    return dict(row)


def test_events_move_over_midnight_and_nothing_else_is_rewritten(deploy: Deployment) -> None:
    """A zone that was wrong: what was read as UTC was an hour earlier."""
    deploy.deliver_lines(line("2024-03-02T00:30:00", id="1"), line("2024-03-02T12:00:00", id="2"), file="two.json")
    deploy.deliver(record("a", "1", utc("2024-03-02T12:00")), file="same day.json")
    deploy.deliver(record("b", "1", utc("2024-03-20T10:00")), file="far.json")
    deploy.platform.repair(deploy.name)
    before, coordinates = deploy.files(), deploy.coordinates()
    deploy.spoil(wrong=PARIS)
    first, second = ordinals(deploy, "2024-03-01", "2024-03-02")

    outcome = deploy.platform.rejected.redecode(deploy.name, [second])
    assert (outcome.accepted, outcome.rejected, outcome.altered) == (0, 0, 2)
    assert {cell.partition for cell in outcome.cells} == {first, second}
    assert deploy.coordinates() == coordinates
    moved = ["2024-03-01 23:30", "2024-03-02 11:00", "2024-03-02 12:00", "2024-03-20 10:00"]
    assert times(deploy, tables.RAW_EVENTS) == moved
    assert touched(before, deploy.files())[tables.RAW_EVENTS] == outcome.cells
    assert deploy.stale() == outcome.cells

    heads = deploy.heads()
    assert deploy.platform.rejected.redecode(deploy.name, [first, second]).snapshot_id is None
    assert deploy.heads() == heads
    deploy.platform.repair(deploy.name)
    assert deploy.stale() == set()
    assert wrong_rows(deploy.platform, deploy.name) == []
    assert times(deploy, tables.DEDUPLICATED_EVENTS) == moved[1:]
    assert times(deploy, tables.DUPLICATE_EVENTS) == moved[:1]
    assert all(cells <= outcome.cells for cells in touched(before, deploy.files()).values())


@pytest.fixture
def beaten(deploy: Deployment) -> Deployment:
    """An event of March 1 that beats its copy of March 2; then the stream is said to start on March 2."""
    deploy.deliver_lines(line("2024-03-01T23:00:00", "2024-03-03T00:00:00"), file="winner.json")
    deploy.deliver_lines(line("2024-03-02T01:00:00", "2024-03-04T00:00:00"), file="loser.json")
    deploy.platform.repair(deploy.name)
    assert times(deploy, tables.DUPLICATE_EVENTS) == ["2024-03-02 01:00"]
    deploy.spoil(*LATER_START)
    return deploy


def test_an_event_that_goes_lets_the_copy_live_that_it_had_beaten(beaten: Deployment) -> None:
    """In raw nothing tells any more that it was there, and of the copy's day nothing is decoded: the commit tells."""
    platform, name = beaten.platform, beaten.name
    outcome = platform.rejected.redecode(name, ordinals(beaten, "2024-03-01"))
    assert (outcome.rejected, outcome.altered) == (1, 0)
    platform.repair(name)
    assert times(beaten, tables.DEDUPLICATED_EVENTS) == ["2024-03-02 01:00"]
    assert wrong_rows(platform, name) == []
    assert [each.reason for each in platform.rejected.reasons(name)] == ["before_start"]
    # And back: a replay finds what was an event.
    beaten.put_right()
    assert platform.rejected.replay(name).accepted == 1
    platform.repair(name)
    assert times(beaten, tables.DUPLICATE_EVENTS) == ["2024-03-02 01:00"]
    assert wrong_rows(platform, name) == []


@pytest.mark.parametrize("is_repaired", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_what_an_event_left_behind_is_known_without_history_and_control_database(
    beaten: Deployment, spark: SparkSession, is_repaired: bool
) -> None:
    beaten.say(beaten.stream.origin.read_text() + "maintenance: {snapshot_age: 1d, min_snapshots: 1}\n")
    beaten.platform.rejected.redecode(beaten.name, ordinals(beaten, "2024-03-01"))
    if is_repaired:
        beaten.platform.repair(beaten.name)
    beaten.deliver(record("b", "1", utc("2024-03-20T10:00")), file="newer.json")
    home, clock = beaten.platform.settings.home, beaten.platform.clock
    beaten.platform.clock = lambda: utc("2099-01-01")
    beaten.platform.maintain(beaten.name)
    beaten.platform.maintain(beaten.name)
    (home / "control.db").unlink()
    beaten.platform = temporary_platform(home, beaten.stream, spark, clock, in_process=True)
    beaten.platform.repair(beaten.name)
    assert beaten.stale() == set()
    assert wrong_rows(beaten.platform, beaten.name) == []
    assert times(beaten, tables.DEDUPLICATED_EVENTS) == ["2024-03-02 01:00", "2024-03-20 10:00"]


def test_another_entity_moves_to_its_own_bucket(deploy: Deployment) -> None:
    deploy.deliver_lines(*(line("2024-03-02T10:00:00", id=f"{n}", page=f"page {n}") for n in range(8)), file="a.json")
    deploy.platform.repair(deploy.name)
    deploy.spoil("entity_id: entity", "entity_id: page")
    [day] = ordinals(deploy, "2024-03-02")
    assert deploy.platform.rejected.redecode(deploy.name, [day]).altered == 8
    assert {cell.bucket for cell in deploy.files()[tables.RAW_EVENTS] if cell} == {0, 1}
    deploy.platform.repair(deploy.name)
    assert wrong_rows(deploy.platform, deploy.name) == []
    assert deploy.platform.read(deploy.name, tables.SESSIONS).count() == 8


def test_a_new_attribute_is_filled_in_older_rows(deploy: Deployment) -> None:
    deploy.deliver_lines(line("2024-03-02T10:00:00", referrer="r"), file="a.json")
    deploy.spoil("attributes:\n", "attributes:\n    referrer: referrer\n")
    deploy.platform.rejected.redecode(deploy.name, ordinals(deploy, "2024-03-02"))
    assert only_row(deploy)["referrer"] == "r"
    deploy.platform.repair(deploy.name)
    assert wrong_rows(deploy.platform, deploy.name) == []


def test_an_arrival_is_fixed_whatever_the_stream_file_says_of_it_now(deploy: Deployment) -> None:
    deploy.deliver_lines(line("2024-03-02T10:00:00"), file="a.json")
    deploy.say(deploy.right.replace("entity_id: entity", "entity_id: id"))
    deploy.spoil("arrival_time: arrived", "arrival_time: {field: nothing}")
    assert deploy.platform.rejected.redecode(deploy.name, ordinals(deploy, "2024-03-02")).snapshot_id is None
    deploy.say(deploy.stream.origin.read_text().replace("entity_id: entity", "entity_id: id"))
    assert deploy.platform.rejected.redecode(deploy.name, ordinals(deploy, "2024-03-02")).altered == 1
    row = only_row(deploy)
    assert (row["entity_id"], row["arrival_time"]) == ("x", utc("2024-03-09"))


def test_partitions_that_hold_nothing_are_no_work(deploy: Deployment) -> None:
    deploy.deliver_lines(line("2024-03-02T10:00:00"), file="a.json")
    deploy.spoil(wrong=PARIS)
    assert deploy.platform.rejected.redecode(deploy.name, ordinals(deploy, "2024-03-05")).snapshot_id is None


def test_rows_that_do_not_change_keep_their_files(deploy: Deployment) -> None:
    deploy.deliver_lines(line("2024-03-02T10:00:00+00:00"), file="with a zone.json")
    kept = deploy.files()[tables.RAW_EVENTS]
    deploy.deliver_lines(line("2024-03-02T11:00:00", id="y"), file="without.json")
    deploy.spoil(wrong=PARIS)
    assert deploy.platform.rejected.redecode(deploy.name, ordinals(deploy, "2024-03-02")).altered == 1
    now = deploy.files()[tables.RAW_EVENTS]
    assert all(paths <= now[cell] for cell, paths in kept.items())
