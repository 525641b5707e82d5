"""The limits of a stream's health: within, at and beyond each, and what is said and to be typed there."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from dedup_platform.planning.circuit_breaker import Circuit, State
from dedup_platform.planning.health import (
    FRESHNESS,
    INGEST,
    LAG,
    REJECTS,
    SINK,
    SOURCE,
    STALE,
    AtSource,
    AtWork,
    Check,
    InTables,
    Limits,
    OfSink,
    Oldest,
    Vitals,
    active_time,
    judged,
)

FRIDAY = datetime(2024, 3, 1, 18, tzinfo=UTC)
HOUR, DAY, TICK = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)
LIMITS = Limits(max_lag=HOUR, max_stale=2 * HOUR, max_reject_ratio=0.5, max_age=DAY, quiet_days=frozenset({5, 6}))
WELL = InTables(oldest_stale=None, records=10, rejected=0, watermark=FRIDAY, newest_end=FRIDAY + 6 * HOUR)
OPEN = Circuit(state="open", reason="it is gone", attempts=3, since=FRIDAY, next_try=FRIDAY + HOUR)


def checks(vitals: Vitals, now: datetime = FRIDAY, limits: Limits = LIMITS) -> dict[str, Check]:
    return {each.name: each for each in judged("clicks", vitals, limits, now)}


def test_a_stream_that_is_well_passes_all_checks_and_has_nothing_to_type() -> None:
    found = checks(Vitals(source=AtSource("", None), tables=WELL, sinks={"copy": OfSink(Circuit())}))
    assert found.keys() == {SOURCE, INGEST, LAG, STALE, REJECTS, FRESHNESS, SINK}
    assert all(each.is_passed and not each.is_unhealthy and not each.command for each in found.values())


def test_what_nobody_asked_has_no_check() -> None:
    assert checks(Vitals()).keys() == {INGEST}
    assert checks(Vitals(source=AtSource("", None, trouble="gone"))).keys() == {SOURCE, INGEST}


@pytest.mark.parametrize(("state", "is_unhealthy"), [("retrying", False), ("open", True), ("failing", True)])
def test_a_failure_that_is_tried_again_soon_needs_nobody(state: State, is_unhealthy: bool) -> None:
    circuit = replace(OPEN, state=state)
    found = checks(Vitals(circuit, AtSource("", None, trouble="gone"), sinks={"copy": OfSink(circuit)}))
    assert {name: each.is_unhealthy for name, each in found.items()} == dict.fromkeys(found, is_unhealthy)
    assert not any(each.is_passed for each in found.values())
    assert found[SOURCE].what == "gone"
    assert found[INGEST].what.endswith(
        "the next try is after 2024-03-01 19:00:00 UTC, and a run started by hand tries now"
    )
    assert found[INGEST].command == found[SOURCE].command == "dedup-platform run --stream clicks"
    assert found[SINK].command == "dedup-platform publish --stream clicks --sink copy"


def test_a_source_or_store_that_cannot_be_asked_is_unhealthy_though_nothing_was_tried_yet() -> None:
    found = checks(Vitals(source=AtSource("", None, trouble="gone"), sinks={"copy": OfSink(Circuit(), "it is away")}))
    assert [found[SOURCE].is_unhealthy, found[INGEST].is_unhealthy, found[SINK].is_unhealthy] == [True, False, True]
    assert found[SINK].what == "sink copy: it is away"


def test_a_held_batch_is_let_pass_by_another_command() -> None:
    found = checks(Vitals(replace(OPEN, state="failing", next_try=None, batch="files")))
    assert found[INGEST].command == "dedup-platform batches accept clicks"


@pytest.mark.parametrize(("beyond", "passes"), [(timedelta(0), True), (TICK, False)])
def test_each_limit_may_be_reached_and_not_passed(beyond: timedelta, passes: bool) -> None:
    now = FRIDAY
    stale = Oldest("sessions", "2024-02-29", 2 * HOUR + beyond)
    tables = replace(
        WELL, oldest_stale=stale, records=10_000, rejected=5_000 + (not passes), watermark=now - DAY - beyond
    )
    found = checks(Vitals(source=AtSource("3 files", now - HOUR - beyond), tables=tables), now)
    wrong = {name for name, each in found.items() if not each.is_passed}
    assert wrong == (set() if passes else {LAG, STALE, REJECTS, FRESHNESS})
    if not passes:
        assert (
            found[LAG].what
            == "3 files wait, the first since 2024-03-01 16:59:59 UTC, longer than health.max_lag (1:00:00)"
        )
        assert found[STALE].what.startswith("a cell of sessions in 2024-02-29 is stale since 2024-03-01 15:59:59 UTC, ")
        assert found[REJECTS].what.startswith("5,001 of 10,000 records are rejected (50.0%), more than")
        assert found[REJECTS].command == "dedup-platform rejected list clicks"


def test_an_ingest_that_takes_nothing_in_for_long_lags_and_says_nothing_of_the_source() -> None:
    for since, is_passed in ((FRIDAY - HOUR, True), (FRIDAY - HOUR - TICK, False)):
        found = checks(Vitals(source=AtWork("abc", since)))
        assert found.keys() == {INGEST, LAG}
        assert found[LAG].is_passed == is_passed
    assert found[LAG].what.startswith(
        "run abc ingests, and since 2024-03-01 16:59:59 UTC it has taken nothing in, longer"
    )


def test_tables_that_cannot_be_planned_for_are_unhealthy() -> None:
    found = checks(Vitals(tables=InTables(trouble="they have 2 buckets")))
    assert {name: each.what for name, each in found.items() if each.is_unhealthy} == {STALE: "they have 2 buckets"}


def test_a_weekend_without_events_is_quiet_and_a_monday_is_not() -> None:
    monday = FRIDAY + timedelta(days=2, hours=6)
    assert checks(Vitals(tables=WELL), monday + 18 * HOUR)[FRESHNESS].is_passed
    assert not checks(Vitals(tables=WELL), monday + 18 * HOUR + TICK)[FRESHNESS].is_passed
    no_limit = checks(Vitals(tables=WELL), monday + 900 * DAY, replace(LIMITS, max_age=None))[FRESHNESS]
    assert no_limit.is_passed


def test_events_that_are_all_late_keep_no_stream_fresh() -> None:
    tables = replace(WELL, watermark=FRIDAY, newest_end=FRIDAY - 18 * HOUR - DAY)
    found = checks(Vitals(tables=tables))[FRESHNESS]
    assert not found.is_passed
    assert found.what.startswith("no partition after 2024-02-29 00:00:00 UTC holds events, longer than health.max_age")


@given(
    st.integers(0, 24 * 60),
    st.integers(0, 24 * 40),
    st.frozensets(st.integers(0, 6), max_size=6),
)
def test_active_time_counts_the_hours_that_are_not_quiet(first: int, hours: int, quiet: frozenset[int]) -> None:
    begin = FRIDAY + first * HOUR
    counted = sum((begin + number * HOUR).weekday() not in quiet for number in range(hours))
    assert active_time(begin, begin + hours * HOUR, quiet) == counted * HOUR
