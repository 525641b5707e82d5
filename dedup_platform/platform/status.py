"""A stream in numbers, all from metadata."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from dedup_platform.ingest import Waiting
from dedup_platform.lake.points import Point
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.planning.completeness import PartitionState


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
    switched_off: tuple[str, ...]
    """The tables that stay as they are, because the stream file has no sessions any more."""
    point: Point | None
    """The newest point in which all tables agree."""
    watermark: datetime | None
    """The latest arrival of any event that was taken in."""
    partitions: Mapping[str, PartitionState]
    """The state of each partition by its key, in order."""
