"""Why a record is as it is, found by its coordinates: which event it is of, or why it is none."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dedup_platform import tables
from dedup_platform.explain.commits import TableCommit, commits_of
from dedup_platform.explain.conditions import equal
from dedup_platform.explain.event import Event, event_of, files_read
from dedup_platform.explain.records import Coordinates
from dedup_platform.explain.view import FILE, Views
from dedup_platform.stream import Stream


@dataclass(frozen=True)
class RecordAnswer:
    """What is known of the record with some coordinates."""

    stream: str
    coordinates: Coordinates
    arrival_time: datetime | None = None
    """None if there is no such record."""
    rejection_reason: str | None = None
    delivered: TableCommit | None = None
    event: Event | None = None
    """The event that it is a record of, with all others of it."""
    read: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its data files were looked into."""
    stale: Mapping[str, int] = field(default_factory=dict)
    """Table -> how many of its cells are stale."""

    def partitions(self, stream: Stream) -> dict[str, set[int]]:
        """Table -> the partitions whose commits are named, for whoever knows what made them."""
        return self.event.partitions(stream) if self.event else {}


def explain_record(views: Views, coordinates: Coordinates) -> RecordAnswer:
    """What is known of a record. Its columns of coordinates are read, of files that may have its `source`."""
    view, key = views.of(tables.RAW_EVENTS), views.stream.deduplicate.key
    where = equal(dict(zip(tables.COORDINATES, coordinates, strict=True)))
    columns = (*key, "event_time", "arrival_time", "rejection_reason")
    found = view.rows(where, columns, "source", is_one=True).rows(named=True) if view else []
    if view is None or not found:
        return RecordAnswer(views.stream.name, coordinates, read=files_read(views))
    [row] = found
    is_event = row["rejection_reason"] is None
    event = event_of(views, {name: row[name] for name in key}, [row["event_time"]]) if is_event else None
    return RecordAnswer(
        views.stream.name,
        coordinates,
        row["arrival_time"],
        row["rejection_reason"],
        commits_of(view, [row]).get(row[FILE]),
        event,
        files_read(views),
    )
