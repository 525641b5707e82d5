"""What sources of all kinds share: staged rows are counted before they are published, then the ledger is told."""

import time
from abc import ABC, abstractmethod
from datetime import datetime

from pyspark.sql import DataFrame, functions as F

from dedup_platform import tables
from dedup_platform.commits import Commit
from dedup_platform.errors import ConservationError
from dedup_platform.ingest.waiting import Waiting
from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import Ledger
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

    def _count_records(self, staged: Staged) -> dict[tuple[str, int], int]:
        """Records of each source and partition; rule 2: records read = rows appended, each at a place of its own."""
        rows = self._places(self.lake.added(staged)).collect()
        records = {(row.source, row.source_partition): row.records for row in rows}
        if sum(records.values()) != staged.rows_added or any(row.records != row.places for row in rows):
            raise ConservationError(
                f"{staged.stream}: {sum(records.values())} records at {sum(row.places for row in rows)} places, "
                f"but {staged.rows_added} rows. Nothing was published."
            )
        return records

    def _places(self, rows: DataFrame) -> DataFrame:
        places = F.count_distinct("source_offset", "source_index")
        by_source = rows.groupBy("source", "source_partition")
        return by_source.agg(F.count("*").alias("records"), places.alias("places"))

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
