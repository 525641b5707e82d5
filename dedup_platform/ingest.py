"""Takes in what the source has: rows and positions become one Iceberg commit, by compare-and-set (rule 1)."""

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import functions as F

from dedup_platform import tables
from dedup_platform.catalog import Catalog, new_receipt_name
from dedup_platform.commits import Commit
from dedup_platform.errors import ConservationError, SourceChangedError, UnknownFileError
from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import Head, Ledger, ReadFile
from dedup_platform.sources.files import SourceFile, changed_while_reading, list_files, read_files, reading_failure
from dedup_platform.stream import Stream

_LOG = logging.getLogger(__name__)

CELL_BYTES = 100 * 1024**2
"""A cell should not pass this; only then are more buckets worth their files (15 ms each)."""


@dataclass(frozen=True)
class Waiting:
    """What an ingest would read now, and what it would leave alone and why."""

    files: tuple[tuple[SourceFile, int], ...]
    """Files to read with the generation that they would be."""
    reasons: tuple[tuple[str, str], ...]
    """Path and reason of what is left for later or for a person to decide."""
    watermark: str
    """The same files give the same watermark."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Paths of files that changed after they were read."""
        return tuple(path for path, reason in self.reasons if reason.startswith(CHANGED))


CHANGED = "changed after it was read"


def waiting(ledger: Ledger, stream: Stream, now: datetime) -> Waiting:
    """Compare the source with what has been read. Reads names, sizes and times only."""
    known, accepted = ledger.files(stream.name), ledger.accepted(stream.name)
    listing = list_files(stream, now)
    files, reasons = [], list(listing.waiting)
    for file in listing.ready:
        read = known.get(file.path)
        if read is None:
            files.append((file, 0))
        elif _differs(read, file):
            if (file.path, file.etag) in accepted:
                files.append((file, read.generation + 1))
            else:
                reasons.append((file.path, f"{CHANGED}: accept it with `files accept`, or restore the file"))
    newest = max((f"{file.modified.isoformat()} {file.etag}" for file, _ in files), default="")
    return Waiting(tuple(files), tuple(reasons), f"{len(known)}+{len(files)} {newest}" if files else "")


def _differs(read: ReadFile, file: SourceFile) -> bool:
    # The etag is unknown if positions had to be derived from raw: then the path alone says that it was read.
    return read.etag is not None and read.etag != file.etag


