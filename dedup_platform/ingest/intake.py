"""What sources of all kinds share: staged rows are counted before they are published, then the ledger is told."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime

from dedup_platform import tables
from dedup_platform.commits import Commit
from dedup_platform.errors import ConservationError
from dedup_platform.ingest.waiting import Waiting
from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import Head, Ledger
from dedup_platform.rawwork import Appending, Reader, Span, append
from dedup_platform.stream import Stream

CELL_BYTES = 100 * 1024**2
"""A cell should not pass this; only then are more buckets worth their files (15 ms each)."""


class Intake(ABC):
    """Takes in one kind of source."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger

    @abstractmethod
    def waiting(self, stream: Stream, now: datetime) -> Waiting:
        """What a batch would read now, and what it would leave alone."""

    @abstractmethod
    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Take in the next batch; None if nothing waits."""

    def _stage(
        self, stream: Stream, head: Head, tasks: int, read: Reader, properties: Mapping[str, str]
    ) -> tuple[Staged, list[Span]]:
        """The records of all tasks, written but not published, and where they come from."""
        files = self.lake.table_files(stream, tables.RAW_EVENTS)
        appending = Appending(stream, files, self.lake.buckets(stream), read)
        appended = append(self.lake.spark(), tasks, appending)
        added = [each.file for each in appended]
        place = (stream, tables.RAW_EVENTS, head.snapshot_id)
        staged = (
            self.lake.stage_append(*place, added, properties) if added else self.lake.stage_nothing(*place, properties)
        )
        return staged, [span for each in appended for span in each.spans]

    def _count_records(self, staged: Staged, spans: Iterable[Span]) -> dict[tuple[str, int], int]:
        """Records of each source and partition; rule 2: records read = rows appended, each at a place of its own."""
        records: dict[tuple[str, int], int] = {}
        places = 0
        for span in spans:
            at = (span.source, span.source_partition)
            records[at] = records.get(at, 0) + span.records
            places += span.places
        if not sum(records.values()) == places == staged.rows_added:
            raise ConservationError(
                f"{staged.stream}: {sum(records.values())} records at {places} places, but {staged.rows_added} rows. "
                "Nothing was published."
            )
        return records

    def _commit(self, stream: Stream, staged: Staged, reason: str, started: float) -> Commit:
        self.ledger.sync(stream.name)
        rows = staged.rows_by_cell()
        return Commit(
            table=tables.RAW_EVENTS,
            snapshot_id=staged.snapshot_id,
            reason=reason,
            cells_checked=frozenset(rows),
            cells_rewritten=frozenset(rows),
            rows_written=staged.rows_added,
            bytes_written=staged.bytes_added,
            seconds=time.monotonic() - started,
            partitions=_numbers(staged, rows),
        )


def _numbers(staged: Staged, rows: dict[Cell, int]) -> dict[int, dict[str, float]]:
    numbers: dict[int, dict[str, float]] = {}
    for cell, count in rows.items():
        values = numbers.setdefault(cell.partition, {"rows_added": 0, "bytes_written": 0})
        values["rows_added"] += count
    for change in staged.changes:
        if change.cell:
            numbers[change.cell.partition]["bytes_written"] += change.bytes
    return numbers


def buckets_for(bytes_a_partition: float) -> int:
    """The fewest buckets, a power of two, that keep the cells of a partition of so many bytes below `CELL_BYTES`."""
    buckets = 1
    while buckets < min(bytes_a_partition / CELL_BYTES, 4096):
        buckets *= 2
    return buckets
