"""Which planned runs to ask for now, which wait, and why. Pure: plan + earlier runs + now -> decision.

The plan says what is stale. Here it meets what already happened: partitions that a run works on wait for it; partitions
that failed are tried again later and, when they fail once more, each alone, so that one bad cell cannot hold others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from operator import itemgetter

from dedup_platform.planning.cells import contiguous
from dedup_platform.planning.circuit_breaker import doubled
from dedup_platform.planning.planner import PlannedRun

FIRST_PAUSE = timedelta(minutes=1)
LONGEST_PAUSE = timedelta(hours=1)
NO_RUN = "none"
TRIES_TOGETHER = 2
"""A range is tried again whole once (most failures pass by themselves), then each partition of it alone."""


@dataclass(frozen=True)
class PastRun:
    """A run that ended: the partitions `first`..`last` that it was asked to repair."""

    first: int
    last: int
    watermark: str
    failed: bool
    ended: datetime
    run_id: str = ""


@dataclass(frozen=True)
class RunHistory:
    """What Dagster knows about one table's repairs: ended runs, newest first, and the partitions in work by run."""

    past: Sequence[PastRun] = ()
    """In the order in which they were created."""
    in_work: Mapping[int, str] = field(default_factory=dict)
    claimed: Mapping[int, str] = field(default_factory=dict)
    """Partitions that a process works on, of a run or not, and which it is."""
    last_rebuilt: Callable[[int], datetime | None] = lambda _: None
    """When whichever run last told that it rebuilt a partition."""

    @property
    def newest(self) -> str:
        """The run that was created last among those that ended."""
        return self.past[0].run_id if self.past else NO_RUN

    def tries(self, partition: int, watermark: str) -> list[PastRun]:
        """The latest runs, newest first, that left this partition stale: failed, or ended with nothing changed.

        What somebody else rebuilt since then became stale anew, even if the same input makes it so.
        """
        about = (run for run in self.past if run.first <= partition <= run.last)
        tries = list(takewhile(lambda run: run.failed or run.watermark == watermark, about))
        rebuilt = self.last_rebuilt(partition) if tries else None
        return [run for run in tries if rebuilt is None or run.ended >= rebuilt]


@dataclass(frozen=True)
class Request:
    """A run to ask for, under a new key: Dagster never starts the same key twice, not even a failed one.

    So the key includes the newest run that has ended: the same request evaluated twice has the same key, and a retry,
    after the run has ended, another one. Until then its partitions are deferred.
    """

    partitions: tuple[int, ...]
    planned: PlannedRun
    tries: int
    after: str

    @property
    def key(self) -> str:
        ends = f"{self.partitions[0]}-{self.partitions[-1]}"
        return f"{self.planned.watermark}/{ends}/{self.tries}/after {self.after}"


@dataclass(frozen=True)
class Deferred:
    """Partitions that stay stale for now, and the reason in words that a person can act on."""

    partitions: tuple[int, ...]
    reason: str


def pause(tries: int) -> timedelta:
    """How long to wait after so many tries in a row: 1 minute, doubled each time, at most an hour."""
    return timedelta(0) if tries == 0 else doubled(FIRST_PAUSE, tries - 1, LONGEST_PAUSE)


def paused_until(ends: Sequence[datetime], now: datetime) -> datetime | None:
    """When the next try may start after tries that ended so, the newest first; None if it may now.

    What lies so far ahead that only a clock which was ahead can have told it holds nothing up.
    """
    due = ends[0] + pause(len(ends)) if ends else now
    return due if now < due <= now + 2 * LONGEST_PAUSE else None


def triage(planned: PlannedRun, history: RunHistory, last_known: int, now: datetime) -> Iterator[Request | Deferred]:
    """Split one planned run into what to ask for and what waits.

    `last_known` is the last partition that Dagster has a key for: one unknown key fails the whole tick.
    """
    verdicts = [_verdict(partition, planned, history, last_known, now) for partition in planned.partitions]
    for verdict, group in groupby(zip(verdicts, planned.partitions, strict=True), key=itemgetter(0)):
        partitions = tuple(partition for _, partition in group)
        if isinstance(verdict, str):
            yield Deferred(partitions, verdict)
        elif verdict < TRIES_TOGETHER:
            yield Request(partitions, planned, verdict, history.newest)
        else:
            yield from (Request((partition,), planned, verdict, history.newest) for partition in partitions)


def _verdict(partition: int, planned: PlannedRun, history: RunHistory, last_known: int, now: datetime) -> int | str:
    """The number of tries before this one, or the reason to wait."""
    if partition > last_known:
        return "Dagster has no such partition yet; it waits until it begins"
    if partition in history.in_work:
        return f"run {history.in_work[partition][:8]} is at it"
    if partition in history.claimed:
        return f"{history.claimed[partition]} is at it"
    tries = history.tries(partition, planned.watermark)
    if due := paused_until([run.ended for run in tries], now):
        return f"still stale after {len(tries)} tries; the next one starts after {due:%Y-%m-%d %H:%M:%S} UTC"
    return len(tries)


def described(held: Iterable[Deferred], name: Callable[[int], str]) -> list[str]:
    """One line for each range and reason: `2026-01-03 … 2026-01-05: <reason>`."""
    lines = []
    by_reason: dict[str, list[int]] = {}
    for item in held:
        by_reason.setdefault(item.reason, []).extend(item.partitions)
    for reason, partitions in by_reason.items():
        for run in contiguous(partitions):
            ends = name(run[0]) if len(run) == 1 else f"{name(run[0])} … {name(run[-1])}"
            lines.append(f"{ends}: {reason}")
    return lines