class Ingest:
    """Appends what waits to `raw_events`, in bounded batches."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger

    @property
    def catalog(self) -> Catalog:
        """Where receipts are written."""
        return self.lake.catalog

    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Read the next batch; None if nothing waits. Raises ConflictError if another ingest committed first."""
        heads = self._ready(stream)
        files = waiting(self.ledger, stream, now).files
        if not files:
            return None
        if not heads:
            self._create(stream, [file for file, _ in files])
            heads = self._ready(stream)
        return self._append(stream, heads[tables.RAW_EVENTS], _bounded(stream, files))

    def accept(self, stream: Stream, paths: Iterable[str], now: datetime) -> Commit:
        """Record in the lake that these changed files may be read again, as a new generation."""
        heads = self._ready(stream)
        changed = set(waiting(self.ledger, stream, now).changed)
        if unknown := sorted(set(paths) - changed):
            raise UnknownFileError(
                f"{stream.name}: {', '.join(unknown)} did not change after being read; changed: "
                f"{', '.join(sorted(changed)) or 'none'}"
            )
        etags = {file.path: file.etag for file in list_files(stream, now).ready}
        accepted = [{"path": path, "etag": etags[path]} for path in paths]
        return self._commit_positions(stream, heads[tables.RAW_EVENTS], {"accepted": accepted}, "accepted")

    def _ready(self, stream: Stream) -> dict[str, Head]:
        heads = self.ledger.sync(stream.name)
        if heads and not heads[tables.RAW_EVENTS].complete:
            self._derive_positions(stream, heads[tables.RAW_EVENTS])
            heads = self.ledger.sync(stream.name)
        return heads

    def _create(self, stream: Stream, files: Sequence[SourceFile]) -> None:
        self.lake.create(stream, stream.buckets or self._choose_buckets(stream, files))

    def _choose_buckets(self, stream: Stream, files: Sequence[SourceFile]) -> int:
        """The fewest buckets, a power of two, that keep the cells of an average partition below `CELL_BYTES`."""
        size = sum(file.size for file in files)
        if size <= CELL_BYTES:
            return 1
        first = read_files(self.lake.spark(), stream, [(file, 0) for file in files[:100]])
        length = int(stream.partitions.length.total_seconds())
        partitions = first.select(F.floor(F.unix_seconds("event_time") / length)).distinct().count()
        share = sum(file.size for file in files[:100])
        return _power_of_two(share / max(partitions, 1) / CELL_BYTES)

    def _append(self, stream: Stream, head: Head, files: Sequence[tuple[SourceFile, int]]) -> Commit:
        started = time.monotonic()
        name = new_receipt_name()
        staged = self._stage(stream, head, files, name)
        try:
            records = self._count_records(staged) if staged else {}
            unsettled = {file.path for file in changed_while_reading([file for file, _ in files])}
        except Exception:
            self._discard(staged)
            raise
        if staged is None or unsettled:
            self._discard(staged)
            return self._append(stream, head, _without(stream, files, unsettled))
        receipt: dict[str, object] = {"files": [_position(file, generation, records) for file, generation in files]}
        self._write_receipt(stream, head, name, receipt)
        self.lake.publish(staged)
        return self._commit(stream, staged, len(files), started)

    def _stage(
        self, stream: Stream, head: Head, files: Sequence[tuple[SourceFile, int]], receipt: str
    ) -> Staged | None:
        """The files' records, written but not published; None if a file could not be read as it was listed."""
        rows = read_files(self.lake.spark(), stream, files)
        try:
            return self.lake.stage_append(stream, tables.RAW_EVENTS, head.snapshot_id, rows, {"receipt": receipt})
        except Exception as error:
            if failure := reading_failure(error):
                if changed_while_reading([file for file, _ in files]):
                    return None
                raise failure from error
            raise

    def _discard(self, staged: Staged | None) -> None:
        if staged:
            self.lake.discard(staged)

    def _count_records(self, staged: Staged) -> dict[tuple[str, int], int]:
        """Records of each file and generation; rule 2: records read = rows appended, each at a place of its own."""
        counts = (
            self.lake.added(staged)
            .groupBy("source", "source_partition")
            .agg(F.count("*").alias("records"), F.count_distinct("source_offset").alias("places"))
            .collect()
        )
        records = {(row.source, row.source_partition): row.records for row in counts}
        if sum(records.values()) != staged.rows_added or any(row.records != row.places for row in counts):
            raise ConservationError(
                f"{staged.stream}: {sum(records.values())} records at {sum(row.places for row in counts)} places, "
                f"but {staged.rows_added} rows. Nothing was published."
            )
        return records

    def _derive_positions(self, stream: Stream, head: Head) -> None:
        """Rule 1: if receipts are lost, the coordinates in raw tell what was read, never zero."""
        rows = self.lake.read(stream, tables.RAW_EVENTS, head.snapshot_id)
        counts = rows.groupBy("source", "source_partition").agg(F.count("*").alias("records")).collect()
        files = [
            {"path": row.source, "generation": row.source_partition, "size": None, "etag": None, "records": row.records}
            for row in counts
        ]
        self._commit_positions(stream, head, {"files": files, "derived": True}, "derived positions")

    def _commit_positions(self, stream: Stream, head: Head, receipt: dict[str, object], reason: str) -> Commit:
        started = time.monotonic()
        name = new_receipt_name()
        properties = {"receipt": name, "reason": reason}
        staged = self.lake.stage_nothing(stream, tables.RAW_EVENTS, head.snapshot_id, properties)
        self._write_receipt(stream, head, name, receipt)
        self.lake.publish(staged)
        return self._commit(stream, staged, 0, started)

    def _write_receipt(self, stream: Stream, head: Head, name: str, receipt: dict[str, object]) -> None:
        previous = None if receipt.get("derived") else head.receipt
        self.catalog.write_receipt(stream.name, name, {**receipt, "name": name, "previous": previous})

    def _commit(self, stream: Stream, staged: Staged, files: int, started: float) -> Commit:
        self.ledger.sync(stream.name)
        rows = staged.rows_by_cell()
        return Commit(
            table=tables.RAW_EVENTS,
            snapshot_id=staged.snapshot_id,
            reason=f"{files} files" if files else "positions",
            cells_checked=frozenset(rows),
            cells_rewritten=frozenset(rows),
            rows_written=staged.rows_added,
            bytes_written=staged.bytes_added,
            seconds=time.monotonic() - started,
            partitions=_numbers(staged, rows),
        )


def _bounded(stream: Stream, files: Sequence[tuple[SourceFile, int]]) -> list[tuple[SourceFile, int]]:
    """The first files that fit a batch; one file alone always does."""
    batch: list[tuple[SourceFile, int]] = []
    size = 0
    for file, generation in files[: stream.source.max_batch_files]:
        size += file.size
        if batch and size > stream.source.max_batch_bytes:
            break
        batch.append((file, generation))
    return batch


def _without(
    stream: Stream, files: Sequence[tuple[SourceFile, int]], unsettled: Collection[str]
) -> list[tuple[SourceFile, int]]:
    """The files that can be read; those that are being written to must not hold up the others."""
    rest = [(file, generation) for file, generation in files if file.path not in unsettled]
    what = f"{stream.name}: {', '.join(sorted(unsettled))} changed or vanished while being read"
    if not rest or not unsettled:
        raise SourceChangedError(f"{what}; nothing of it was taken in. Run again when its writer is done.")
    _LOG.warning("%s; left for a later run", what)
    return rest


def _position(file: SourceFile, generation: int, records: dict[tuple[str, int], int]) -> dict[str, object]:
    return {
        "path": file.path,
        "generation": generation,
        "size": file.size,
        "etag": file.etag,
        "records": records.get((file.path, generation), 0),
    }


def _numbers(staged: Staged, rows: dict[Cell, int]) -> dict[int, dict[str, float]]:
    numbers: dict[int, dict[str, float]] = {}
    for cell, count in rows.items():
        values = numbers.setdefault(cell.partition, {"rows_added": 0, "bytes_written": 0})
        values["rows_added"] += count
    for change in staged.changes:
        if change.cell:
            numbers[change.cell.partition]["bytes_written"] += change.bytes
    return numbers


def _power_of_two(at_least: float) -> int:
    buckets = 1
    while buckets < min(at_least, 4096):
        buckets *= 2
    return buckets
