"""The times of a table's metadata, in milliseconds since 1970, put in order."""

from collections.abc import Iterable
from itertools import accumulate
from typing import TypeVar

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry, SnapshotLogEntry
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

Entry = TypeVar("Entry", SnapshotLogEntry, MetadataLogEntry)


def newest_time(metadata: TableMetadata) -> int:
    """The newest time that the table tells of any commit."""
    snapshots = (each.timestamp_ms for each in metadata.snapshots)
    made_current = (each.timestamp_ms for each in metadata.snapshot_log)
    written = (each.timestamp_ms for each in metadata.metadata_log)
    return max((metadata.last_updated_ms, *snapshots, *made_current, *written))


def not_before(time: int, updates: Iterable[TableUpdate]) -> tuple[TableUpdate, ...]:
    """The same updates, but no snapshot of theirs is older than `time`."""
    return tuple(_not_before(time, update) for update in updates)


def _not_before(time: int, update: TableUpdate) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.timestamp_ms >= time:
        return update
    return AddSnapshotUpdate(snapshot=update.snapshot.model_copy(update={"timestamp_ms": time}))


def in_order(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, but no entry of its logs is older than the one before, nor its own time."""
    snapshots, versions = _ascending(metadata.snapshot_log), _ascending(metadata.metadata_log)
    newest = [log[-1].timestamp_ms for log in (snapshots, versions) if log]
    times = {"snapshot_log": snapshots, "metadata_log": versions}
    return metadata.model_copy(update=times | {"last_updated_ms": max((metadata.last_updated_ms, *newest))})


def _ascending(log: list[Entry]) -> list[Entry]:
    times = accumulate((entry.timestamp_ms for entry in log), max)
    return [entry.model_copy(update={"timestamp_ms": time}) for entry, time in zip(log, times, strict=True)]
