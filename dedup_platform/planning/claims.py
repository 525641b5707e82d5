"""Who works on what: the claims of one table, feed or sink, and what becomes of requests for what is in work. Pure.

    started ──reads its input──> in progress ──> done
       ↑                              │   └────> failed: it raised, or its owner died and another took over
       └── asked for again meanwhile ─┘

A request finds each partition in one of three states. Nobody is at it: the request gets it. Its owner has not read the
input yet: the owner will see what the request is about, and it is left to them. Its owner has read: that it is wanted
again is noted, and the owner works once more. Either way nobody waits, so no two requests wait for each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from dedup_platform.planning.moments import microseconds

State = Literal["started", "in progress", "done", "failed"]

TIME_TO_LIVE = timedelta(seconds=60)
"""After so long without a sign of life an owner on another machine counts as dead."""
DONE_KEPT = 5
"""So many claims that are done are kept, for people."""


@dataclass(frozen=True)
class Partitions:
    """A set of partitions: those that are listed, or all others (`is_rest`)."""

    listed: frozenset[int] = frozenset()
    is_rest: bool = False

    def __contains__(self, partition: object) -> bool:
        return (partition in self.listed) != self.is_rest

    def __bool__(self) -> bool:
        return self.is_rest or bool(self.listed)

    def __invert__(self) -> "Partitions":
        return Partitions(self.listed, not self.is_rest)

    def __and__(self, other: "Partitions") -> "Partitions":
        if self.is_rest and other.is_rest:
            return Partitions(self.listed | other.listed, is_rest=True)
        if self.is_rest or other.is_rest:
            some, rest = (other, self) if self.is_rest else (self, other)
            return Partitions(some.listed - rest.listed)
        return Partitions(self.listed & other.listed)

    def __or__(self, other: "Partitions") -> "Partitions":
        return ~(~self & ~other)

    def __sub__(self, other: "Partitions") -> "Partitions":
        return self & ~other


NONE = Partitions()
ALL = Partitions(is_rest=True)
"""Also of what has no partitions: a feed, a sink."""


@dataclass(frozen=True)
class Claim:
    """What one owner works on. No two that are in work share a partition."""

    token: int
    """Larger than that of every claim before it."""
    owner: str
    """`host/pid/start time` of the process."""
    partitions: Partitions
    state: State
    since: datetime
    expires: datetime
    wanted: Partitions = NONE
    """Asked for again since the input was read."""
    succeeds: bool = False
    """Whether somebody had it before who may still be writing, and whose writes are not refused yet."""
    ended: datetime | None = None


@dataclass(frozen=True)
class Board:
    """The claims of one table, feed or sink: those in work, those that failed, and the last ones that are done."""

    born: int
    """A token of the moment in which it was made: it cannot know of claims with smaller ones."""
    token: int
    """The largest that was given."""
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What becomes of a request."""

    claim: Claim | None
    """What the asker is to work on now; None if others are at all of it."""
    left: Sequence[Claim] = field(default=())
    """The claims of others that hold some of it, each with what they hold of it."""


def new_board(now: datetime) -> Board:
    """One without claims. Tokens follow the clock, so that they rise even where all boards were lost."""
    return Board(microseconds(now), microseconds(now))


def is_live(claim: Claim, now: datetime, is_gone: Callable[[str], bool]) -> bool:
    """Whether its owner is still at it, as far as anybody can tell; `is_gone` knows processes that ended.

    An end that is far ahead was told by a clock that was wrong, and is not believed.
    """
    return claim.ended is None and now < claim.expires <= now + 2 * TIME_TO_LIVE and not is_gone(claim.owner)


