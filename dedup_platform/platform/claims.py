"""The door to claims: work is claimed before it begins, kept while it goes on, and left to who is at it already.

Claims save work; nothing is right because of them. Tables are kept right by compare-and-set and sinks by their own
positions, whether anybody holds a claim, two processes think that they do, or the control database is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock, Thread
from typing import Generic, TypeVar

from dedup_platform.errors import ClaimLostError, OutdatedTokenError
from dedup_platform.ledger import Boards
from dedup_platform.planning.cells import contiguous
from dedup_platform.planning.claims import (
    TIME_TO_LIVE,
    Answer,
    Board,
    Claim,
    Partitions,
    begin,
    end,
    is_live,
    new_board,
    read,
    renew,
)
from dedup_platform.planning.moments import Clock
from dedup_platform.platform.context import Context
from dedup_platform.processes import identity, is_gone
from dedup_platform.stream import Stream

__all__ = ["Claims", "Turn", "Work", "claim_sentence", "named", "owner", "sentence"]

T = TypeVar("T")
Bar = Callable[[int], None]
"""Has a table refuse what is written under smaller tokens than this one."""
SIGNS_OF_LIFE = 3
"""Within the time to live."""
_SECONDS = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class Work(Generic[T]):
    """What became of a request."""

    done: Sequence[T]
    """What each piece of work gave; empty if all of it was left to others."""
    left: str
    """What was left to whom, in words; empty if nothing was."""


class Claims:
    """The claims of a platform's streams."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.boards = Boards(lambda: context.ledger.engine)

    def of(self, stream: str) -> dict[str, list[Claim]]:
        """What is in work, and what failed and nobody asked for since, by table, feed or sink."""
        boards = self.boards.of(self._context.stream(stream).name)
        found = {target: [each for each in board.claims if each.state != "done"] for target, board in boards.items()}
        return {target: held for target, held in sorted(found.items()) if held}

    def in_work(self, stream: str, target: str) -> list[Claim]:
        """The claims on a table, a feed or a sink whose owners are at it, as far as anybody can tell."""
        now = self._context.clock()
        return [each for each in self.of(stream).get(target, ()) if is_live(each, now, is_gone)]

    def work(
        self,
        stream: Stream,
        target: str,
        asked: Partitions,
        step: Callable[["Turn"], T],
        *,
        bar: Bar = lambda _: None,
        beside: bool = False,
    ) -> Work[T]:
        """Do a step for the partitions that nobody is at, and once more if they are asked for again meanwhile.

        The step says `turn.reading` when it reads its input. With `beside`, and where the stream file says
        `on_repeat: process`, it is done for all that is asked, whoever is at it.
        """
        leaves = not beside and stream.claims.on_repeat == "drop"
        place = _Place(self.boards, stream.name, target, self._context.clock)
        answer = place.change(partial(begin, asked=asked, owner=identity(), is_gone=is_gone, leaves=leaves))
        left = sentence(stream, answer) if leaves else ""
        if leaves and not answer.claim:
            return Work((), left)
        turn = Turn(place, answer.claim, asked if not leaves or not answer.claim else answer.claim.partitions, bar)
        with turn.kept():
            done = [step(turn)]
            while turn.is_wanted_again():
                done.append(step(turn))
        return Work(done, left)


def sentence(stream: Stream, answer: Answer) -> str:
    """What was left to whom: `2026-01-03 left to process 4711 on worker-1, at it since …`."""
    return "; ".join(
        f"{named(stream, each.partitions)} left to {owner(each)}, at it since {each.since:{_SECONDS}} UTC"
        for each in answer.left
    )


def claim_sentence(stream: Stream, claim: Claim) -> str:
    """A claim, for people: `2026-01-03 in progress, process 4711 on worker-1 since 12:00:03 UTC, token 17…`."""
    told = f"{named(stream, claim.partitions)} {claim.state}, {owner(claim)} since {claim.since:{_SECONDS}} UTC"
    ends = f"ended {claim.ended:{_SECONDS}} UTC" if claim.ended else f"expires {claim.expires:{_SECONDS}} UTC"
    again = f", wanted again: {named(stream, claim.wanted)}" if claim.wanted else ""
    return f"{told}, token {claim.token}, {ends}{again}"


