"""What the late_partitions sensor asks for, given the plan and what was tried before."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from dedup_platform.planning.planner import PlannedRun
from dedup_platform.planning.triage import (
    Deferred,
    PastRun,
    Request,
    RunHistory,
    described,
    pause,
    paused_until,
    triage,
)

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
LAST_KNOWN = 1000
PLANNED = PlannedRun(partitions=(10, 11, 12, 13), reason="late", watermark="sessions/7/abc")


def past(first: int, last: int, ago: timedelta, failed: bool = True, watermark: str = "sessions/6/abc") -> PastRun:
    return PastRun(first, last, watermark, failed, NOW - ago)


def decide(
    *runs: PastRun, in_work: dict[int, str] | None = None, last_known: int = LAST_KNOWN
) -> list[Request | Deferred]:
    return list(triage(PLANNED, RunHistory(runs, in_work or {}), last_known, NOW))


def asked(decisions: list[Request | Deferred]) -> list[tuple[tuple[int, ...], int]]:
    return [(each.partitions, each.tries) for each in decisions if isinstance(each, Request)]


def test_what_was_never_tried_is_asked_for_as_planned() -> None:
    assert asked(decide()) == [((10, 11, 12, 13), 0)]


def test_partitions_that_a_run_works_on_wait_and_the_rest_goes_on() -> None:
    decisions = decide(in_work={11: "0123456789abcdef"})
    assert asked(decisions) == [((10,), 0), ((12, 13), 0)]
    assert described([each for each in decisions if isinstance(each, Deferred)], str) == ["11: run 01234567 is at it"]


def test_partitions_that_a_process_has_claimed_wait_and_the_rest_goes_on() -> None:
    decisions = list(triage(PLANNED, RunHistory(claimed={12: "process 7 on worker"}), LAST_KNOWN, NOW))
    assert asked(decisions) == [((10, 11), 0), ((13,), 0)]
    deferred = [each for each in decisions if isinstance(each, Deferred)]
    assert described(deferred, str) == ["12: process 7 on worker is at it"]


def test_keys_that_dagster_does_not_know_yet_wait_and_are_shown() -> None:
    decisions = decide(last_known=11)
    assert asked(decisions) == [((10, 11), 0)]
    [line] = described([each for each in decisions if isinstance(each, Deferred)], str)
    assert line.startswith("12 … 13: Dagster has no such partition yet")


def test_a_failed_range_is_tried_again_whole_after_a_pause() -> None:
    assert asked(decide(past(10, 13, timedelta(seconds=59)))) == []
    assert asked(decide(past(10, 13, timedelta(seconds=60)))) == [((10, 11, 12, 13), 1)]


def test_what_failed_twice_is_tried_partition_by_partition() -> None:
    failures = past(10, 13, timedelta(minutes=2)), past(10, 13, timedelta(minutes=4))
    assert asked(decide(*failures)) == [((10,), 2), ((11,), 2), ((12,), 2), ((13,), 2)]


def test_a_partition_that_fails_again_and_again_does_not_hold_the_others() -> None:
    failures = [past(12, 12, timedelta(minutes=minutes)) for minutes in (1, 3, 7, 15)]
    decisions = decide(*failures)
    assert asked(decisions) == [((10, 11), 0), ((13,), 0)]
    [line] = described([each for each in decisions if isinstance(each, Deferred)], str)
    assert line == "12: still stale after 4 tries; the next one starts after 2024-05-01 12:07:00 UTC"


def test_a_success_since_then_forgives() -> None:
    fixed = past(10, 13, timedelta(seconds=5), failed=False)
    assert asked(decide(fixed, past(10, 13, timedelta(seconds=30)))) == [((10, 11, 12, 13), 0)]


def test_a_success_that_left_the_same_cells_stale_counts_as_a_try() -> None:
    vain = past(10, 13, timedelta(seconds=5), failed=False, watermark=PLANNED.watermark)
    assert asked(decide(vain)) == []


def test_every_try_has_a_key_of_its_own() -> None:
    tries: list[PastRun] = []
    keys = []
    for _ in range(4):
        [request] = [each for each in decide(*tries) if isinstance(each, Request) and 10 in each.partitions]
        keys.append(request.key)
        tries.insert(0, past(request.partitions[0], request.partitions[-1], timedelta(hours=2)))
    assert len(set(keys)) == len(keys)


def test_a_key_is_new_even_if_the_tries_are_forgotten() -> None:
    """Dagster lists so many ended runs at most, and a success forgives: the same number of tries comes again."""
    failure, others = past(10, 13, timedelta(hours=2)), [past(1, 1, timedelta(hours=1), failed=False)] * 500
    keys = [
        request.key
        for runs in ([], [failure], [*others, failure][:500], [past(10, 13, timedelta(seconds=9), failed=False)])
        for request in decide(*(replace(run, run_id=str(len(runs))) for run in runs))
        if isinstance(request, Request)
    ]
    assert len(set(keys)) == 4


def test_a_key_stays_the_same_until_a_run_ends() -> None:
    assert decide(past(1, 1, timedelta(hours=1))) == decide(past(1, 1, timedelta(hours=1)))


def test_an_older_success_with_the_same_input_is_no_try_if_other_settings_were_built_since() -> None:
    vain = past(10, 13, timedelta(seconds=20), failed=False, watermark=PLANNED.watermark)
    other = past(10, 13, timedelta(seconds=5), failed=False, watermark="sessions/7/def")
    assert asked(decide(other, vain)) == [((10, 11, 12, 13), 0)]


def test_what_anybody_rebuilt_since_was_not_tried_in_vain() -> None:
    vain = past(10, 13, timedelta(seconds=20), failed=False, watermark=PLANNED.watermark)
    rebuilt = {12: NOW - timedelta(seconds=5), 13: NOW - timedelta(seconds=25)}
    decisions = list(triage(PLANNED, RunHistory((vain,), last_rebuilt=rebuilt.get), LAST_KNOWN, NOW))
    assert asked(decisions) == [((12,), 0)]


def test_an_end_that_a_clock_told_which_was_far_ahead_holds_nothing() -> None:
    assert asked(decide(past(10, 13, -timedelta(days=1)))) == [((10, 11, 12, 13), 1)]
    assert asked(decide(past(10, 13, -timedelta(minutes=1)))) == [], "clocks may differ a little"


def test_a_pause_that_is_believed_is_at_most_two_hours() -> None:
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    assert paused_until([], NOW) is None
    assert paused_until([NOW - hour + second] * 20, NOW) == NOW + second
    assert paused_until([NOW - hour] * 20, NOW) is None
    assert paused_until([NOW + hour] * 20, NOW) == NOW + 2 * hour
    assert paused_until([NOW + hour + second] * 20, NOW) is None


def test_a_pause_doubles_up_to_an_hour() -> None:
    assert [pause(tries) / timedelta(minutes=1) for tries in (0, 1, 2, 3, 7, 100)] == [0, 1, 2, 4, 60, 60]
