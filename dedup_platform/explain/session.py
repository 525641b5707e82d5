"""Why a session is as it is: its events, where its id comes from, the ids before it, and how it changed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.expressions import BooleanExpression

from dedup_platform import tables
from dedup_platform.explain.commits import TableCommit, commits_of
from dedup_platform.explain.conditions import all_of, between, equal, in_partitions
from dedup_platform.explain.event import ANY_ENTITY, files_read
from dedup_platform.explain.history import Retired, RowChange, SessionHistory
from dedup_platform.explain.records import Coordinates, coordinates_of
from dedup_platform.explain.view import FILE, Views
from dedup_platform.planning.moments import in_microseconds, microseconds, utc_datetime
from dedup_platform.stream import Stream

_MOST_STEPS = 1_000
"""No id was merged into so many others one after the other; what is damaged could lead round in circles."""


@dataclass(frozen=True)
class SessionEvent:
    """One event of a session."""

    event_id: str | None
    event_time: datetime
    arrival_time: datetime
    coordinates: Coordinates
    duplicates: int
    """How many records it beat, or were beaten by what it beat."""

    @property
    def arrival_order(self) -> tuple[Any, ...]:
        """Its place among all records."""
        return self.arrival_time, *self.coordinates


@dataclass(frozen=True)
class Session:
    """One session as it is in the table, its events and the commits that wrote them."""

    session_id: str
    entity_id: str
    started_at: datetime
    ended_at: datetime
    event_count: int
    first_arrived_at: datetime
    aggregates: Mapping[str, Any]
    commit: TableCommit | None
    events: tuple[SessionEvent, ...] = ()
    """In order of event time."""
    events_near: tuple[SessionEvent, ...] = ()
    """Events of the entity outside of it that are no further away than the timeout: it is about to change."""
    event_commits: tuple[TableCommit, ...] = ()
    """The commits that wrote the files of its events."""

    @property
    def first_arrived(self) -> SessionEvent | None:
        """The event that gives the id."""
        return min(self.events, key=lambda each: each.arrival_order, default=None)


@dataclass(frozen=True)
class SessionAnswer:
    """What is known of a session's id."""

    stream: str
    session_id: str
    """The one that was asked for."""
    became: tuple[Retired, ...] = ()
    """If that is retired: which id it was merged into, and that one, as far as it goes."""
    session: Session | None = None
    """The session that has the id now, or the one that it became."""
    earlier: tuple[Retired, ...] = ()
    """The ids that were merged into that session, over all merges."""
    changes: tuple[RowChange, ...] = ()
    """All changes of the id that was asked for."""
    changes_now: tuple[RowChange, ...] = ()
    """All changes of the session that it became, if it is another."""
    split_into: tuple[str, ...] = ()
    """The ids of sessions that were split from it."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its data files were looked into."""
    stale: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its cells are stale."""
    is_feed_behind: bool = False
    """Whether there are commits that `session_changes` does not tell yet."""

    def partitions(self, stream: Stream) -> dict[str, set[int]]:
        """Table -> the partitions whose commits are named, for whoever knows what made them."""
        ordinal = stream.partitions.ordinal
        starts = {ordinal(each.row["started_at"]) for each in (*self.changes, *self.changes_now)}
        events = {ordinal(each.event_time) for each in self.session.events} if self.session else set()
        if self.session:
            starts.add(ordinal(self.session.started_at))
        return {tables.SESSIONS: starts, tables.DEDUPLICATED_EVENTS: events}


def explain_session(views: Views, session_id: str, entity: object, near: int | None) -> SessionAnswer:
    """What is known of a session. It is looked for among those that start in the partition `near` first."""
    history = SessionHistory(views)
    changes = history.of(session_id)
    session = _session(views, session_id, entity, near)
    became: tuple[Retired, ...] = ()
    if session is None and changes:
        became = tuple(_became(history, changes))
        session = _session(views, became[-1].merged_into, entity, None) if became else None
    now = session.session_id if session else session_id
    return SessionAnswer(
        views.stream.name,
        session_id,
        became,
        session,
        tuple(history.merged_into(now)),
        tuple(changes),
        tuple(history.of(now)) if now != session_id else (),
        tuple(history.split_from(session_id)),
        files_read(views),
    )


def _became(history: SessionHistory, changes: Sequence[RowChange]) -> list[Retired]:
    """The way of a retired id from merge to merge; it ends where an id is not retired, or went without an heir."""
    found: list[Retired] = []
    last = changes[-1]
    while last.kind == "delete" and last.merged_into and len(found) < _MOST_STEPS:
        found.append(Retired(last.row["session_id"], last.merged_into, last.version, last.at))
        later = history.of(last.merged_into)
        if not later:
            break
        last = later[-1]
    return found


def _session(views: Views, session_id: str, entity: object, near: int | None) -> Session | None:
    view = views.of(tables.SESSIONS)
    if view is None:
        return None
    row = _row(views, session_id, entity, near)
    if row is None:
        return None
    commit = commits_of(view, [row]).get(row.pop(FILE))
    known = {name: row.pop(name) for name in _KNOWN}
    aggregates = {name: row[name] for name in views.stream.aggregates if name in row}
    session = Session(**known, aggregates=aggregates, commit=commit)
    return _with_events(views, session)


_KNOWN = ("session_id", "entity_id", "started_at", "ended_at", "event_count", "first_arrived_at")


def _row(views: Views, session_id: str, entity: object, near: int | None) -> dict[str, Any] | None:
    view = views.of(tables.SESSIONS)
    assert view is not None
    where = equal({"session_id": session_id} | ({} if entity is ANY_ENTITY else {"entity_id": entity}))
    wheres = [where]
    if near is not None:
        wheres.insert(0, all_of(where, in_partitions(views.stream, "started_at", [near])))
    columns = tables.column_names(views.stream, tables.SESSIONS)
    for each in wheres:
        for row in view.rows(each, columns, "session_id", is_one=True).iter_rows(named=True):
            return dict(row)
    return None


def _with_events(views: Views, session: Session) -> Session:
    """The session with its events, and with those near it that are not in it."""
    view, stream = views.of(tables.DEDUPLICATED_EVENTS), views.stream
    if view is None:
        return session
    columns = ("event_id", "event_time", "arrival_time", *stream.deduplicate.key, *tables.COORDINATES)
    near = _around(session, stream.session_timeout)
    rows = view.rows(near, tuple(dict.fromkeys(columns)), "entity_id").rows(named=True)
    losers = _losers(views, session)
    events = [_event(row, losers[tuple(row[name] for name in stream.deduplicate.key)]) for row in rows]
    events.sort(key=lambda each: (each.event_time, each.arrival_order))
    inside = [each for each in events if session.started_at <= each.event_time <= session.ended_at]
    return replace(
        session,
        events=tuple(inside),
        events_near=tuple(each for each in events if each not in inside),
        event_commits=tuple(dict.fromkeys(commits_of(view, rows).values())),
    )


def _losers(views: Views, session: Session) -> Counter[tuple[Any, ...]]:
    """How many duplicates there are of each key of the entity, near the session."""
    view = views.of(tables.DUPLICATE_EVENTS)
    if view is None:
        return Counter()
    key = views.stream.deduplicate.key
    rows = view.rows(_around(session, views.stream.deduplicate.window), key, "entity_id")
    return Counter(rows.select(key).rows())


def _event(row: Mapping[str, Any], duplicates: int) -> SessionEvent:
    return SessionEvent(row["event_id"], row["event_time"], row["arrival_time"], coordinates_of(row), duplicates)


def _around(session: Session, distance: timedelta) -> BooleanExpression:
    """That a row is of the session's entity, and at most so far away from the session."""
    first, last = microseconds(session.started_at), microseconds(session.ended_at)
    step = in_microseconds(distance)
    ends = (utc_datetime(max(first - step, 0)), utc_datetime(min(last + step, _LAST)))
    return all_of(equal({"entity_id": session.entity_id}), between("event_time", *ends))


_LAST = microseconds(datetime.max.replace(tzinfo=UTC))
