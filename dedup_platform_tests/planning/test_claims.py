"""Claims: one owner at a time, no request forgotten, and what becomes of requests at each moment of a claim's life."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.planning.claims import (
    ALL,
    DONE_KEPT,
    NONE,
    TIME_TO_LIVE,
    Answer,
    Board,
    Claim,
    Partitions,
    ask,
    begin,
    end,
    is_live,
    new_board,
    read,
    renew,
)

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ME, OTHER = "host/1/0.00", "host/2/0.00"


def these(*partitions: int) -> Partitions:
    return Partitions(frozenset(partitions))


class Desk:
    """A board, and a clock that is held in the hand."""

    def __init__(self) -> None:
        self.now = NOON
        self.board: Board = new_board(NOON)
        self.gone: set[str] = set()

    def ask(self, asked: Partitions, owner: str = ME, leaves: bool = True) -> Answer:
        self.board, answer = ask(self.board, asked, owner, self.now, self.gone.__contains__, leaves=leaves)
        return answer

    def claim(self, asked: Partitions, owner: str = ME) -> Claim:
        claim = self.ask(asked, owner).claim
        assert claim
        return claim

    def read(self, claim: Claim, above: int = 0) -> Claim | None:
        self.board, after = read(self.board, claim, self.now, above)
        return after

    def renew(self, claim: Claim) -> Claim | None:
        self.board, after = renew(self.board, claim, self.now)
        return after

    def end(self, claim: Claim, failed: bool = False) -> Claim | None:
        self.board, after = end(self.board, claim, self.now, failed=failed)
        return after

    def states(self) -> list[tuple[str, Partitions]]:
        return [(each.state, each.partitions) for each in self.board.claims]


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Sets of partitions

sets = st.builds(Partitions, st.frozensets(st.integers(0, 5)), st.booleans())
SOME = range(8)
"""Also two that no set lists."""


@given(sets, sets)
def test_sets_of_partitions_are_sets(one: Partitions, two: Partitions) -> None:
    for partition in SOME:
        in_one, in_two = partition in one, partition in two
        assert (partition in one & two) == (in_one and in_two)
        assert (partition in one | two) == (in_one or in_two)
        assert (partition in one - two) == (in_one and not in_two)
        assert (partition in ~one) != in_one
    assert bool(one) == any(partition in one for partition in SOME)


# Boundaries


def test_who_asks_first_gets_it_and_who_asks_for_others_gets_these_beside(desk: Desk) -> None:
    assert desk.claim(these(1, 2)).partitions == these(1, 2)
    assert desk.claim(these(3), OTHER).partitions == these(3)


def test_a_request_is_left_to_an_owner_who_has_not_read(desk: Desk) -> None:
    claim = desk.claim(these(1))
    answer = desk.ask(these(1), OTHER)
    assert answer.claim is None
    assert [each.owner for each in answer.left] == [ME]
    read_ = desk.read(claim)
    assert read_
    assert read_.wanted == NONE, "it will be seen"
    assert desk.end(read_) is None


@pytest.mark.parametrize("is_gone", [True, False])
def test_who_takes_over_from_nobody_reads_at_once(desk: Desk, is_gone: bool) -> None:
    claim = desk.claim(these(1))
    desk.end(claim) if not is_gone else desk.gone.add(ME)
    desk.board, answer = begin(desk.board, these(1), OTHER, desk.now, desk.gone.__contains__, leaves=True)
    assert answer.claim
    assert answer.claim == desk.board.claims[-1]
    assert answer.claim.state == ("started" if is_gone else "in progress")


def test_a_request_after_the_input_was_read_is_worked_on_once_more(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1, 2)))
    assert claim
    assert desk.ask(these(2, 3), OTHER).claim == desk.board.claims[-1]
    assert desk.board.claims[-1].partitions == these(3)
    again = desk.end(claim)
    assert again
    assert (again.state, again.partitions, again.token) == ("started", these(2), claim.token)
    assert desk.claim(these(1)), "what is not wanted again is free"
    then = desk.read(again)
    assert then
    assert desk.end(then) is None


def test_whoever_reads_once_more_sees_what_was_asked_for_until_then(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1)))
    assert claim
    desk.ask(these(1), OTHER)
    again = desk.read(claim)
    assert again
    assert desk.end(again) is None


def test_a_request_that_is_not_to_be_left_to_others_is_noted_nowhere(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1)))
    assert claim
    answer = desk.ask(these(1, 2), OTHER, leaves=False)
    assert answer.claim
    assert answer.claim.partitions == these(2)
    assert desk.end(claim) is None


@pytest.mark.parametrize(("passed", "live"), [(TIME_TO_LIVE - SECOND, True), (TIME_TO_LIVE, False)])
def test_a_claim_expires_when_its_time_is_over(desk: Desk, passed: timedelta, live: bool) -> None:
    claim = desk.claim(these(1))
    desk.now += passed
    assert is_live(claim, desk.now, desk.gone.__contains__) == live
    assert (desk.ask(these(1), OTHER).claim is None) == live


def test_a_sign_of_life_makes_a_claim_last(desk: Desk) -> None:
    claim = desk.claim(these(1))
    desk.now += TIME_TO_LIVE - SECOND
    assert desk.renew(claim)
    desk.now += TIME_TO_LIVE - SECOND
    assert desk.ask(these(1), OTHER).claim is None


def test_an_owner_who_is_gone_is_not_waited_for(desk: Desk) -> None:
    claim = desk.claim(these(1))
    desk.gone.add(ME)
    taken = desk.claim(these(1), OTHER)
    assert taken.token > claim.token
    assert taken.succeeds
    assert desk.states() == [("started", these(1))]


def test_an_end_far_ahead_was_told_by_a_wrong_clock(desk: Desk) -> None:
    desk.claim(these(1))
    desk.now -= timedelta(days=2)
    assert desk.claim(these(1), OTHER)


def test_whoever_slept_through_the_claim_is_told_so(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1)))
    assert claim
    desk.now += TIME_TO_LIVE
    taken = desk.claim(these(1), OTHER)
    assert desk.renew(claim) is None
    assert desk.read(claim) is None
    assert desk.end(claim) is None
    assert desk.board.claims == (taken,)


def test_whoever_slept_and_was_not_missed_goes_on(desk: Desk) -> None:
    claim = desk.claim(these(1))
    desk.now += 10 * TIME_TO_LIVE
    assert desk.read(claim)
    assert desk.ask(these(1), OTHER).claim is None


def test_what_nobody_asked_for_stays_where_a_dead_owner_left_it(desk: Desk) -> None:
    """With what was wanted again; and the owner, should it live, may write none of it."""
    claim = desk.read(desk.claim(these(1, 2, 3)))
    assert claim
    desk.ask(these(2, 3), OTHER)
    desk.now += TIME_TO_LIVE
    assert desk.claim(these(1, 2), OTHER).succeeds
    assert desk.states() == [("failed", these(3)), ("started", these(1, 2))]
    assert desk.board.claims[0].wanted == these(3)
    assert desk.read(claim) is None
    assert desk.claim(these(3), OTHER).succeeds, "its first owner may still write"


def test_what_failed_is_free_and_is_no_succession(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1, 2)))
    assert claim
    desk.ask(these(2), OTHER)
    assert desk.end(claim, failed=True) is None
    assert desk.states() == [("failed", these(1, 2))]
    taken = desk.claim(these(2), OTHER)
    assert not taken.succeeds
    assert desk.states() == [("failed", these(1)), ("started", these(2))]


def test_whoever_fails_before_the_dead_one_is_barred_leaves_that_to_the_next(desk: Desk) -> None:
    desk.claim(these(1))
    desk.gone.add(ME)
    desk.end(desk.claim(these(1), OTHER), failed=True)
    assert desk.claim(these(1), "host/3/0.00").succeeds


def test_a_request_for_all_gets_what_others_are_not_at(desk: Desk) -> None:
    desk.claim(these(1))
    rest = desk.claim(ALL, OTHER)
    assert rest.partitions == ~these(1)
    assert desk.ask(ALL).claim is None


def test_tokens_rise_by_the_clock_and_also_while_it_stands_still_or_goes_back(desk: Desk) -> None:
    tokens = []
    for step in (SECOND, timedelta(0), -SECOND, SECOND):
        desk.now += step
        claim = desk.claim(these(1))
        desk.end(claim)
        tokens.append(claim.token)
    assert tokens == sorted(set(tokens))
    assert new_board(desk.now + SECOND).token > tokens[-1], "also when the board is lost"


def test_who_reads_gets_a_token_above_what_a_table_has_seen(desk: Desk) -> None:
    claim = desk.claim(these(1))
    kept = desk.read(claim, above=claim.token - 1)
    assert kept
    assert kept.token == claim.token
    raised = desk.read(kept, above=claim.token + 7)
    assert raised
    assert raised.token == claim.token + 8
    assert desk.board.token == raised.token
    assert desk.end(claim) is None, "by its old token nobody knows it"
    assert desk.board.claims[-1].state == "in progress"


def test_a_claim_outlives_the_board(desk: Desk) -> None:
    claim = desk.read(desk.claim(these(1)))
    assert claim
    desk.now += SECOND
    desk.board = new_board(desk.now)
    assert desk.renew(claim)
    assert desk.ask(these(1), OTHER).claim is None
    assert desk.board.token >= claim.token


def test_a_claim_whose_partitions_another_has_on_the_new_board_is_lost(desk: Desk) -> None:
    claim = desk.claim(these(1, 2))
    desk.now += SECOND
    desk.board = new_board(desk.now)
    desk.claim(these(2), OTHER)
    assert desk.read(claim) is None


def test_some_that_are_done_are_shown(desk: Desk) -> None:
    for _ in range(DONE_KEPT + 3):
        desk.end(desk.claim(these(1)))
    assert desk.states() == [("done", these(1))] * DONE_KEPT


# Random histories

KINDS = ("ask", "ask", "ask", "beside", "read", "end", "end", "fail", "die", "renew", "sleep")
steps = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 3), st.builds(Partitions, st.frozensets(st.integers(0, 3)))),
    max_size=40,
)


@dataclass
class History:
    """Owners who work on four partitions, and requests that are to be seen by work which reads after them."""

    desk: Desk = field(default_factory=Desk)
    held: dict[str, Claim] = field(default_factory=dict)
    deaths: int = 0
    moment: int = 0
    asked: dict[int, int] = field(default_factory=dict)
    """Partition -> when it was asked for last."""
    done: dict[int, int] = field(default_factory=dict)
    """Partition -> when the input was read of the last work on it that is done."""
    read_at: dict[str, int] = field(default_factory=dict)

    def step(self, kind: str, number: int, partitions: Partitions) -> None:
        self.moment += 1
        name = f"host/{number}/{self.deaths}"
        if kind == "ask":
            self._ask(name, partitions)
        elif kind == "sleep":
            self.desk.now += TIME_TO_LIVE / 2
        elif kind == "die":
            self.desk.gone |= {name}
            self.deaths += 1
            self.held.pop(name, None)
        elif name in self.held:
            self._go_on(kind, name, self.held[name])

    def _ask(self, name: str, partitions: Partitions) -> None:
        if name in self.held:
            return
        if claim := self.desk.ask(partitions, name).claim:
            self.held[name] = claim
        self.asked |= dict.fromkeys(partitions.listed, self.moment)

    def _go_on(self, kind: str, name: str, claim: Claim) -> None:
        if kind == "read" and (after := self.desk.read(claim)):
            self.held[name], self.read_at[name] = after, self.moment
        elif kind == "renew" and (after := self.desk.renew(claim)):
            self.held[name] = after
        elif kind in ("end", "fail") and claim.state == "in progress":
            self._end(kind, name, claim)

    def _end(self, kind: str, name: str, claim: Claim) -> None:
        was_mine = (claim.token, claim.owner) in {(each.token, each.owner) for each in self.working()}
        after = self.desk.end(claim, failed=kind == "fail")
        if kind == "end" and was_mine:
            for partition in claim.partitions.listed:
                self.done[partition] = max(self.done.get(partition, 0), self.read_at[name])
        if after:
            self.held[name] = after
        else:
            del self.held[name]

    def working(self) -> list[Claim]:
        return [each for each in self.desk.board.claims if each.ended is None]

    def wrong(self) -> Iterator[str]:
        working = self.working()
        for i, one in enumerate(working):
            for two in working[i + 1 :]:
                if one.partitions & two.partitions:
                    yield f"{one} and {two} share partitions"
        tokens = [each.token for each in self.desk.board.claims]
        if len(set(tokens)) < len(tokens) or max(tokens, default=0) > self.desk.board.token:
            yield f"tokens {tokens}, of which the board knows {self.desk.board.token}"
        for partition, asked in self.asked.items():
            if self.done.get(partition, 0) < asked and not self._is_kept(partition, asked):
                yield f"the request for {partition} at {asked} is forgotten: {self.desk.board}"

    def _is_kept(self, partition: int, asked: int) -> bool:
        """Whether somebody will see the request, or who asks next finds that it is left."""
        for claim in self.desk.board.claims:
            if partition not in claim.partitions or claim.state == "done":
                continue
            is_seen = self.read_at.get(claim.owner, 0) > asked
            if claim.state != "in progress" or partition in claim.wanted or is_seen:
                return True
        return False

    def finish(self) -> None:
        """Everybody who lives comes to an end, and somebody asks for all that is left."""
        for name in list(self.held):
            while name in self.held:
                self.moment += 1
                self._go_on("read", name, self.held[name])
                if self.held[name].state != "in progress":
                    del self.held[name]
                    break
                self._end("end", name, self.held[name])
        self.desk.gone |= {each.owner for each in self.working()}
        self.moment += 1
        last = self.desk.ask(these(*range(4)), "host/last/0").claim
        assert last
        assert last.partitions == these(*range(4))


@settings(max_examples=200, deadline=None)
@given(steps)
def test_one_owner_at_a_time_and_no_request_forgotten(history: Sequence[tuple[str, int, Partitions]]) -> None:
    told = History()
    for step in history:
        told.step(*step)
        assert list(told.wrong()) == []
    told.finish()