def owner(claim: Claim) -> str:
    """The owner of a claim, for people: `process 4711 on worker-1`."""
    host, _, process = claim.owner.partition("/")
    return f"process {process.partition('/')[0]} on {host}"


def named(stream: Stream, partitions: Partitions) -> str:
    """Partitions by their keys: `2026-01-03 … 2026-01-05, 2026-01-09`, `all`, or `all but 2026-01-03`."""
    ranges = [
        " … ".join(dict.fromkeys((stream.partitions.key(each[0]), stream.partitions.key(each[-1]))))
        for each in contiguous(partitions.listed)
    ]
    if not partitions.is_rest:
        return ", ".join(ranges)
    return f"all but {', '.join(ranges)}" if ranges else "all"


@dataclass(frozen=True)
class _Place:
    """The board of a table, a feed or a sink."""

    boards: Boards
    stream: str
    target: str
    clock: Clock

    def change(self, step: Callable[..., tuple[Board, T]]) -> T:
        """Take a step on the board: it is called with the board and the time, `now`."""

        def at_now(board: Board | None) -> tuple[Board, T]:
            now = self.clock()
            return step(board or new_board(now), now=now)

        return self.boards.change(self.stream, self.target, at_now)


class Turn:
    """A piece of work that is claimed; or, where others hold all of it, is done beside them."""

    def __init__(self, place: _Place, claim: Claim | None, partitions: Partitions, bar: Bar) -> None:
        self.partitions = partitions
        """What is to be worked on now."""
        self.is_again = False
        """Whether it is others who asked for it meanwhile: they want what is stale or new, and nothing else."""
        self._place, self._claim, self._bar = place, claim, bar
        self._has_read = claim is not None and claim.state == "in progress"
        self._seen = 0
        self._lock = Lock()

    @property
    def token(self) -> int | None:
        """What a table is to know the work by."""
        return self._claim.token if self._claim else None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The input is read from here on: what is asked for later is work for another time.

        Raises ClaimLostError if another process has taken over.
        """
        try:
            if self._claim and not self._has_read:
                if not self._step(read, above=self._seen):
                    raise ClaimLostError(self._place.stream, self._place.target)
                if self._claim.succeeds:
                    self._bar(self._claim.token)
            self._has_read = False
            yield
        except OutdatedTokenError as error:
            self._seen = error.seen
            raise

    def is_wanted_again(self) -> bool:
        """Whether `partitions`, which may be others by then, are to be worked on once more; if not, it is over."""
        if not self._claim or not self._step(end, failed=False):
            return False
        self.partitions, self.is_again = self._claim.partitions, True
        return True

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Give signs of life while the block runs; what it raises ends the claim as failed."""
        if not self._claim:
            yield
            return
        over = Event()
        signs = Thread(target=self._live, args=(over,), name="claim", daemon=True)
        signs.start()
        try:
            yield
        except BaseException:
            # What failed is what to tell.
            with suppress(Exception):
                self._step(end, failed=True)
            raise
        finally:
            over.set()
            signs.join()

    def _live(self, over: Event) -> None:
        while not over.wait(TIME_TO_LIVE.total_seconds() / SIGNS_OF_LIFE):
            # A database that cannot be reached now may be at the next sign; else others take over.
            with suppress(Exception):
                self._step(renew)

    def _step(self, step: Callable[..., tuple[Board, Claim | None]], **said: object) -> Claim | None:
        """Take a step with the claim, and remember what it is then; None if it is over, or another's."""
        with self._lock:
            after = self._place.change(partial(step, claim=self._claim, **said))
            if after:
                self._claim = after
            return after
