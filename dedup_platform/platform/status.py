"""A stream in numbers, all from metadata."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.points import Point
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.planning.claims import Claim
from dedup_platform.planning.completeness import PartitionState
from dedup_platform.planning.health import Oldest
from dedup_platform.platform.file_changes import FileChanges
from dedup_platform.sinks import Totals


@dataclass(frozen=True)
class TableStatus:
    """One table in numbers."""

    table: str
    snapshot_id: int
    rows: int
    cells: int
    files: int
    bytes: int
    stale_cells: int
    oldest_stale: Oldest | None
    """The one of these cells that has waited for longest."""


@dataclass(frozen=True)
class FeedStatus:
    """How far a feed has come."""

    feed: str
    version: int
    """The last one; 0 before the first."""
    is_behind: bool
    """Whether its table has commits that no version tells yet."""


@dataclass(frozen=True)
class SinkStatus:
    """How far a sink has come, as its store says."""

    sink: str
    kind: str
    follows: str
    version: int | None
    """The last version of which it has anything; None before it has any, and where the store cannot be asked."""
    is_beginning: bool
    """Whether it has yet to get the table, or the rest of it."""
    behind: int | None
    """How many versions wait; None where it has not begun with this feed."""
    refused: int
    """Rows that wait for a retry."""
    totals: Totals
    moved_at: datetime | None
    """When it was last written to."""
    trouble: str | None
    """Why the store cannot be asked."""
    health: Circuit
    """How the tries to write to it went."""


@dataclass(frozen=True)
class Status:
    """A stream in numbers; `tables` is empty before anything was taken in."""

    stream: str
    tables: tuple[TableStatus, ...]
    files_read: int
    records_read: int
    rejected: int
    waiting: Waiting | None
    """None if the source cannot be asked; `trouble` is why."""
    trouble: str | None
    health: Circuit
    """How the stream's ingest fares."""
    skipped: tuple[str, ...]
    """What people had left out: paths of files, or offsets in words."""
    claims: Mapping[str, Sequence[Claim]]
    """Of each table, feed and sink what is in work, and what failed and nobody asked for since."""
    switched_off: tuple[str, ...]
    """The tables that stay as they are, because the stream file has no sessions any more."""
    point: Point | None
    """The newest point in which all tables agree."""
    watermark: datetime | None
    """The latest arrival of any event that was taken in."""
    partitions: Mapping[str, PartitionState]
    """The state of each partition by its key, in order."""
    feeds: tuple[FeedStatus, ...] = ()
    """Those that have begun."""
    sinks: tuple[SinkStatus, ...] = ()
    changes: FileChanges = field(default_factory=FileChanges)
    """What a change of the stream file does."""
    audit: Mapping[str, int] = field(default_factory=dict)
    """What all commits that were counted came to, by what is counted (`tables.COUNTED`)."""
