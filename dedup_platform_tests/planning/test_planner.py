"""The planner: which cells are stale and why, what waits, what a commit must not cut, and how runs are packed."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from dedup_platform.planning.cells import Cell, closes, contiguous, reach
from dedup_platform.planning.facts import Change, Facts
from dedup_platform.planning.moments import EPOCH
from dedup_platform.planning.planner import Policy, Reason, plan, reasons_of

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
MONDAY = 20458  # 2026-01-05
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
LAST_DAY = (LAST_MOMENT - EPOCH).days
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
FINGERPRINT = "0123456789abcdef"


def change(
    partition: int,
    committed: datetime = NOON,
    arrival: datetime | None = NOON,
    bucket: int = 0,
    rows: int = 1,
    sequence: int = 7,
) -> Change:
    return Change(Cell(partition, bucket), sequence, rows, committed, committed, arrival)


def facts(
    *changes: Change,
    outdated: tuple[Cell, ...] = (),
    arrivals: dict[Cell, datetime] | None = None,
    reach: int = 0,
) -> Facts:
    return Facts(
        "clicks",
        "deduplicated_events",
        {each.cell: each for each in changes},
        frozenset(outdated),
        FINGERPRINT,
        arrivals or {},
        reach=reach,
    )


@pytest.mark.parametrize(
    ("distance", "length", "expected"),
    [
        (timedelta(0), DAY, 0),
        (timedelta(microseconds=1), DAY, 1),
        (DAY, DAY, 1),
        (DAY + timedelta(microseconds=1), DAY, 2),
        (timedelta(minutes=90), timedelta(hours=1), 2),
        (timedelta(hours=2), timedelta(hours=1), 2),
    ],
)
def test_reach_counts_the_partitions_that_a_distance_can_touch(
    distance: timedelta, length: timedelta, expected: int
) -> None:
    assert reach(distance, length) == expected


@pytest.mark.parametrize(
    ("partition", "grace", "expected"),
    [
        (MONDAY, timedelta(hours=1), datetime(2026, 1, 6, 1, tzinfo=UTC)),
        (LAST_DAY - 1, DAY - timedelta(microseconds=1), LAST_MOMENT),
        (LAST_DAY - 1, DAY, LAST_MOMENT),
        (LAST_DAY, timedelta(0), LAST_MOMENT),
        (LAST_DAY, 36_500 * DAY, LAST_MOMENT),
    ],
)
def test_a_partition_closes_after_its_grace_or_never(partition: int, grace: timedelta, expected: datetime) -> None:
    assert closes(partition, DAY, grace) == expected


def test_what_comes_for_the_last_day_that_there_is_is_planned_and_never_late() -> None:
    arrivals = {Cell(LAST_DAY, 0): LAST_MOMENT}
    last = change(LAST_DAY, arrival=LAST_MOMENT)
    [stale] = plan(facts(last, arrivals=arrivals, reach=400), Policy(grace=400 * DAY), NOON + DAY).stale
    assert (stale.cell, stale.reason, stale.ready) == (Cell(LAST_DAY, 0), "open", True)


def test_nothing_changed_is_nothing_stale() -> None:
    found = plan(facts(), Policy(), NOON)
    assert found.stale == ()
    assert found.runs == ()


def test_a_run_says_why_it_rebuilds_in_the_words_of_a_plan() -> None:
    late = change(MONDAY + 1, arrival=NOON + 9 * DAY)
    known = facts(change(MONDAY, arrival=NOON), late)
    said = {cell.cell: cell.reason for cell in plan(known, Policy(), NOON + 10 * DAY).stale}
    for cells in ([], [min(said)], [*said]):
        reasons = sorted({said[cell] for cell in cells})
        assert reasons_of(known, cells, DAY, timedelta(hours=1)) == ("+".join(reasons) or "nothing")
    assert sorted(said.values()) == ["late", "open"]


@pytest.mark.parametrize(
    ("arrival", "reason"),
    [
        (datetime(2026, 1, 6, 1, tzinfo=UTC), "open"),
        (datetime(2026, 1, 6, 1, 0, 0, 1, tzinfo=UTC), "late"),
    ],
)
def test_late_is_an_arrival_after_the_end_of_the_partition_and_its_grace(arrival: datetime, reason: Reason) -> None:
    found = plan(facts(change(MONDAY, arrival=arrival)), Policy(grace=timedelta(hours=1)), arrival + DAY)
    assert [stale.reason for stale in found.stale] == [reason]


@pytest.mark.parametrize(
    ("quiet", "rows", "ready"),
    [
        (timedelta(seconds=59), 10, False),
        (timedelta(seconds=60), 10, True),
        (timedelta(seconds=60), 9, False),
        (timedelta(minutes=15), 9, True),
    ],
)
def test_a_cell_waits_until_it_is_quiet_and_full_enough_but_never_longer_than_the_longest_wait(
    quiet: timedelta, rows: int, ready: bool
) -> None:
    policy = Policy(settle=timedelta(seconds=60), max_delay=timedelta(minutes=15), min_rows=10)
    found = plan(facts(change(MONDAY, rows=rows)), policy, NOON + quiet)
    assert [stale.ready for stale in found.stale] == [ready]
    assert bool(found.runs) == ready


def test_rows_that_keep_coming_cannot_put_off_a_repair_for_ever() -> None:
    busy = Change(Cell(MONDAY, 0), 9, 100, NOON - timedelta(minutes=15), NOON, NOON)
    assert plan(facts(busy), Policy(), NOON).runs != ()


@pytest.mark.parametrize("ahead", [timedelta(seconds=60, microseconds=1), 50 * 365 * DAY])
def test_a_commit_by_a_clock_that_is_ahead_keeps_nothing_waiting(ahead: timedelta) -> None:
    policy = Policy(min_rows=10, settle=timedelta(seconds=60))
    [stale] = plan(facts(change(MONDAY, committed=NOON + ahead)), policy, NOON).stale
    assert (stale.ready, stale.waiting) == (True, policy.max_delay)


def test_a_commit_by_a_clock_that_differs_a_little_settles_as_any_other() -> None:
    policy, fresh = Policy(settle=timedelta(seconds=60)), facts(change(MONDAY, committed=NOON + MINUTE))
    assert [plan(fresh, policy, NOON + after).stale[0].ready for after in (0 * MINUTE, 2 * MINUTE)] == [False, True]


@pytest.mark.parametrize(("rows", "ready"), [(10, True), (9, False)])
def test_rows_that_came_by_a_clock_ahead_are_quiet(rows: int, ready: bool) -> None:
    both = Change(Cell(MONDAY, 0), 9, rows, NOON - MINUTE, NOON + DAY, NOON)
    [stale] = plan(facts(both), Policy(min_rows=10), NOON).stale
    assert (stale.ready, stale.waiting) == (ready, MINUTE)


def test_other_settings_make_a_cell_stale_at_once() -> None:
    found = plan(facts(outdated=(Cell(MONDAY, 3),)), Policy(), NOON)
    assert [(stale.cell, stale.reason, stale.ready) for stale in found.stale] == [(Cell(MONDAY, 3), "settings", True)]


def test_a_neighbour_is_linked_only_if_it_holds_an_arrival_at_or_after_the_newcomer() -> None:
    newcomer = change(MONDAY, arrival=NOON)
    arrivals = {Cell(MONDAY - 1, 0): NOON - timedelta(microseconds=1), Cell(MONDAY + 1, 0): NOON}
    found = plan(facts(newcomer, arrivals=arrivals, reach=1), Policy(), NOON + DAY)
    assert [(stale.cell.partition, stale.reason) for stale in found.stale] == [(MONDAY, "open"), (MONDAY + 1, "linked")]


def test_neighbours_of_another_bucket_or_beyond_the_window_are_not_linked() -> None:
    arrivals = {Cell(MONDAY + 1, 1): NOON, Cell(MONDAY + 2, 0): NOON}
    found = plan(facts(change(MONDAY), arrivals=arrivals, reach=1), Policy(), NOON + DAY)
    assert [stale.cell for stale in found.stale] == [Cell(MONDAY, 0)]


def test_linked_cells_are_ready_together() -> None:
    settled, fresh = change(MONDAY, committed=NOON), change(MONDAY + 1, committed=NOON + MINUTE)
    arrivals = {settled.cell: NOON, fresh.cell: NOON}
    found = plan(facts(settled, fresh, arrivals=arrivals, reach=1), Policy(settle=MINUTE), NOON + MINUTE)
    assert [stale.ready for stale in found.stale] == [False, False]


def test_linked_cells_are_never_cut_into_two_runs() -> None:
    chain = [change(MONDAY + step) for step in range(5)]
    arrivals = {each.cell: NOON for each in chain}
    found = plan(facts(*chain, arrivals=arrivals, reach=1), Policy(max_partitions_per_run=2), NOON + DAY)
    assert [run.partitions for run in found.runs] == [tuple(range(MONDAY, MONDAY + 5))]


def test_unlinked_cells_are_cut_into_runs_of_the_allowed_size() -> None:
    days = [change(MONDAY + step) for step in range(5)]
    found = plan(facts(*days), Policy(max_partitions_per_run=2), NOON + DAY)
    assert [len(run.partitions) for run in found.runs] == [2, 2, 1]


def test_a_run_is_a_contiguous_range() -> None:
    found = plan(facts(change(MONDAY), change(MONDAY + 2)), Policy(), NOON + DAY)
    assert [run.partitions for run in found.runs] == [(MONDAY,), (MONDAY + 2,)]


def test_a_tick_asks_for_no_more_runs_than_allowed_and_the_rest_stays_stale() -> None:
    days = [change(MONDAY + 2 * step) for step in range(5)]
    found = plan(facts(*days), Policy(max_runs_per_tick=3), NOON + DAY)
    assert len(found.runs) == 3
    assert len(found.stale) == 5


def test_what_waits_longest_is_asked_for_first() -> None:
    busy, waiting = change(MONDAY, NOON + 9 * MINUTE), change(MONDAY + 5, NOON)
    [run] = plan(facts(busy, waiting), Policy(max_runs_per_tick=1), NOON + 12 * MINUTE).runs
    assert run.partitions == (MONDAY + 5,)


@pytest.mark.parametrize(("minutes", "first"), [(14, MONDAY + 5), (16, MONDAY)])
def test_cells_of_other_settings_go_before_what_may_wait_longer(minutes: int, first: int) -> None:
    """Else they would wait for ever behind what becomes stale again and again; it may wait for 15 minutes."""
    late, outdated = change(MONDAY, NOON), (Cell(MONDAY + 5, 0),)
    [run] = plan(facts(late, outdated=outdated), Policy(max_runs_per_tick=1), NOON + minutes * MINUTE).runs
    assert run.partitions == (first,)


def test_the_same_input_has_the_same_watermark_and_newer_input_another() -> None:
    first, again, newer = (
        plan(facts(change(MONDAY, sequence=sequence)), Policy(), NOON + DAY).runs[0].watermark for sequence in (7, 7, 8)
    )
    assert first == again != newer


@given(st.sets(st.integers(-50, 50)))
def test_contiguous_ranges_hold_each_partition_once_and_are_as_long_as_can_be(partitions: set[int]) -> None:
    ranges = list(contiguous(partitions))
    assert [partition for each in ranges for partition in each] == sorted(partitions)
    assert all(second[0] > first[-1] + 1 for first, second in pairwise(ranges))


@given(
    st.dictionaries(st.tuples(st.integers(0, 30), st.integers(0, 2)), st.integers(0, 5), max_size=25),
    st.dictionaries(st.tuples(st.integers(0, 30), st.integers(0, 2)), st.integers(0, 5), max_size=25),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_every_ready_cell_is_in_exactly_one_run_together_with_all_that_it_can_change(
    waiting: dict[tuple[int, int], int], held: dict[tuple[int, int], int], around: int, most: int
) -> None:
    changes = [change(partition, NOON, NOON + hour * MINUTE, bucket) for (partition, bucket), hour in waiting.items()]
    arrivals = {Cell(*cell): NOON + minute * MINUTE for cell, minute in held.items()}
    policy = Policy(max_partitions_per_run=most, max_runs_per_tick=100)
    found = plan(facts(*changes, arrivals=arrivals, reach=around), policy, NOON + DAY)
    run_of = {partition: number for number, run in enumerate(found.runs) for partition in run.partitions}
    assert sum(len(run.partitions) for run in found.runs) == len(run_of), "no partition is in two runs"
    for each in changes:
        assert each.cell.partition in run_of
        for other, latest in arrivals.items():
            near = other.bucket == each.cell.bucket and abs(other.partition - each.cell.partition) <= around
            if near and each.arrival_min is not None and latest >= each.arrival_min:
                assert run_of[other.partition] == run_of[each.cell.partition]
