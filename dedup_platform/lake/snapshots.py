"""Reads what Iceberg itself records: main's snapshots, what each of them changed, and its summary. No Spark."""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import TimestamptzType

from dedup_platform.lake.receipts import SummaryKey
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.planning.moments import EPOCH

SUMMARY = "dedup-platform."
"""Prefix of the platform's own properties in a snapshot's summary."""
POSITIONS: Final = "positions"
"""The property of a summary that names the receipt in which a commit tells how far topics were read."""


@dataclass(frozen=True)
class FileChange:
    """One data file that a snapshot added (`sign` 1) or took away (-1). A rejected row's file has no cell."""

    cell: Cell | None
    sign: int
    rows: int
    bytes: int
    arrival_min: datetime | None
    arrival_max: datetime | None
    sequence: int
    """Sequence number of the commit that wrote the file's rows."""


def head(table: Table) -> Snapshot:
    """The newest snapshot of main; every table is created with one."""
    snapshot = table.current_snapshot()
    assert snapshot is not None, f"{table.name()} has no snapshot: it was not created by this platform"
    return snapshot


def bucket_count(table: Table) -> int:
    """N of the table's `bucket(N, entity_id)`."""
    return next(
        field.transform.num_buckets for field in table.spec().fields if isinstance(field.transform, BucketTransform)
    )


def ancestry(table: Table, of: int | None = None) -> Iterator[Snapshot]:
    """A snapshot (main's newest if none is given) and those before it, newest first, as far as they did not expire."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    snapshot: Snapshot | None = head(table) if of is None else by_id.get(of)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)


def since(table: Table, known: int | None) -> tuple[list[Snapshot], bool]:
    """Main's snapshots after the known one, oldest first, and whether the known one is an ancestor of main.

    For an unknown or lost one: all that remain, and False.
    """
    newer: list[Snapshot] = []
    for snapshot in ancestry(table):
        if snapshot.snapshot_id == known:
            return newer[::-1], True
        newer.append(snapshot)
    return newer[::-1], False


def changes(table: Table, snapshot: Snapshot) -> Iterator[FileChange]:
    """The data files that this snapshot itself added and took away, from its own manifest entries."""
    arrival = _arrival_field(table)
    return (_file_change(entry, arrival) for entry in _own_entries(table, snapshot))


def added_files(table: Table, snapshot: Snapshot) -> Iterator[DataFile]:
    """The data files that this snapshot itself added."""
    entries = _own_entries(table, snapshot)
    return (entry.data_file for entry in entries if entry.status == ManifestEntryStatus.ADDED)


def own_files(table: Table, snapshot: Snapshot) -> tuple[list[DataFile], list[DataFile]]:
    """The data files that this snapshot itself took away, and those that it added."""
    removed: list[DataFile] = []
    added: list[DataFile] = []
    for entry in _own_entries(table, snapshot):
        (removed if entry.status == ManifestEntryStatus.DELETED else added).append(entry.data_file)
    return removed, added


def live_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """All data files of a snapshot."""
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.content == ManifestContent.DATA
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    ]


def _own_entries(table: Table, snapshot: Snapshot) -> Iterator[ManifestEntry]:
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id == snapshot.snapshot_id:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
                if entry.snapshot_id == snapshot.snapshot_id and entry.status != ManifestEntryStatus.EXISTING:
                    yield entry


def changed_cells(table: Table, since_snapshot: int | None) -> frozenset[Cell]:
    """The cells that main's snapshots after this one changed."""
    newer = [snapshot for snapshot in since(table, since_snapshot)[0] if not rewrites_only(snapshot)]
    return frozenset(change.cell for snapshot in newer for change in changes(table, snapshot) if change.cell)


def rewrites_only(snapshot: Snapshot) -> bool:
    """Whether a snapshot holds the same rows in other files, as a compaction leaves them."""
    return snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE


def changes_numbering(snapshot: Snapshot) -> bool:
    """Whether a snapshot gave its table another number of buckets: the same rows, in other cells."""
    return rewrites_only(snapshot) and summary(snapshot, "reason") == "buckets"


def live(table: Table, snapshot: Snapshot) -> Iterator[FileChange]:
    """All data files of a snapshot, as if it had added them all."""
    arrival = _arrival_field(table)
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield _file_change(entry, arrival)


def files_by_cell(table: Table, snapshot_id: int, cells: Collection[Cell] | None = None) -> dict[Cell, list[DataFile]]:
    """The data files of a snapshot by cell, of all or of these cells; files of rejected records are in none."""
    found: dict[Cell, list[DataFile]] = {}
    for entry in live_entries(table, snapshot_id, cells):
        if cell := cell_of(entry.data_file):
            found.setdefault(cell, []).append(entry.data_file)
    return found


def live_entries(table: Table, snapshot_id: int, cells: Collection[Cell] | None = None) -> Iterator[ManifestEntry]:
    """What a snapshot says of its data files, and which commit added each: of all or of those in these cells.

    Manifests that can hold none of these cells are not read.
    """
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None, f"{table.name()} has no snapshot {snapshot_id}"
    wanted = None if cells is None else _Wanted.of(cells)
    for manifest in snapshot.manifests(table.io):
        if wanted is None or wanted.may_be_in(manifest):
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if wanted is None or cell_of(entry.data_file) in wanted.cells:
                    yield entry


