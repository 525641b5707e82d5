"""The tables of changes: made when a feed begins, and appended to by compare-and-set with how far it has come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.lake.append_only import AppendOnlyTable
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.snapshots import (
    ancestry,
    changes,
    head,
    live_files,
    own_files,
    rewrites_only,
    since,
    summary,
)
from dedup_platform.stream import Stream


@dataclass(frozen=True)
class FeedPosition:
    """How far a feed has come."""

    base: int
    """The feed's newest snapshot: whoever goes on from here commits only if it still is."""
    up_to: int | None
    """The snapshot of the table whose changes were the last to be looked at; None before the first."""
    version: int
    """The last version; 0 before the first."""


@dataclass(frozen=True)
class Step:
    """From one snapshot of a table to a later one: the data files that went and those that came."""

    snapshot: Snapshot
    removed: Sequence[DataFile]
    added: Sequence[DataFile]
    is_lost: bool = False
    """The snapshot before is not known any more: what went is what the feed itself says was there."""


class FeedTable(AppendOnlyTable):
    """The changes of one table of a stream."""

    def __init__(self, catalog: Catalog, stream: Stream, table: str) -> None:
        super().__init__(catalog, stream, tables.FEED_OF[table])

    def prepare(self) -> FeedPosition:
        """Create the table if it is not there, and give it the columns that it lacks; returns how far it has come."""
        return feed_position(self.create())

    def append(self, position: FeedPosition, files: Sequence[DataFile], up_to: int, version: int) -> int:
        """Add versions up to this one, after which the feed has come `up_to`; returns the new snapshot.

        Raises ConflictError if it is no longer at this position: somebody else went on from there.
        """
        return self.add(position.base, files, {"up-to": str(up_to), "version": str(version)})


def feed_position(feed: Table) -> FeedPosition:
    """How far a feed has come; found in its rows if the snapshots that said so have expired."""
    base = head(feed).snapshot_id
    for snapshot in told_snapshots(feed):
        return FeedPosition(base, int(summary(snapshot, "up-to") or 0), int(summary(snapshot, "version") or 0))
    told = feed.scan(selected_fields=("_commit_version", "_commit_snapshot_id")).to_arrow()
    if not len(told):
        return FeedPosition(base, None, 0)
    last = max(told.to_pylist(), key=lambda row: row["_commit_version"])
    return FeedPosition(base, last["_commit_snapshot_id"], last["_commit_version"])


def told_snapshots(feed: Table) -> Iterator[Snapshot]:
    """The snapshots that say how far a feed, what is made of one, or the audit had come, newest first."""
    return (snapshot for snapshot in ancestry(feed) if summary(snapshot, "version") or summary(snapshot, "up-to"))


def steps(table: Table, up_to: int | None) -> Iterator[Step]:
    """What happened to a table since a snapshot of it, commit by commit, oldest first.

    A feed begins with the table's first commit if all history is there, else with the table as it is. If somebody took
    main back to before the snapshot there is one step from there to what is now.
    """
    newer, is_known = since(table, up_to)
    # That it names no parent proves nothing: when snapshots expire, some writers forget what came before.
    if up_to is None and newer[0].sequence_number == 1:
        is_known = True
    if is_known:
        for snapshot in newer:
            if not rewrites_only(snapshot):
                removed, added = own_files(table, snapshot)
                if removed or added:
                    yield Step(snapshot, removed, added)
        return
    now = live_files(table, head(table))
    before = table.snapshot_by_id(up_to) if up_to else None
    was = live_files(table, before) if before else []
    kept = {file.file_path for file in was} & {file.file_path for file in now}
    removed, added = ([file for file in files if file.file_path not in kept] for files in (was, now))
    yield Step(head(table), removed, added, is_lost=up_to is not None and before is None)


def is_behind(catalog: Catalog, stream: Stream, table: str) -> bool:
    """Whether a table has commits that its feed has not followed."""
    loaded, feed = (catalog.load(stream.name, name) for name in (table, tables.FEED_OF[table]))
    if loaded is None:
        return False
    return next(steps(loaded, feed_position(feed).up_to if feed else None), None) is not None


def pass_rewrites(catalog: Catalog, stream: Stream, table: str) -> None:
    """Have the feed of a table go on behind commits that changed no row, so that what is before them may expire.

    Raises ConflictError if another process publishes changes meanwhile.
    """
    feed = catalog.load(stream.name, tables.FEED_OF[table]) if table in tables.FEED_OF else None
    position = feed_position(feed) if feed else None
    if position is None or position.up_to is None:
        return
    loaded = catalog.load_table(stream.name, table)
    newer, is_known = since(loaded, position.up_to)
    passed = list(takewhile(lambda each: not _changes_rows(loaded, each), newer)) if is_known else []
    if passed:
        FeedTable(catalog, stream, table).append(position, [], passed[-1].snapshot_id, position.version)


def needed_by_feed(catalog: Catalog, stream: Stream, table: str) -> set[int]:
    """The snapshot that the feed of a table has come to: what later commits take away of it is read there.

    All that are newer are needed, too.
    """
    feed = catalog.load(stream.name, tables.FEED_OF[table]) if table in tables.FEED_OF else None
    up_to = feed_position(feed).up_to if feed else None
    return set() if up_to is None else {up_to}


def _changes_rows(table: Table, snapshot: Snapshot) -> bool:
    return not rewrites_only(snapshot) and next(iter(changes(table, snapshot)), None) is not None
