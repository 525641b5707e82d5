"""Which cells are stale, why, and which runs repair them. Pure: facts + policy + now -> plan.

What is stale is derived anew each time, from what the tables need and what receipts prove, so a missed tick or a
crashed run heals at the next.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Literal, NamedTuple

from dedup_platform.planning.cells import Cell, closes
from dedup_platform.planning.facts import Change, Facts

_NO_TIME = timedelta(0)
Reason = Literal["open", "late", "linked", "settings", "full"]


@dataclass(frozen=True)
class Policy:
    """How long to wait and how much to do at once; all from the stream file."""

    length: timedelta = timedelta(days=1)
    grace: timedelta = timedelta(hours=1)
    settle: timedelta = timedelta(seconds=60)
    max_delay: timedelta = timedelta(minutes=15)
    min_rows: int = 1
    max_partitions_per_run: int = 31
    max_runs_per_tick: int = 10
    whole_buckets: bool = False
    """Whether a run takes in all that waits in the buckets of its cells, wherever it lies."""


class StaleCell(NamedTuple):
    """A cell to rebuild, why, how many input rows wait for it and for how long."""

    cell: Cell
    reason: Reason
    rows: int
    waiting: timedelta
    ready: bool


@dataclass(frozen=True)
class PlannedRun:
    """A contiguous range of partitions to repair in one run. The same stale input gives the same watermark."""

    partitions: tuple[int, ...]
    reason: Reason
    watermark: str


@dataclass(frozen=True)
class TablePlan:
    """What is stale in one derived table and the runs that the policy asks for now."""

    stream: str
    table: str
    stale: tuple[StaleCell, ...]
    runs: tuple[PlannedRun, ...]


def plan(facts: Facts, policy: Policy, now: datetime) -> TablePlan:
    """What is stale and which runs the policy asks for now; what waits is in the plan too, as not ready."""
    stale: list[StaleCell] = []
    hulls: set[tuple[int, int]] = set()
    closes = _Closes(policy.length, policy.grace)
    for group in _whole_buckets(facts) if policy.whole_buckets else _linked_groups(facts):
        judged = list(_judge(group, facts, policy, closes, now))
        stale += judged
        if judged[0].ready:  # then all of the group are
            first, last = min(group).partition, max(group).partition
            if policy.whole_buckets or not facts.disturbed.isdisjoint(group):
                # Wherever they lie, the run that has one cell of these that waits has all of them.
                first = last = min(cell for cell in group if cell in facts.changes or cell in facts.outdated).partition
            hulls.add((first, last))
    stale.sort(key=attrgetter("cell"))
    return TablePlan(facts.stream, facts.table, tuple(stale), tuple(_runs(stale, hulls, facts, policy)))


def reasons_of(facts: Facts, cells: Iterable[Cell], length: timedelta, grace: timedelta) -> str:
    """Why a run rebuilds these cells, in the words of a plan: `late+open`; `nothing` of none.

    `length` is that of a partition; what arrives after its end and `grace` is late.
    """
    closes = _Closes(length, grace)
    found = {_reason(cell, facts.changes.get(cell), facts.outdated, closes) for cell in cells}
    return "+".join(sorted(found)) or "nothing"


def _whole_buckets(facts: Facts) -> Iterable[list[Cell]]:
    """Stale cells by bucket."""
    groups: dict[int, list[Cell]] = defaultdict(list)
    for cell in facts.pending:
        groups[cell.bucket].append(cell)
    return groups.values()


def _linked_groups(facts: Facts) -> Iterator[list[Cell]]:
    """Stale cells and those linked to them, in groups that a commit must not cut."""
    seen: set[Cell] = set()
    is_joined = False
    earliest, latest = facts.arrival_min, facts.arrival_max
    steps = [step for step in range(-facts.reach, facts.reach + 1) if step]
    for waiting in (*facts.changes, *facts.outdated):
        if waiting in seen:
            continue
        seen.add(waiting)
        group = [waiting]
        for cell in group:  # it grows meanwhile
            # `linked_cells` to and fro, written out: calls for each cell make a plan of all of them a sixth longer.
            first, last = earliest.get(cell), latest.get(cell)
            for step in steps:
                other = Cell(cell.partition + step, cell.bucket)
                if other in seen:
                    continue
                begin, end = earliest.get(other), latest.get(other)
                if (first and end and first <= end) or (begin and last and begin <= last):
                    seen.add(other)
                    group.append(other)
            if cell in facts.disturbed and not is_joined:
                is_joined = True
                group += facts.disturbed - seen
                seen |= facts.disturbed
        yield group


class _Closes(dict[int, datetime]):
    """Partition -> when it closes, reckoned once for its many cells."""

    def __init__(self, length: timedelta, grace: timedelta) -> None:
        self.length = length
        self.grace = grace

    def __missing__(self, partition: int) -> datetime:
        self[partition] = closes(partition, self.length, self.grace)
        return self[partition]


def _judge(
    group: list[Cell], facts: Facts, policy: Policy, closes: Mapping[int, datetime], now: datetime
) -> Iterator[StaleCell]:
    found = [facts.changes.get(cell) for cell in group]
    changes = [change for change in found if change]
    rows = sum(change.rows_added for change in changes)
    # A commit time more than `settle` ahead comes from a wrong clock: its age is unknown, and it has waited enough.
    latest, longest = now + policy.settle, policy.max_delay
    waiting = max((now - at if (at := each.first_commit) <= latest else longest for each in changes), default=_NO_TIME)
    quiet = min((now - at if (at := each.last_commit) <= latest else longest for each in changes), default=_NO_TIME)
    settled = quiet >= policy.settle and rows >= policy.min_rows
    ready = settled or waiting >= policy.max_delay or not facts.outdated.isdisjoint(group)
    for cell, change in zip(group, found, strict=True):
        reason = _reason(cell, change, facts.outdated, closes)
        yield StaleCell(cell, reason, change.rows_added if change else 0, waiting, ready)


def _reason(cell: Cell, change: Change | None, outdated: frozenset[Cell], closes: Mapping[int, datetime]) -> Reason:
    if cell in outdated:
        return "settings"
    if change is None:
        return "linked"
    return "late" if (change.arrival_min or change.first_commit) > closes[cell.partition] else "open"


def _runs(stale: list[StaleCell], hulls: set[tuple[int, int]], facts: Facts, policy: Policy) -> Iterator[PlannedRun]:
    """Runs for the ready ones of the sorted cells; `hulls` are the first and last partitions of their groups.

    What waits longest goes first, so that nothing waits for ever behind what becomes stale again and again.
    """
    ready = [stale_cell for stale_cell in stale if stale_cell.ready]
    runs = []
    for first, last in _packed(sorted(hulls), policy.max_partitions_per_run):
        begin, end = (bisect_left(ready, edge, key=_partition) for edge in (first, last + 1))
        runs.append((first, last, ready[begin:end]))
    longest = policy.max_delay or max((cell.waiting for cell in ready), default=_NO_TIME)
    # Cells outdated by settings have no waiting time: they rank as if they had waited longest. They get ever fewer.
    runs.sort(
        key=lambda run: max(longest if cell.reason == "settings" else cell.waiting for cell in run[2]), reverse=True
    )
    for first, last, run in runs[: policy.max_runs_per_tick]:
        yield PlannedRun(tuple(range(first, last + 1)), run[0].reason, _watermark(facts, run))


def _packed(hulls: list[tuple[int, int]], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of at most `most` partitions that cut no hull; a hull that is longer is a range of its own."""
    merged: list[tuple[int, int]] = []
    for first, last in hulls:
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    packed: tuple[int, int] | None = None
    for first, last in merged:
        if packed and first == packed[1] + 1 and last - packed[0] < most:
            packed = (packed[0], last)
        else:
            if packed:
                yield packed
            packed = (first, last)
    if packed:
        yield packed


_partition = attrgetter("cell.partition")


def _watermark(facts: Facts, cells: list[StaleCell]) -> str:
    changes = (facts.changes.get(stale_cell.cell) for stale_cell in cells)
    newest = max((change.sequence for change in changes if change), default=0)
    return f"{facts.table}/{newest}/{facts.fingerprint[:8]}"
