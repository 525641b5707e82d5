"""What the feeds tell of a session or of an event: its changes, the ids that became one, and what became of an id."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyiceberg.expressions import BooleanExpression

from dedup_platform import tables
from dedup_platform.explain.conditions import all_of, equal, one_of, unequal
from dedup_platform.explain.view import View, Views
from dedup_platform.stream import Stream

_CHANGE = ("_change_type", *(column.name for column in tables.COMMIT_COLUMNS))
_PREIMAGE = "update_preimage"


@dataclass(frozen=True)
class RowChange:
    """One change of one row: an insert, an update or a delete."""

    version: int
    at: datetime
    snapshot_id: int
    kind: str
    reason: str
    row: Mapping[str, Any]
    """The row after it; of a delete, as it last was. Columns as asked for."""
    changed_columns: tuple[str, ...] = ()
    merged_into: str | None = None
    split_from: str | None = None


@dataclass(frozen=True)
class Retired:
    """An id that was merged into another one."""

    session_id: str
    merged_into: str
    version: int
    at: datetime


class SessionHistory:
    """What `session_changes` tells of sessions by their ids."""

    def __init__(self, views: Views) -> None:
        self._stream = views.stream
        self._view = views.of(tables.SESSION_CHANGES)
        self._told = _told_names(views.stream, tables.SESSION_CHANGES)

    def of(self, session_id: str) -> list[RowChange]:
        """All changes of a session, oldest first."""
        return self._changes(equal({"session_id": session_id}), "session_id")

    def merged_into(self, session_id: str) -> list[Retired]:
        """The ids that were merged into this one, or into one that was, and so on; oldest first."""
        found: dict[str, Retired] = {}
        wanted = {session_id}
        while wanted:
            changes = self._changes(one_of(self._told["merged_into"], wanted), self._told["merged_into"])
            retired = [each for each in changes if each.row["session_id"] not in found]
            found |= {
                each.row["session_id"]: Retired(each.row["session_id"], each.merged_into, each.version, each.at)
                for each in retired
                if each.merged_into and each.row["session_id"] != session_id
            }
            wanted = {each.row["session_id"] for each in retired} - {session_id}
        return sorted(found.values(), key=lambda each: (each.version, each.session_id))

    def split_from(self, session_id: str) -> list[str]:
        """The ids of the sessions that were split from this one."""
        column = self._told["split_from"]
        changes = self._changes(equal({column: session_id}), column)
        return list(dict.fromkeys(each.row["session_id"] for each in changes))

    def _changes(self, where: BooleanExpression, by: str) -> list[RowChange]:
        names = ("session_id", "entity_id", "started_at", "ended_at", "event_count")
        return _changes(self._view, self._told, where, names, by)


def event_history(views: Views, values: Mapping[str, Any]) -> list[RowChange]:
    """The changes of the events that have these values, but for those that came as new; oldest first.

    Most of a feed are new events: files that hold nothing else are left out by their statistics.
    """
    told = _told_names(views.stream, tables.EVENT_CHANGES)
    where = all_of(unequal(told["reason"], "new"), equal(values))
    names = ("entity_id", "event_id", "event_time", "arrival_time", *tables.COORDINATES)
    return _changes(views.of(tables.EVENT_CHANGES), told, where, names, told["reason"])


def _changes(
    view: View | None, told: Mapping[str, str], where: BooleanExpression, names: Iterable[str], by: str
) -> list[RowChange]:
    if view is None:
        return []
    kept = tuple(names)
    columns = [*_CHANGE, *kept, *(told[name] for name in told)]
    rows = view.rows(where, columns, by).sort("_commit_version", "_change_ordinal")
    return list(_read(rows.iter_rows(named=True), told, kept))


def _read(rows: Iterable[dict[str, Any]], told: Mapping[str, str], names: tuple[str, ...]) -> Iterator[RowChange]:
    for row in rows:
        if row["_change_type"] != _PREIMAGE:
            yield RowChange(
                version=row["_commit_version"],
                at=row["_commit_timestamp"],
                snapshot_id=row["_commit_snapshot_id"],
                kind=str(row["_change_type"]).partition("_")[0],
                reason=row[told["reason"]],
                row={name: row[name] for name in names},
                changed_columns=tuple(row[told["changed_columns"]] or ()),
                merged_into=row[told["merged_into"]] if "merged_into" in told else None,
                split_from=row[told["split_from"]] if "split_from" in told else None,
            )


def _told_names(stream: Stream, feed: str) -> dict[str, str]:
    """What is told of a change, but for whom it matters to -> the name of its column."""
    effects = {"is_db_update", "is_downstream"}
    return {name: column for name, column in tables.told_names(stream, feed).items() if name not in effects}