@dataclass(frozen=True)
class _Wanted:
    """Cells that somebody looks for, and their partitions and buckets, each sorted."""

    cells: frozenset[Cell]
    partitions: tuple[int, ...]
    buckets: tuple[int, ...]

    @classmethod
    def of(cls, cells: Collection[Cell]) -> "_Wanted":
        partitions, buckets = ({cell[place] for cell in cells} for place in (0, 1))
        return cls(frozenset(cells), tuple(sorted(partitions)), tuple(sorted(buckets)))

    def may_be_in(self, manifest: ManifestFile) -> bool:
        """Whether the bounds of the manifest's partitions and buckets leave room for one of them."""
        if not manifest.partitions:
            return True
        by_time, by_entity = manifest.partitions
        is_null = NO_ENTITY in self.buckets and by_entity.contains_null
        return _any_within(self.partitions, by_time) and (is_null or _any_within(self.buckets, by_entity))


def _any_within(values: Sequence[int], bounds: PartitionFieldSummary) -> bool:
    if bounds.lower_bound is None or bounds.upper_bound is None:
        return False
    low, high = (int.from_bytes(bound, "little", signed=True) for bound in (bounds.lower_bound, bounds.upper_bound))
    place = bisect_left(values, low)
    return place < len(values) and values[place] <= high


def rejected_files(table: Table, snapshot_id: int) -> list[DataFile]:
    """The data files of rejected records of a snapshot of `raw_events`, in the order of their paths."""
    tasks = table.scan("event_time is null", snapshot_id=snapshot_id).plan_files()
    return sorted((task.file for task in tasks if cell_of(task.file) is None), key=lambda file: file.file_path)


def added_rejected_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """The data files of rejected records that this snapshot of `raw_events` itself added."""
    return [file for file in added_files(table, snapshot) if cell_of(file) is None]


def summary(snapshot: Snapshot, name: SummaryKey) -> str | None:
    """One of the platform's own properties of a snapshot."""
    return snapshot.summary.additional_properties.get(SUMMARY + name) if snapshot.summary else None


def positions_receipt(snapshot: Snapshot) -> str | None:
    """The receipt in which a commit of `raw_events` tells how far topics were read.

    Before there were such receipts the summary itself said it, as JSON.
    """
    told = summary(snapshot, POSITIONS)
    return told if told and not told.startswith("{") else None


def paired_duplicates(events: Table, of: int | None = None) -> int | None:
    """The snapshot of `duplicate_events` that the newest `deduplicated_events`, or a snapshot of them, came with."""
    return next((pair for _, pair in pairs(events, of)), None)


def pairs(events: Table, of: int | None = None) -> Iterator[tuple[int, int]]:
    """Snapshots of `deduplicated_events`, from one or main's newest on, that name one of `duplicate_events`.

    Each with the one that it names, newest first.
    """
    for snapshot in ancestry(events, of):
        if (pair := summary(snapshot, "duplicates-snapshot")) is not None:
            yield snapshot.snapshot_id, int(pair)


def total_rows(table: Table) -> int:
    """Rows of the newest snapshot."""
    return _total(table, "total-records")


def total_files(table: Table) -> int:
    """Data files of the newest snapshot."""
    return _total(table, "total-data-files")


def _total(table: Table, name: str) -> int:
    found = head(table).summary
    return int(found.additional_properties.get(name, 0)) if found else 0


def committed_at(snapshot: Snapshot) -> datetime:
    """When a snapshot was made, by its writer's clock."""
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, tz=UTC)


def _file_change(entry: ManifestEntry, arrival: int | None) -> FileChange:
    file = entry.data_file
    return FileChange(
        cell=cell_of(file),
        sign=-1 if entry.status == ManifestEntryStatus.DELETED else 1,
        rows=file.record_count,
        bytes=file.file_size_in_bytes,
        arrival_min=_bound(file.lower_bounds, arrival),
        arrival_max=_bound(file.upper_bounds, arrival),
        sequence=entry.sequence_number or 0,
    )


def cell_of(file: DataFile) -> Cell | None:
    """The cell that a data file lies in; None for rejected rows, and where a table has no cells."""
    if len(file.partition) < len(Cell._fields):
        return None
    partition, bucket = file.partition[0], file.partition[1]
    if partition is None:
        return None
    ordinal = (partition - date(1970, 1, 1)).days if isinstance(partition, date) else int(partition)
    return Cell(ordinal, NO_ENTITY if bucket is None else int(bucket))


def _arrival_field(table: Table) -> int | None:
    """The id of `arrival_time`; None in a table without it. Looked up once, not for each of many entries."""
    return next((field.field_id for field in table.schema().fields if field.name == "arrival_time"), None)


def _bound(bounds: dict[int, bytes] | None, field: int | None) -> datetime | None:
    value = bounds.get(field) if bounds and field is not None else None
    # An Iceberg timestamp is a number of microseconds.
    return EPOCH + timedelta(microseconds=int(from_bytes(TimestamptzType(), value))) if value else None
