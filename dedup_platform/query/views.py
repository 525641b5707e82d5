"""What is asked of tables again and again, as SQL: of each event its session and whether it was late, rejected records.

Views hold no rows, so they are right whenever the tables are: after a late event, a repair, a new id of a session.
"""

from dataclasses import dataclass
from datetime import timedelta

from dedup_platform import tables
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream

__all__ = ["EVENT_SESSIONS", "View", "event_sessions", "views_of"]

EVENT_SESSIONS = "event_sessions"
_IS_LATE = "is_late"
_REJECTED = ("arrival_time", "payload", "payload_context", *tables.COORDINATES, "rejection_reason")


@dataclass(frozen=True)
class View:
    """The tables that a view reads, and what it selects, in DuckDB's SQL."""

    read: frozenset[str]
    sql: str


def views_of(stream: Stream) -> dict[str, View]:
    """The views of a stream, by name."""
    catalog = f'{CATALOG}."{stream.name}"'
    events, raw = tables.DEDUPLICATED_EVENTS, tables.RAW_EVENTS
    read = frozenset((events, tables.SESSIONS) if stream.sessions else (events,))
    rejected = f"SELECT {', '.join(_REJECTED)} FROM {catalog}.{raw} WHERE event_time IS NULL"
    return {
        EVENT_SESSIONS: View(read, _event_sessions(stream, catalog, is_nearest=True)),
        tables.REJECTED_EVENTS: View(frozenset((raw,)), rejected),
    }


def event_sessions(stream: Stream) -> str:
    """Each deduplicated event with `session_id` and `is_late`: a SELECT for Spark, and for DuckDB and Trino in UTC.

    The sessions of an entity do not overlap, so an event is in at most one. In none are events without an entity, and
    those that `sessions` does not know yet. Late is as in docs/semantics.md, with the `late.grace` of the stream file.
    Where a stream has an attribute of that name, ours is `_is_late`. A stream without sessions has no `session_id`.
    """
    return _event_sessions(stream, f"{CATALOG}.{stream.name}", is_nearest=False)


def _event_sessions(stream: Stream, namespace: str, is_nearest: bool) -> str:
    """With `is_nearest` each event looks at one session, however many its entity has; only DuckDB has that join."""
    late = f"e.arrival_time > {_closes(stream)} AS {'_' * (_IS_LATE in stream.attributes)}{_IS_LATE}"
    events = f"FROM {namespace}.{tables.DEDUPLICATED_EVENTS} e"
    sessions = f"{namespace}.{tables.SESSIONS} s ON e.entity_id = s.entity_id"
    if not stream.sessions:
        return f"SELECT e.*, {late} {events}"
    if is_nearest:
        session = "CASE WHEN e.event_time <= s.ended_at THEN s.session_id END AS session_id"
        return f"SELECT e.*, {session}, {late} {events} ASOF LEFT JOIN {sessions} AND e.event_time >= s.started_at"
    within = "e.event_time BETWEEN s.started_at AND s.ended_at"
    return f"SELECT e.*, s.session_id, {late} {events} LEFT JOIN {sessions} AND {within}"


def _closes(stream: Stream) -> str:
    """When what arrives for an event's partition begins to be late."""
    unit = stream.partitions.granularity
    grace = f"{stream.late.grace / timedelta(seconds=1):.3f}".rstrip("0").rstrip(".")
    return f"date_trunc('{unit}', e.event_time) + INTERVAL '1' {unit.upper()} + INTERVAL '{grace}' SECOND"