def ask(
    board: Board, asked: Partitions, owner: str, now: datetime, is_gone: Callable[[str], bool], *, leaves: bool
) -> tuple[Board, Answer]:
    """Claim what nobody is at; with `leaves` have those who are at the rest work on it for the asker, too."""
    free, kept, left, succeeds = asked, list[Claim](), list[Claim](), False
    for claim in board.claims:
        part = claim.partitions & asked
        if not part or claim.state == "done":
            kept.append(claim)
        elif is_live(claim, now, is_gone):
            free -= part
            left.append(replace(claim, partitions=part))
            kept.append(_noted(claim, part) if leaves else claim)
        else:
            succeeds |= claim.ended is None or claim.succeeds
            kept += _without(claim, part, now)
    if not free:
        return replace(board, claims=tuple(kept)), Answer(None, left)
    token = max(board.token + 1, microseconds(now))
    claim = Claim(token, owner, free, "started", now, now + TIME_TO_LIVE, succeeds=succeeds)
    return Board(board.born, token, (*kept, claim)), Answer(claim, left)


def begin(
    board: Board, asked: Partitions, owner: str, now: datetime, is_gone: Callable[[str], bool], *, leaves: bool
) -> tuple[Board, Answer]:
    """Ask and read at once; unless it is a succession, where those who may still write are to be barred first."""
    board, answer = ask(board, asked, owner, now, is_gone, leaves=leaves)
    if answer.claim and not answer.claim.succeeds:
        board, claim = read(board, answer.claim, now)
        answer = replace(answer, claim=claim)
    return board, answer


def read(board: Board, claim: Claim, now: datetime, above: int = 0) -> tuple[Board, Claim | None]:
    """Its owner reads the input now: what was asked for so far will be seen. None if the claim is another's by now.

    It gets a new token if its own is not above one that the table has seen.
    """
    found = _found(board, claim)
    if found is None:
        return board, None
    token = found.token if found.token > above else max(board.token, above) + 1
    return _put(board, claim, replace(_renewed(found, now), token=token, state="in progress", wanted=NONE))


def renew(board: Board, claim: Claim, now: datetime) -> tuple[Board, Claim | None]:
    """Its owner lives. None if the claim is another's by now."""
    found = _found(board, claim)
    return _put(board, claim, _renewed(found, now)) if found else (board, None)


def end(board: Board, claim: Claim, now: datetime, *, failed: bool) -> tuple[Board, Claim | None]:
    """Its owner is done, or failed. What is to be worked on once more, if anything was asked for again.

    What failed stays on the board until somebody asks for it, with whatever was asked for again.
    """
    found = _found(board, claim)
    if found is None:
        return board, None
    if found.wanted and not failed:
        again = replace(_renewed(found, now), partitions=found.wanted, state="started", wanted=NONE)
        return _put(board, claim, again)
    state: State = "failed" if failed else "done"
    board, _ = _put(board, claim, replace(found, state=state, ended=now))
    return replace(board, claims=_pruned(board.claims)), None


def _noted(claim: Claim, part: Partitions) -> Claim:
    """What is asked for after its owner has read is wanted again."""
    return replace(claim, wanted=claim.wanted | part) if claim.state == "in progress" else claim


def _without(claim: Claim, part: Partitions, now: datetime) -> list[Claim]:
    """What is left of a claim of which another took a part: its owner may write none of it any more."""
    rest = claim.partitions - part
    succeeds = claim.succeeds or claim.ended is None
    ended = replace(claim, partitions=rest, state="failed", succeeds=succeeds, ended=claim.ended or now)
    return [replace(ended, wanted=claim.wanted & rest)] if rest else []


def _found(board: Board, claim: Claim) -> Claim | None:
    """A claim as it is on the board now; None if it ended, or another took some of it."""
    for each in board.claims:
        if (each.token, each.owner) == (claim.token, claim.owner):
            return each if each.ended is None else None
    # The board was lost and made anew: the claim holds as long as nobody else has any of it.
    is_taken = any(each.ended is None and each.partitions & claim.partitions for each in board.claims)
    return claim if claim.token < board.born and not is_taken else None


def _put(board: Board, before: Claim, after: Claim) -> tuple[Board, Claim]:
    others = [each for each in board.claims if (each.token, each.owner) != (before.token, before.owner)]
    return Board(board.born, max(board.token, after.token), (*others, after)), after


def _renewed(claim: Claim, now: datetime) -> Claim:
    return replace(claim, expires=now + TIME_TO_LIVE)


def _pruned(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    done = [claim for claim in claims if claim.state == "done"]
    return tuple(claim for claim in claims if claim not in done[:-DONE_KEPT])
