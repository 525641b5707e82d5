"""Assets over ranges of partitions: what they recompute, and what they tell Dagster about each partition."""

import dagster as dg

from dedup_platform import tables
from dedup_platform.orchestration import runs
from dedup_platform.orchestration.checks import CHECKS
from dedup_platform.testing import record, utc
from dedup_platform.verification.check_queries import count_violations
from dedup_platform_tests.orchestration.conftest import Deployment, click, numbers

DERIVED = (tables.DUPLICATE_EVENTS, *tables.DERIVED)
FIRST, LAST = "2024-03-01", "2024-03-04"


def deliver_three_days(deploy: Deployment) -> None:
    """Two entities; one session crosses midnight, and one event comes twice."""
    deploy.deliver(
        "first.json",
        click("a", "2024-03-01T10:00"),
        click("a", "2024-03-01T10:00", "2024-03-01T11:00"),
        click("a", "2024-03-01T23:50"),
        click("a", "2024-03-02T00:10"),
        click("b", "2024-03-03T12:00"),
    )


def evaluations(result: dg.ExecuteInProcessResult, table: str) -> dict[tuple[str, str | None], bool]:
    """The checks of a table's rows: those of the stream's health know no partitions."""
    found = (each for each in result.get_asset_check_evaluations() if each.asset_key.path[-1] == table)
    return {(each.check_name, each.partition): each.passed for each in found if each.check_name in CHECKS[table]}


def test_every_asset_over_a_range(deploy: Deployment) -> None:
    deliver_three_days(deploy)
    result = deploy.materialize(tables.RAW_EVENTS, *DERIVED, partitions=(FIRST, LAST))

    days = ("2024-03-01", "2024-03-02", "2024-03-03", "2024-03-04")
    raw = numbers(result, tables.RAW_EVENTS)
    assert [raw[day].get("commit_partition_rows_added", 0) for day in days] == [3, 1, 1, 0]
    events = numbers(result, tables.DEDUPLICATED_EVENTS)
    assert [events[day].get("rows", 0) for day in days] == [2, 1, 1, 0]
    assert events["2024-03-01"]["duplicates"] == 1
    assert numbers(result, tables.DUPLICATE_EVENTS)["2024-03-01"]["rows"] == 1
    sessions = numbers(result, tables.SESSIONS)
    assert [sessions[day].get("rows", 0) for day in days] == [2, 0, 1, 0]
    assert isinstance(sessions["2024-03-01"]["commit_seconds"], float)

    # A check that Dagster evaluates would lose its partition in a range; None is the result over the whole run.
    for table, checks in {tables.DEDUPLICATED_EVENTS: 3, tables.SESSION_FRAGMENTS: 3, tables.SESSIONS: 4}.items():
        found = evaluations(result, table)
        assert all(found.values()), found
        assert [sum(partition == day for _, partition in found) for day in (*days, None)] == [checks] * 5

    again = deploy.materialize(tables.RAW_EVENTS, *DERIVED, partitions=(FIRST, LAST))
    for table in (tables.RAW_EVENTS, *DERIVED):
        told = numbers(again, table)
        assert set(told) == set(days), "what did not change is materialized too, or a backfill would fail"
        assert not any(each["changed"] for each in told.values()), table


def test_a_run_reports_and_repairs_what_is_linked_to_its_partitions(deploy: Deployment) -> None:
    deliver_three_days(deploy)
    ingested = deploy.materialize(tables.RAW_EVENTS, *DERIVED, partitions=(FIRST, FIRST))
    raw = numbers(ingested, tables.RAW_EVENTS)
    assert {key: each["commit_partition_rows_added"] for key, each in raw.items()} == {
        "2024-03-01": 3,
        "2024-03-02": 1,
        "2024-03-03": 1,
    }
    # It arrived before its copy of the next day, which is a duplicate from now on: two days change together.
    deploy.deliver("late.json", click("a", "2024-03-01T23:55", "2024-03-01T23:55", id="a-2024-03-02T00:10"))
    deploy.materialize(tables.RAW_EVENTS, partitions=(FIRST, FIRST))
    result = deploy.materialize(*DERIVED, partitions=(FIRST, FIRST), **{runs.CELLS: runs.STALE})
    events = numbers(result, tables.DEDUPLICATED_EVENTS)
    assert [events[key]["rows"] for key in ("2024-03-01", "2024-03-02")] == [3, 0]
    assert "2024-03-02" in numbers(result, tables.SESSION_FRAGMENTS)
    assert not deploy.stale()


def test_what_is_told_of_a_partition_is_of_all_of_it_whatever_was_repaired(deploy: Deployment) -> None:
    """One cell of two is repaired; the other one, of events without an entity, holds what the first has not."""
    day, next_day = "2024-03-01", "2024-03-02T13:00"
    lost = [record(None, f"{number}", utc(f"{day}T10:00"), utc(next_day), page="/") for number in range(3)]
    beaten = record(None, "0", utc(f"{day}T10:00"), utc(f"{next_day}:01"), page="/cart")
    deploy.deliver("first.json", *lost, beaten, click("a", f"{day}T10:00"))
    deploy.materialize(tables.RAW_EVENTS, *DERIVED, partitions=(day, day))
    deploy.deliver("late.json", click("a", f"{day}T23:00", "2024-03-02T01:00:02"))
    deploy.materialize(tables.RAW_EVENTS, partitions=(day, day))
    repaired = deploy.materialize(*DERIVED, partitions=(day, day), **{runs.CELLS: runs.STALE})
    unchanged = deploy.materialize(*DERIVED, partitions=(day, day), **{runs.CELLS: runs.STALE})

    expected = {"copies": 0, "conflicts": 1, "cells_total": 2, "late_rows": 4, "longest_lateness_seconds": 43_200.0}
    expected |= {"rows": 5, "duplicates": 1, "lateness_p50_seconds": 43_200, "lateness_p99_seconds": 43_200}
    [figures] = deploy.platform.figures.of(deploy.stream.name).values()
    for run in (repaired, unchanged):
        told = numbers(run, tables.DEDUPLICATED_EVENTS)[day]
        assert {name: told[name] for name in expected} == expected
        assert {name: told[name] for name in figures.lateness()} == figures.lateness()
        assert (numbers(run, tables.DUPLICATE_EVENTS)[day]["conflicts"], told["changed"]) == (1, run is repaired)
    told = numbers(repaired, tables.DEDUPLICATED_EVENTS)[day]
    assert told["commit_partition_cells_checked"] == told["commit_partition_cells_rewritten"] == 1
    rows = [each.metadata["rows"].value for each in repaired.get_asset_check_evaluations() if each.partition == day]
    assert rows == [5] * 3 + [2] * 3 + [2] * 4


def test_wrong_rows_fail_the_check_of_their_partition(deploy: Deployment) -> None:
    deliver_three_days(deploy)
    deploy.materialize(tables.RAW_EVENTS, *DERIVED, partitions=(FIRST, LAST))
    name = f"lake.{deploy.stream.name}.{tables.SESSIONS}"
    deploy.platform.lake.spark().sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE entity_id = 'b'")
    ordinals = [deploy.stream.partitions.ordinal_of(key) for key in ("2024-03-01", "2024-03-03")]
    rows = deploy.platform.read(deploy.stream.name, tables.SESSIONS)
    wrong = count_violations(rows, deploy.stream, tables.SESSIONS, ordinals)
    first, third = (wrong[each] for each in ordinals)
    assert first == {"inside": 0, "gaps": 0, "uniqueness": 0}
    assert third == {"inside": 0, "gaps": 1, "uniqueness": 2}
