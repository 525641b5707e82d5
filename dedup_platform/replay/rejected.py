"""Rejected records: looked at, decoded again, dropped; and events decoded again where the stream file was wrong.

Whatever changes is one commit of `raw_events`, by compare-and-set, in which every record keeps its coordinates and its
place among all records. The files are written before it, so a race against an ingest costs another try of the commit
and no second decoding. Where nothing changes, nothing is committed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dedup_platform.errors import ConservationError, FilesReplacedError, UnknownRecordError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import RewriteReceipt, SummaryValues
from dedup_platform.lake.snapshots import added_rejected_files, ancestry, cell_of
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.ledger import Ledger
from dedup_platform.planning.cells import Cell
from dedup_platform.replay.rewrite import (
    Choice,
    Dropping,
    Judge,
    Redecoding,
    Replay,
    Rewritten,
    is_dropped,
    is_replayed,
    rewrite,
)
from dedup_platform.retries import retry_with_same_files
from dedup_platform.spark.task_limits import TaskLimits
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, RAW_EVENTS

COLUMNS = ("arrival_time", "payload", "payload_context", *COORDINATES, "rejection_reason")
"""What a rejected record has, in the order of `raw_events`; the columns of events are null."""
PREVIEW_BYTES = 80
"""How much of a payload a listing shows."""

_NARROW = (*ARRIVAL_ORDER, "rejection_reason")


@dataclass(frozen=True)
class ReasonCount:
    """The rejected records of one reason."""

    reason: str
    records: int
    oldest: datetime
    newest: datetime
    sources: tuple[str, ...]
    """All that they came from, sorted."""


@dataclass(frozen=True)
class RejectedRecord:
    """One rejected record; a listing holds the beginning of its payload only. A dropped record has none."""

    source: str
    source_partition: int
    source_offset: int
    source_index: int
    arrival_time: datetime
    rejection_reason: str
    payload: bytes | None
    payload_context: str | None = None

    @property
    def arrival_order(self) -> tuple[Any, ...]:
        """Its place among all records."""
        return tuple(getattr(self, name) for name in ARRIVAL_ORDER)


@dataclass(frozen=True)
class Outcome:
    """What a replay, a drop or a redecode did; `snapshot_id` is None if nothing changed and nothing was committed."""

    snapshot_id: int | None = None
    accepted: int = 0
    """Records that became events."""
    rejected: int = 0
    """Records that were events."""
    altered: int = 0
    """Records that are what they were, with another reason or other values."""
    cells: frozenset[Cell] = field(default_factory=frozenset)
    """The cells of `raw_events` whose rows are others now."""


class Rejected:
    """The rejected records of any stream, and the events that could become some."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger

    # Looking. No Spark: the files of rejected records are read one after the other, in bounded memory.

    def reasons(self, stream: Stream, choice: Choice) -> list[ReasonCount]:
        """The chosen records, counted by reason, the most frequent first."""
        extremes = (pl.min("oldest"), pl.max("newest"))
        found = pl.concat([_counted(rows) for rows in self._read(stream, choice, _NARROW)] or [_counted(_NO_ROWS)])
        by_source = found.group_by("rejection_reason", "source").agg(pl.sum("records"), *extremes)
        by_reason = by_source.group_by("rejection_reason").agg(pl.sum("records"), *extremes, pl.col("source").sort())
        ordered = by_reason.sort("records", "rejection_reason", descending=[True, False])
        return [
            ReasonCount(row.pop("rejection_reason"), sources=tuple(row.pop("source")), **row)
            for row in ordered.iter_rows(named=True)
        ]

    def first(
        self, stream: Stream, choice: Choice, limit: int, is_meant: Callable[[pl.DataFrame], pl.Series] | None = None
    ) -> list[RejectedRecord]:
        """The first of the chosen records in arrival order, each with the beginning of its payload."""
        best: pl.DataFrame | None = None
        for rows in self._read(stream, choice, (*_NARROW, "payload")):
            wanted = rows.filter(is_meant(rows)) if is_meant else rows
            best = wanted if best is None else pl.concat([best, wanted])
            best = best.sort(ARRIVAL_ORDER).head(limit)
        return [] if best is None else [RejectedRecord(**row) for row in best.iter_rows(named=True)]

    def record(self, stream: Stream, coordinates: tuple[str, int, int, int]) -> RejectedRecord:
        """One rejected record, whole. Raises UnknownRecordError."""
        wanted = pl.all_horizontal(
            [pl.col(name) == value for name, value in zip(COORDINATES, coordinates, strict=True)]
        )
        for table, file in self._files(stream):
            for batch in table.batches(file, COLUMNS):
                for row in frame_of(batch).filter(wanted).iter_rows(named=True):
                    return RejectedRecord(**row)
        raise UnknownRecordError(
            f"{stream.name}: there is no rejected record {coordinates[2]} of {coordinates[0]} (partition "
            f"{coordinates[1]}, index {coordinates[3]}). `dedup-platform rejected list {stream.name}` shows which are."
        )

    def added_by_reason(self, stream: Stream, snapshot_ids: Iterable[int]) -> Counter[str]:
        """How many rejected records these snapshots of `raw_events` themselves added, by reason."""
        counts, wanted = Counter[str](), set(snapshot_ids)
        if not wanted:
            return counts
        loaded, table = self.lake.catalog.load_table(stream.name, RAW_EVENTS), self.lake.table_files(stream, RAW_EVENTS)
        for snapshot in (each for each in loaded.snapshots() if each.snapshot_id in wanted):
            for file in added_rejected_files(loaded, snapshot):
                for batch in table.batches(file, ["rejection_reason"]):
                    counts.update(frame_of(batch)["rejection_reason"].to_list())
        return counts

    def newest_batch(self, stream: Stream) -> int | None:
        """The snapshot of the newest ingest that brought records; None if there is none."""
        loaded = self.lake.catalog.load(stream.name, RAW_EVENTS)
        return _newest_batch(loaded) if loaded else None

    # Changing

    def replay(self, stream: Stream, choice: Choice, limit: int | None = None) -> Outcome:
        """Decode chosen records again, with today's stream file: what can be an event now moves to its cell.

        What is still rejected stays, with today's reason. `limit`: only the first ones in arrival order.
        """
        chosen = self._first_of(stream, choice, limit, lambda rows: is_replayed(choice, rows))
        return self._rewrite_rejected(stream, Replay(stream, chosen), "replayed")

    def drop(self, stream: Stream, choice: Choice, limit: int | None = None) -> Outcome:
        """Take the payload from chosen records and mark their reason: they stay counted, and are never replayed."""
        chosen = self._first_of(stream, choice, limit, lambda rows: ~is_dropped(rows))
        return self._rewrite_rejected(stream, Dropping(chosen), "dropped")

    def redecode(self, stream: Stream, partitions: Iterable[int]) -> Outcome:
        """Decode the events of these partitions again, with today's stream file: they may move or become rejected."""
        heads = self.ledger.sync(stream.name)
        cells = self.ledger.sizes_of_partitions(stream.name, RAW_EVENTS, set(partitions)) if heads else ()
        if not cells:
            return Outcome()
        found = self.lake.files(stream, RAW_EVENTS, heads[RAW_EVENTS].snapshot_id, cells)
        files = [file for _, in_cell in sorted(found.items()) for file in in_cell]
        return self._rewrite(stream, files, Redecoding(stream), "redecoded")

    def _first_of(
        self, stream: Stream, choice: Choice, limit: int | None, is_meant: Callable[[pl.DataFrame], pl.Series]
    ) -> Choice:
        """The choice, which ends with the record that is the last one within the limit."""
        if limit is None:
            return choice
        first = self.first(stream, choice, limit, is_meant)
        return choice.ending_with(first[-1].arrival_order) if first else choice

    def _rewrite_rejected(self, stream: Stream, judge: Judge, reason: str) -> Outcome:
        return self._rewrite(stream, [file for _, file in self._files(stream)], judge, reason)

    def _rewrite(self, stream: Stream, files: Sequence[DataFile], judge: Judge, reason: str) -> Outcome:
        if not files:
            return Outcome()
        table, buckets = self.lake.table_files(stream, RAW_EVENTS), self.lake.buckets(stream)
        settings = self.lake.catalog.settings
        limits = TaskLimits(settings.task_memory_bytes, settings.record_seconds)
        done = rewrite(self.lake.spark(), stream, table, buckets, files, judge, settings.registry_login, limits)
        if not done.removed:
            return Outcome()
        removed = [file for file in files if file.file_path in done.removed]
        before, after = (sum(file.record_count for file in some) for some in (removed, done.added))
        if before != after:
            raise ConservationError(
                f"{stream.name}.{RAW_EVENTS}: {before} rows would be {after}. Nothing was published."
            )
        snapshot_id = retry_with_same_files(self._publish)(stream, buckets, removed, done, reason)
        self.ledger.sync(stream.name)
        return Outcome(snapshot_id, cells=frozenset(_cells([*removed, *done.added])), **done.counts)

    def _publish(self, stream: Stream, buckets: int, removed: Sequence[DataFile], done: Rewritten, reason: str) -> int:
        """Put the new files in place of the old ones, wherever main is by now: appends do not touch these files.

        Raises FilesReplacedError if the old ones are gone, or the table has other buckets than the new ones.
        """
        head = self.ledger.sync(stream.name)[RAW_EVENTS]
        if self.lake.buckets(stream) != buckets:
            raise FilesReplacedError(
                f"{stream.name}.{RAW_EVENTS}: it had {buckets} buckets when files were written, now it has others; "
                "nothing was written. Run again."
            )
        receipt = RewriteReceipt(
            reason=reason,
            rewritten=tuple(sorted(_cells([*removed, *done.added]))),
            disturbed=tuple(sorted(_disturbed(_cells(removed), _cells(done.added)))),
            previous=head.receipt,
        )
        properties: SummaryValues = {"receipt": receipt.name, "reason": reason}
        staged = self.lake.stage_files(stream, RAW_EVENTS, head.snapshot_id, removed, done.added, properties)
        self.lake.catalog.write_receipt(stream.name, receipt)
        self.lake.publish(staged)
        return staged.snapshot_id

    def _read(self, stream: Stream, choice: Choice, names: Sequence[str]) -> Iterator[pl.DataFrame]:
        """The chosen records, some at a time; of a payload the beginning."""
        for table, file in self._files(stream):
            for batch in table.batches(file, names):
                rows = frame_of(without_ends(batch))
                yield rows.filter(choice.of(rows))

    def _files(self, stream: Stream) -> Iterator[tuple[TableFiles, DataFile]]:
        if heads := self.ledger.sync(stream.name):
            table = self.lake.table_files(stream, RAW_EVENTS)
            for file in self.lake.rejected_files(stream, heads[RAW_EVENTS].snapshot_id):
                yield table, file


