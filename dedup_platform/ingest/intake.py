"""What sources of all kinds share: staged rows are counted before they are published, then the ledger is told."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from dedup_platform import tables
from dedup_platform.errors import ConservationError
from dedup_platform.ingest.append import Appending, Reader, Span, append
from dedup_platform.ingest.one_by_one import Inputs
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.staged import Staged
from dedup_platform.ledger import Head, Ledger
from dedup_platform.planning.cells import Cell
from dedup_platform.sources.clock_skew import clocks
from dedup_platform.spark.task_limits import TaskLimits
from dedup_platform.spark.watching import Unit, tell
from dedup_platform.stream import Stream

CELL_BYTES = 100 * 1024**2
"""A cell should not pass this; only then are more buckets worth their files (15 ms each)."""


class Intake(ABC):
    """Takes in one kind of source."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger
        self._done: dict[str, int] = {}

    @abstractmethod
    def waiting(self, stream: Stream, now: datetime) -> Waiting:
        """What a batch would read now, and what it would leave alone."""

    @abstractmethod
    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Take in the next batch; None if nothing waits."""

    @abstractmethod
    def change_token(self, stream: Stream) -> str:
        """A text that differs once more was read, or accepted by a person. Does not ask the source."""

    @abstractmethod
    def first_inputs(self, stream: Stream, now: datetime) -> list[Inputs]:
        """Some of what waits, to look at: a few files, or the beginnings of partitions. SourceError as `waiting`."""

    @abstractmethod
    def accept_batch(self, stream: Stream, batch: str, now: datetime) -> Commit:
        """Record in the lake that a batch that was held (`HeldBatchError.batch`) may be taken in as it is."""

    @property
    def limits(self) -> TaskLimits:
        """Those of a task that reads records."""
        settings = self.lake.catalog.settings
        return TaskLimits(settings.task_memory_bytes, settings.record_seconds)

    def _tell(self, stream: Stream, unit: Unit, done: int, left: int) -> None:
        """Say how much one more batch has taken in, and how much waits; whatever came before it is counted, too."""
        so_far = self._done.pop(stream.name, 0) + done
        tell(unit, so_far, so_far + left)
        if left:
            self._done[stream.name] = so_far

    def _stage(
        self, stream: Stream, head: Head, tasks: int, read: Reader, inputs: Inputs, properties: SummaryValues
    ) -> tuple[Staged, list[Span]]:
        """The records of all tasks, written but not published, and where they come from. `inputs` is what `read` reads.

        Raises the SourceError or SourceChangedError of whoever could not read them.
        """
        files = self.lake.table_files(stream, tables.RAW_EVENTS)
        appending = Appending(stream, files, self.lake.buckets(stream), read, tasks, inputs=inputs, limits=self.limits)
        appended = append(self.lake.spark(), appending)
        added = [each.file for each in appended]
        place = (stream, tables.RAW_EVENTS, head.snapshot_id)
        staged = (
            self.lake.stage_append(*place, added, properties) if added else self.lake.stage_nothing(*place, properties)
        )
        return staged, [span for each in appended for span in each.spans]

    def _count_records(self, staged: Staged, spans: Iterable[Span]) -> dict[tuple[str, int], int]:
        """Records of each source partition; rule 2: records read = rows appended, each with coordinates of its own."""
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

    def _hold_back(self, stream: Stream, spans: Iterable[Span], accepted: Collection[tuple[str, int]]) -> str | None:
        """Why a batch is held, None if it is not. `accepted`: sources and partitions whose rejects people accepted."""
        if stream.reject is None:
            return None
        judged = [span for span in spans if (span.source, span.source_partition) not in accepted]
        reasons: Counter[str] = Counter()
        for span in judged:
            reasons.update(span.rejected)
        records, rejected = sum(span.records for span in judged), reasons.total()
        if rejected < stream.reject.min_records or rejected <= stream.reject.max_ratio * records:
            return None
        counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
        return (
            f"{stream.name}: {rejected:,} of {records:,} records of a batch would be rejected, more than "
            f"reject.max_ratio ({stream.reject.max_ratio:g}) allows: {counts}. Nothing was published. Mend the stream "
            f"file or the source, or let them be rejected: `dedup-platform batches accept {stream.name}`"
        )

    def _commit(
        self, stream: Stream, staged: Staged, reason: str, started: float, spans: Sequence[Span] = ()
    ) -> Commit:
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
            clocks=clocks(spans) if spans else None,
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
