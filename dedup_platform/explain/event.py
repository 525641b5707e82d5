"""Why an event is as it is: its records, which of them is kept, which are not and why, and the session it is in."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyiceberg.expressions import BooleanExpression

from dedup_platform import tables
from dedup_platform.explain.conditions import all_of, equal, in_partitions, spans
from dedup_platform.explain.history import RowChange, event_history
from dedup_platform.explain.records import Coordinates, JudgedRecord, records_of
from dedup_platform.explain.view import FILE, View, Views
from dedup_platform.lake.snapshots import cell_of
from dedup_platform.planning.cells import Cell
from dedup_platform.stream import Stream

ANY_ENTITY = object()
"""In place of an entity: it may be any, or none."""
MOST = 3
"""So many events that share an id are explained; whoever means another one says which entity it is of."""


@dataclass(frozen=True)
class SessionOf:
    """The session that a kept record is in."""

    coordinates: Coordinates
    session_id: str
    started_at: datetime
    ended_at: datetime
    event_count: int


@dataclass(frozen=True)
class Event:
    """One event, known by the values of its key."""

    key: Mapping[str, Any]
    records: tuple[JudgedRecord, ...]
    """In arrival order."""
    sessions: tuple[SessionOf, ...]
    changes: tuple[RowChange, ...]
    """What the feed tells of it besides that it came."""

    def partitions(self, stream: Stream) -> dict[str, set[int]]:
        """Table -> the partitions whose commits are named, for whoever knows what made them."""
        records = {each.partition for each in self.records}
        events = records | {stream.partitions.ordinal(each.row["event_time"]) for each in self.changes}
        return {tables.RAW_EVENTS: records, tables.DEDUPLICATED_EVENTS: events}


@dataclass(frozen=True)
class EventAnswer:
    """What is known of an event's id."""

    stream: str
    event_id: str
    events: tuple[Event, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()
    """The keys of further events that have this id, which are not explained."""
    changes: tuple[RowChange, ...] = ()
    """Where there is no such event: what the feed tells of one that was there."""
    entity: object = ANY_ENTITY
    """The entity that was asked for, None for none, or ANY_ENTITY."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its data files were looked into."""
    stale: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its cells are stale."""

    def partitions(self, stream: Stream) -> dict[str, set[int]]:
        """Table -> the partitions whose commits are named, for whoever knows what made them."""
        gone = {stream.partitions.ordinal(each.row["event_time"]) for each in self.changes}
        found = {tables.RAW_EVENTS: set[int](), tables.DEDUPLICATED_EVENTS: gone}
        for event in self.events:
            for table, partitions in event.partitions(stream).items():
                found[table] |= partitions
        return found


def explain_event(
    views: Views, event_id: str, entity: object, near: int | None, pending: Collection[Cell]
) -> EventAnswer:
    """What is known of an event.

    It is looked for in the partition `near` first, and where it is not there, or none is given, in all of them.
    `pending` are the cells of `raw_events` whose records are not all judged yet.
    """
    values = {"event_id": event_id} | ({} if entity is ANY_ENTITY else {"entity_id": entity})
    found = _keys(views, values, near, pending)
    keys = list(found)
    events = tuple(event_of(views, dict(key), found[key]) for key in keys[:MOST])
    gone = () if events else tuple(event_history(views, values))
    others = tuple(dict(key) for key in keys[MOST:])
    return EventAnswer(views.stream.name, event_id, events, others, gone, entity, files_read(views))


def files_read(views: Views) -> dict[str, int]:
    """Table -> how many of its data files were looked into."""
    names = [name for name, _ in views.opened]
    return {name: names.count(name) for name in dict.fromkeys(names)}


_Keys = dict[tuple[tuple[str, Any], ...], list[datetime]]
"""The columns and values of a key -> the times of records that have it."""


def _keys(views: Views, values: Mapping[str, Any], near: int | None, pending: Collection[Cell]) -> _Keys:
    """The keys of events with these values, and times at which there are records of each."""
    where = equal(values)
    wheres = [where] if near is None else [all_of(where, in_partitions(views.stream, "event_time", [near])), where]
    for each in wheres:
        rows = [*_rows(views.of(tables.DEDUPLICATED_EVENTS), views, each), *_unjudged(views, each, pending)]
        if rows:
            return _by_key(rows, views.stream.deduplicate.key)
    return {}


def _rows(view: View | None, views: Views, where: BooleanExpression, **options: Any) -> list[dict[str, Any]]:
    columns = [*views.stream.deduplicate.key, "event_time"]
    return view.rows(where, columns, "event_id", **options).rows(named=True) if view else []


def _unjudged(views: Views, where: BooleanExpression, pending: Collection[Cell]) -> list[dict[str, Any]]:
    raw = views.of(tables.RAW_EVENTS)
    if raw is None or not pending:
        return []
    return _rows(raw, views, where, files=[file for file in raw.files(where) if cell_of(file) in pending])


def _by_key(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> _Keys:
    keys: _Keys = {}
    for row in sorted(rows, key=lambda each: each["event_time"]):
        keys.setdefault(tuple((name, row[name]) for name in names), []).append(row["event_time"])
    return keys


def event_of(views: Views, key: Mapping[str, Any], times: Sequence[datetime]) -> Event:
    """The event of a key, whose records are near some times."""
    records = tuple(records_of(views, key, times))
    sessions = (session_of(views, key["entity_id"], each) for each in records if each.verdict == "kept")
    history = event_history(views, {name: key[name] for name in ("entity_id", "event_id") if name in key})
    return Event(key, records, tuple(each for each in sessions if each), tuple(history))


def session_of(views: Views, entity: str | None, record: JudgedRecord) -> SessionOf | None:
    """The session that a kept record is in; None for one without an entity, or if sessions do not hold it yet."""
    view = views.of(tables.SESSIONS)
    if view is None or entity is None:
        return None
    where = all_of(equal({"entity_id": entity}), spans("started_at", "ended_at", record.event_time))
    columns = ("session_id", "started_at", "ended_at", "event_count")
    rows = view.rows(where, columns, "entity_id", is_one=True).drop(FILE)
    return next((SessionOf(record.coordinates, **row) for row in rows.iter_rows(named=True)), None)