_NO_ROWS = pl.DataFrame(
    schema={"rejection_reason": pl.String, "source": pl.String, "arrival_time": pl.Datetime("us", "UTC")}
)


def _counted(rows: pl.DataFrame) -> pl.DataFrame:
    arrival = pl.col("arrival_time")
    return rows.group_by("rejection_reason", "source").agg(
        records=pl.len().cast(pl.Int64), oldest=arrival.min(), newest=arrival.max()
    )


def without_ends(rows: pa.Table) -> pa.Table:
    """The same rows with the beginning of each payload only."""
    if "payload" not in rows.column_names:
        return rows
    place = rows.column_names.index("payload")
    beginning = pc.binary_slice(rows["payload"].cast(pa.binary()), 0, PREVIEW_BYTES)
    return rows.set_column(place, "payload", beginning)


def _disturbed(left: set[Cell], entered: set[Cell]) -> set[Cell]:
    """The cells that one commit must judge, with those near them: a record may be in one no longer, and in another now.

    Of what is no longer there the data cannot tell, so the receipt does.
    """
    return left | entered if left else set()


def _cells(files: Iterable[DataFile]) -> set[Cell]:
    """The cells of some files, without those of rejected records."""
    return {cell for file in files if (cell := cell_of(file))}


def _newest_batch(raw: Table) -> int | None:
    for snapshot in ancestry(raw):
        summary = snapshot.summary
        if (
            summary
            and summary.operation.value == "append"
            and int(summary.additional_properties.get("added-records", 0))
        ):
            return snapshot.snapshot_id
    return None
