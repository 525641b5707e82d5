"""The oracle: what the tables must hold for a set of records, in plain Python, written to be believed by reading.

It states rules 3, 4 and 5 as the documentation does (docs/semantics.md) and shares no code with the stages.
It looks at everything at once, so it is slow for large inputs and has no notion of partitions apart from fragments.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import TYPE_CHECKING, Any, TypeVar

from dedup_platform.testing.records import Coordinate, Record

if TYPE_CHECKING:
    from dedup_platform.stream import Stream

Identity = tuple[Hashable, ...]
Item = TypeVar("Item")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Rules:
    """The settings that decide rows. `aggregates`: name -> (function, attribute).

    `largest`: attribute -> the largest number that its sums' type holds; sums of others are never too large.
    """

    window: timedelta
    timeout: timedelta
    partition: timedelta = timedelta(days=1)
    key: tuple[str, ...] = ("entity_id", "event_id")
    aggregates: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    largest: Mapping[str, Decimal] = field(default_factory=dict)
    has_sessions: bool = True

    @classmethod
    def of(cls, stream: "Stream") -> "Rules":
        aggregates = {name: (str(each.function), each.attribute) for name, each in stream.aggregates.items()}
        largest = {
            name: Decimal((0, (9,) * 38, -int(each.type.rstrip(")").split(",")[1])))
            for name, each in stream.attributes.items()
            if each.type.startswith("decimal")
        }
        return cls(
            stream.deduplicate.window,
            stream.session_timeout if stream.sessions else timedelta(0),
            stream.partitions.length,
            tuple(stream.deduplicate.key),
            aggregates,
            largest,
            has_sessions=stream.sessions is not None,
        )


SumRule = Callable[[Sequence[Record], str, Rules], Decimal | None]
"""The sum of an attribute over some events of one entity; None if none of them has it."""


@dataclass(frozen=True)
class Session:
    """Events of one entity without a long gap, ordered by event time, then arrival."""

    identity: Identity
    entity_id: str
    started_at: datetime
    ended_at: datetime
    first_arrived: Record
    aggregates: Mapping[str, Any]
    events: Sequence[Record]


@dataclass(frozen=True)
class Expected:
    """What the derived tables must hold; `fragments` by partition ordinal."""

    deduplicated: list[Record]
    duplicates: dict[Coordinate, tuple[Coordinate, str]]
    sessions: list[Session]
    fragments: dict[int, list[Session]]


def oracle(records: Iterable[Record], rules: Rules) -> Expected:
    """The tables of a set of records. ValueError if two records have the same coordinates."""
    ordered = sorted(records, key=lambda each: each.arrival_order)
    if len({each.coordinate for each in ordered}) < len(ordered):
        raise ValueError("two records with the same coordinates")
    duplicates = find_duplicates(ordered, rules)
    deduplicated = [each for each in ordered if each.coordinate not in duplicates]
    partitions = group(deduplicated, lambda each: (each.event_time - EPOCH) // rules.partition)
    fragments = {partition: sessionize(events, rules, fragment_sum) for partition, events in partitions.items()}
    return Expected(deduplicated, duplicates, sessionize(deduplicated, rules), fragments)


def find_duplicates(ordered: Iterable[Record], rules: Rules) -> dict[Coordinate, tuple[Coordinate, str]]:
    """Rule 3. A record is beaten by the first arrival among those of its key within the window."""
    duplicates = {}
    for same_key in group(ordered, lambda each: key_of(each, rules)).values():
        for place, loser in enumerate(same_key):
            for winner in same_key[:place]:
                if abs(winner.event_time - loser.event_time) <= rules.window:
                    kind = "copy" if content(winner) == content(loser) else "conflict"
                    duplicates[loser.coordinate] = (winner.coordinate, kind)
                    break
    return duplicates


def session_sum(events: Sequence[Record], attribute: str, rules: Rules) -> Decimal | None:
    """The exact sum; None if it, or that of the events of one partition, is too large to be told."""
    fragments = group(events, lambda each: (each.event_time - EPOCH) // rules.partition).values()
    sums = [total for rows in fragments if (total := fragment_sum(rows, attribute, rules)) is not None]
    total, largest = exact_sum(sums), rules.largest.get(attribute)
    is_told = largest is None or all(each.copy_abs() < largest for each in (*sums, total))
    return total if sums and is_told else None


def fragment_sum(events: Sequence[Record], attribute: str, rules: Rules) -> Decimal | None:
    """The exact sum, or the largest number of its type (with its sign) if it reaches or passes that."""
    known = [value for each in events if (value := each.attributes.get(attribute)) is not None]
    if not known:
        return None
    total, largest = exact_sum(known), rules.largest.get(attribute)
    return total if largest is None or total.copy_abs() < largest else largest.copy_sign(total)


def sessionize(events: Iterable[Record], rules: Rules, sum_of: SumRule = session_sum) -> list[Session]:
    """Rule 4. A gap longer than the timeout splits; events without an entity are in no session."""
    sessions: list[Session] = []
    if not rules.has_sessions:
        return sessions
    for entity, rows in group(events, lambda each: each.entity_id).items():
        rows.sort(key=lambda each: (each.event_time, each.arrival_order))
        starts = [n for n, row in enumerate(rows) if n == 0 or row.event_time - rows[n - 1].event_time > rules.timeout]
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            if entity is not None:
                sessions.append(session_of(entity, rows[start:end], rules, sum_of))
    return sessions


def session_of(entity: str, events: Sequence[Record], rules: Rules, sum_of: SumRule) -> Session:
    """Rule 5. The first-ARRIVED event identifies a session."""
    first_arrived = min(events, key=lambda each: each.arrival_order)
    aggregates = {
        name: sum_of(events, attribute, rules)
        if function == "sum"
        else aggregate(function, [each.attributes.get(attribute) for each in events])
        for name, (function, attribute) in rules.aggregates.items()
    }
    start, end = events[0].event_time, events[-1].event_time
    return Session(identity(first_arrived, rules), entity, start, end, first_arrived, aggregates, events)


def aggregate(function: str, values: Sequence[Any]) -> Any:
    """One aggregate over a session's values in session order; nulls count for first and last only."""
    known = [value for value in values if value is not None]
    match function:
        case "count":
            return len(known)
        case "min" | "max":
            # NaN sorts last.
            ordered = sorted(known, key=lambda value: (value != value, value))
            return (ordered[0] if function == "min" else ordered[-1]) if ordered else None
        case "first" | "last":
            return values[0 if function == "first" else -1]
    raise ValueError(f"unknown aggregate {function!r}")


