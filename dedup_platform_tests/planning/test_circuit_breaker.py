"""How an ingest's state follows from its failures: every boundary by hand, and any order of them by machine."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dedup_platform.planning.circuit_breaker import (
    NORMAL,
    BreakerPolicy,
    Circuit,
    Failure,
    Kind,
    believed,
    failed,
    is_due,
    sentence,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
POLICY = BreakerPolicy()
TRANSIENT = Failure("transient", "no answer", "stream file 1")
LASTING = Failure("lasting", "counts do not balance", "stream file 1")
HELD = Failure("held", "90 of 100 rejected", "stream file 1", batch="a.csv")


def after(*failures: Failure, policy: BreakerPolicy = POLICY, jitter: float = 1.0) -> Circuit:
    """The state after failures that all happened at noon."""
    state = NORMAL
    for failure in failures:
        state = failed(state, failure, policy, NOON, jitter)
    return state


@pytest.mark.parametrize(
    ("failures", "state", "pause"),
    [
        (1, "retrying", SECOND),
        (2, "retrying", 2 * SECOND),
        (3, "open", 5 * MINUTE),
        (4, "open", 10 * MINUTE),
        (6, "open", 40 * MINUTE),
        (7, "open", 60 * MINUTE),
        (100, "open", 60 * MINUTE),
    ],
)
def test_pauses_double_until_the_circuit_opens_and_then_cool_downs_do(
    failures: int, state: str, pause: timedelta
) -> None:
    found = after(*[TRANSIENT] * failures)
    assert (found.state, found.attempts, found.since) == (state, failures, NOON)
    assert found.next_try == NOON + pause


def test_a_pause_is_never_longer_than_the_longest() -> None:
    patient = BreakerPolicy(max_attempts=50, max_backoff=10 * SECOND)
    assert after(*[TRANSIENT] * 40, policy=patient).next_try == NOON + 10 * SECOND


def test_jitter_takes_away_at_most_half_of_a_pause_and_nothing_of_a_cool_down() -> None:
    assert after(TRANSIENT, jitter=0).next_try == NOON + SECOND / 2
    assert after(*[TRANSIENT] * 3, jitter=0).next_try == NOON + 5 * MINUTE


def test_one_attempt_opens_at_once() -> None:
    assert after(TRANSIENT, policy=BreakerPolicy(max_attempts=1)).state == "open"


def test_what_cannot_pass_by_itself_is_not_retried_but_probed() -> None:
    found = after(LASTING)
    assert (found.state, found.next_try) == ("failing", NOON + 5 * MINUTE)
    assert after(LASTING, LASTING).next_try == NOON + 10 * MINUTE


def test_a_held_batch_waits_for_a_person_only() -> None:
    found = after(HELD)
    assert (found.state, found.next_try, found.batch) == ("failing", None, "a.csv")
    assert not is_due(found, HELD.evidence, NOON + timedelta(days=1000))
    assert is_due(found, "stream file 2", NOON)


def test_a_probe_that_fails_in_another_way_stays_open() -> None:
    found = after(LASTING, TRANSIENT)
    assert (found.state, found.opened, found.next_try) == ("open", 2, NOON + 10 * MINUTE)


def test_a_failure_after_somebody_acted_begins_a_new_story() -> None:
    found = after(LASTING, LASTING, replace(TRANSIENT, evidence="stream file 2"))
    assert (found.state, found.attempts, found.opened) == ("retrying", 1, 0)


@pytest.mark.parametrize(("wait", "due"), [(SECOND - timedelta(microseconds=1), False), (SECOND, True)])
def test_a_try_is_due_at_its_time(wait: timedelta, due: bool) -> None:
    assert is_due(after(TRANSIENT), TRANSIENT.evidence, NOON + wait) == due


def test_a_next_try_that_a_clock_told_which_was_far_ahead_is_now() -> None:
    found, longest = after(*[TRANSIENT] * 7), POLICY.max_cool_down
    assert found.next_try == NOON + longest
    assert believed(found, POLICY, NOON - longest) == found, "clocks may differ a little"
    back = NOON - longest - SECOND
    assert believed(found, POLICY, back) == replace(found, next_try=back)
    assert is_due(believed(found, POLICY, back), TRANSIENT.evidence, back)


def test_a_pause_may_be_as_long_as_the_longest_of_its_policy() -> None:
    patient = BreakerPolicy(max_attempts=50, backoff=30 * MINUTE, max_backoff=timedelta(days=2))
    found = after(*[TRANSIENT] * 20, policy=patient)
    assert believed(found, patient, NOON) == found


@pytest.mark.parametrize("state", [NORMAL, after(HELD)])
def test_what_waits_for_no_time_is_believed_at_any_time(state: Circuit) -> None:
    assert believed(state, POLICY, NOON - timedelta(days=1000)) == state


def test_what_is_normal_is_always_due() -> None:
    assert is_due(NORMAL, NORMAL.evidence, NOON)


def test_sentences_tell_state_reason_and_next_try() -> None:
    assert sentence(NORMAL) == "the ingest is normal"
    assert sentence(after(*[TRANSIENT] * 3)) == (
        "the ingest is open: 3 tries since 2026-01-05 12:00:00 UTC failed, the last one with: no answer; "
        "the next try is after 2026-01-05 12:05:00 UTC, and a run started by hand tries now"
    )
    assert sentence(after(HELD)).endswith("90 of 100 rejected; it waits for a person")


class Life(RuleBasedStateMachine):
    """Any order of failures, successes, acts of people and waiting; a model beside it keeps what must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = BreakerPolicy(max_attempts=3)
        self.now = NOON
        self.state = NORMAL
        self.evidence = "0"
        self.in_a_row = 0

    @rule(kind=st.sampled_from(["transient", "lasting", "held"]), jitter=st.floats(0, 1))
    def fail(self, kind: Kind, jitter: float) -> None:
        self.in_a_row = self.in_a_row + 1 if self.state.evidence == self.evidence else 1
        before = self.state
        self.state = failed(before, Failure(kind, "why", self.evidence), self.policy, self.now, jitter)
        assert self.state.state == "failing" if kind != "transient" else self.state.state in ("retrying", "open")
        if before.state in ("open", "failing") and before.evidence == self.evidence:
            assert self.state.state != "retrying", "a probe that failed does not begin anew"
            assert self.state.opened == before.opened + 1

    @rule()
    def succeed(self) -> None:
        self.state, self.in_a_row = NORMAL, 0

    @rule()
    def act(self) -> None:
        self.evidence = str(int(self.evidence) + 1)
        assert is_due(self.state, self.evidence, self.now)

    @rule(by=st.integers(0, 7200))
    def wait(self, by: int) -> None:
        self.now += by * SECOND

    @invariant()
    def counts_failures(self) -> None:
        assert self.state.attempts == self.in_a_row

    @invariant()
    def is_bounded(self) -> None:
        if self.state.next_try:
            assert self.state.next_try - self.now <= self.policy.max_cool_down
            assert is_due(self.state, self.state.evidence, self.state.next_try)

    @invariant()
    def waits_for_ever_only_if_held(self) -> None:
        is_final = self.state.state != "normal" and self.state.next_try is None
        assert not is_final or self.state.state == "failing"


TestLife = Life.TestCase
