"""What the generator knows about its clicks, and how the platform's tables are scored against it.

Every number here was counted while the clicks were made up; nothing was found out by looking at them afterwards.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple


class Visit(NamedTuple):
    """A session as the truth knows it: a user's events from the first to the last one's time."""

    user: str
    started_at: datetime
    ended_at: datetime
    events: int


class Click(NamedTuple):
    """One event, as its device meant it. `amount` is in cents, None where nothing was bought."""

    user: str | None
    event_id: str
    occurred_at: datetime
    page: str
    amount: int | None


@dataclass(frozen=True)
class LateChances:
    """What a late file may do: extend a visit, bridge two (`kept` is the one that arrived first), repeat a click."""

    extend: Visit
    bridge: tuple[Visit, Visit]
    kept: Visit
    repeat: Click


@dataclass(frozen=True)
class Repair:
    """What the late file must have done. `partitions`: table -> keys of the partitions that may change, no others."""

    extended: tuple[Visit, Visit]
    kept: Visit
    retired: Visit
    merged: Visit
    partitions: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Found:
    """What the tables hold, or must hold. `sessions`: (user, started_at, ended_at, events) -> session id."""

    records: int
    rejected: Mapping[str, int]
    deduplicated: int
    duplicates: int
    conflicts: int
    across_midnight: int
    late_events: int
    without_user: int
    amount: Decimal
    sessions: Mapping[Visit, str]


@dataclass(frozen=True)
class Truth:
    """The labels of a click stream. `across_midnight` counts duplicates whose winner is in another partition.

    `late_events` are deduplicated events that arrived after their partition's end and its grace; `amount` is the sum
    over deduplicated events. All records have arrived by `now`.
    """

    start: datetime
    now: datetime
    records: int
    rejected: Mapping[str, int]
    deduplicated: int
    duplicates: int
    conflicts: int
    across_midnight: int
    late_events: int
    without_user: int
    amount: Decimal
    sessions: frozenset[Visit]
    chances: LateChances
    repair: Repair | None = None


class Score(NamedTuple):
    """One line of the table that the demo prints."""

    name: str
    found: object
    expected: object

    @property
    def right(self) -> bool:
        return self.found == self.expected


def score(found: Found, truth: Truth) -> list[Score]:
    """Found against truth, line by line."""
    return [
        Score("records delivered", found.records, truth.records),
        *(
            Score(f"rejected: {reason}", found.rejected.get(reason, 0), truth.rejected.get(reason, 0))
            for reason in sorted({*found.rejected, *truth.rejected})
        ),
        Score("deduplicated events", found.deduplicated, truth.deduplicated),
        Score("duplicates", found.duplicates, truth.duplicates),
        Score("  of them conflicts", found.conflicts, truth.conflicts),
        Score("  of them across midnight", found.across_midnight, truth.across_midnight),
        Score("late events", found.late_events, truth.late_events),
        Score("events without a user", found.without_user, truth.without_user),
        Score("sum of amounts", found.amount, truth.amount),
        Score("sessions", len(found.sessions), len(truth.sessions)),
        Score("  equal in user, start, end, events", len(found.sessions.keys() & truth.sessions), len(truth.sessions)),
        Score("  across midnight", across_midnight(found.sessions), across_midnight(truth.sessions)),
    ]


def across_midnight(visits: Collection[Visit]) -> int:
    return sum(each.started_at.date() != each.ended_at.date() for each in visits)


def score_repair(before: Found, after: Found, truth: Truth) -> list[Score]:
    """What happened to session ids between the tables before and after the late file, against its truth.

    ValueError if the truth has no late file.
    """
    if truth.repair is None:
        raise ValueError("no late file was written: score_repair needs the truth that late_file returned")
    repair = truth.repair
    old, new = before.sessions, after.sessions
    return [
        Score("session ids before", len(set(old.values())), len(old)),
        Score("session ids kept", len(set(old.values()) & set(new.values())), len(old) - 1),
        Score("new session ids", len(set(new.values()) - set(old.values())), 0),
        Score("retired", sorted(set(old.values()) - set(new.values())), [old.get(repair.retired)]),
        Score("the merged session keeps the id", new.get(repair.merged), old.get(repair.kept)),
        Score("the extended session keeps its id", new.get(repair.extended[1]), old.get(repair.extended[0])),
    ]