def exact_sum(values: Iterable[Decimal | int]) -> Decimal:
    with localcontext(prec=80):
        return sum(map(Decimal, values), start=Decimal(0))


def identity(event: Record, rules: Rules) -> Identity:
    """What a session id is made of: no coordinates, for they repeat and are no time."""
    return (event.entity_id, event.arrival_time, event.event_time, *key_of(event, rules))


def key_of(event: Record, rules: Rules) -> Identity:
    columns = {"entity_id": event.entity_id, "event_id": event.event_id}
    return tuple(columns[name] if name in columns else event.attributes.get(name) for name in rules.key)


def content(event: Record) -> tuple[Any, ...]:
    """The columns in which a copy equals its winner; if one differs it is a conflict."""
    attributes = {name: value for name, value in event.attributes.items() if value is not None}
    return (event.entity_id, event.event_id, event.event_time, attributes)


def group(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    groups: dict[Any, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


@dataclass(frozen=True)
class IdentityChanges:
    """What new records did to session ids. `retired`: identity -> the session that now holds its first event."""

    kept: frozenset[Identity]
    new: frozenset[Identity]
    retired: Mapping[Identity, Identity | None]


def identity_changes(before: Expected, after: Expected, rules: Rules) -> IdentityChanges:
    """Rule 5 between two states: the ids that survive, that appear and that are retired."""
    old = {each.identity for each in before.sessions}
    new = {each.identity for each in after.sessions}
    holders = {identity(event, rules): each.identity for each in after.sessions for event in each.events}
    retired = {gone: holders.get(gone) for gone in old - new}
    return IdentityChanges(frozenset(old & new), frozenset(new - old), retired)
