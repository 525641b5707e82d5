"""Checkpoints: receipts that hold what all receipts before them say, so that those need be neither kept nor read.

What a checkpoint holds lies beside it, in parts of Parquet. The parts are written first, then the receipt, then the
commit that names it; only what no commit leads to any more is deleted. Whoever is killed in between leaves a file that
nobody names.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import uuid4

import pyarrow as pa
from pyiceberg.table import Table

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import AnyReceipt, FilesReceipt, Part, PartKind, Parts, SummaryValues, parts_of
from dedup_platform.lake.snapshots import ancestry, positions_receipt, summary
from dedup_platform.ledger import Head, Ledger
from dedup_platform.ledger.checkpoints import KINDS
from dedup_platform.stream import KafkaSource, Stream
from dedup_platform.tables import ALL, RAW_EVENTS

RECEIPTS = 100
"""A checkpoint is due once there are so many receipts since the last one."""
FAR = 20_000
"""So many receipts without a checkpoint are followed back. Where there are more, nothing is deleted yet."""


class Checkpoints:
    """Writes the checkpoints of any stream's tables, and removes what they made superfluous."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self.lake = lake
        self.ledger = ledger

    def is_due(self, stream: Stream, table: str) -> bool:
        """Whether so many receipts came since the last checkpoint that a rebuild should not have to read them."""
        newer = self._since_checkpoint(stream, self.lake.catalog.load_table(stream.name, table))
        return len(list(islice(newer, RECEIPTS))) == RECEIPTS

    def write_parts(self, stream: Stream, table: str) -> Parts:
        """Write what the checkpoint of a derived table holds: which cells are built from what."""
        return {**self._write_all(stream, table, "built"), **self._write_all(stream, table, "untold")}

    def commit_positions(self, stream: Stream) -> None:
        """Commit a checkpoint of `raw_events`: all that was read and accepted. It costs what is new since the last one.

        None while receipts are lost that only the next ingest can derive anew. Raises ConflictError if another writer
        committed meanwhile.
        """
        head = self.ledger.sync(stream.name)[RAW_EVENTS]
        if not head.complete and not isinstance(stream.source, KafkaSource):
            return
        last = self._last_words(stream, head)
        files = self._write_files(stream, *last) if last else self._write_all(stream, RAW_EVENTS, "files")
        receipt = FilesReceipt(
            reason="maintenance",
            accepted=tuple(sorted(self.ledger.accepted(stream.name))),
            checkpoint={**files, **self._write_all(stream, RAW_EVENTS, "untold")},
        )
        properties: SummaryValues = {"receipt": receipt.name, "checkpoint": receipt.name, "reason": receipt.reason}
        staged = self.lake.stage_nothing(stream, RAW_EVENTS, head.snapshot_id, properties)
        self.lake.catalog.write_receipt(stream.name, receipt)
        self.lake.publish(staged)
        self.ledger.sync(stream.name)

    def remove_superfluous(self, stream: Stream, older_than: timedelta) -> int:
        """Delete the receipts and parts that no snapshot leads to and that are so old; returns how many.

        A writer that is at work has receipts that nothing names yet: `older_than` must be longer than any run takes.
        """
        before = datetime.now(UTC) - older_than
        # Listed first: what is named later is not deleted.
        stored = self.lake.catalog.stored_receipts(stream.name)
        needed = self._needed(stream)
        if needed is None:
            return 0
        gone = [file.base_name for file in stored if file.base_name not in needed and file.mtime < before]
        for name in gone:
            self.lake.catalog.delete_receipt(stream.name, name)
        return len(gone)

    def _write_all(self, stream: Stream, table: str, kind: PartKind) -> Parts:
        return self._write(stream, kind, self.ledger.part(stream.name, table, kind), ())

    def _write_files(self, stream: Stream, receipts: Sequence[AnyReceipt], before: Sequence[Part]) -> Parts:
        """Write a part for the files of these receipts, newest first, and merge with it the smaller ones before it."""
        told = [receipt for receipt in reversed(receipts) if isinstance(receipt, FilesReceipt)]
        rows = [vars(file) for receipt in told for file in receipt.files]
        new, parts = pa.Table.from_pylist(rows, schema=KINDS["files"][1]), list(before)
        # Each part is more than twice the next: they are few, and each row is written again a few times only.
        while rows and parts and parts[-1].rows <= 2 * len(new):
            last = self.lake.catalog.read_part(stream.name, parts.pop(), new.schema)
            if last is None:
                return self._write_all(stream, RAW_EVENTS, "files")
            new = pa.concat_tables([last, new])
        return self._write(stream, "files", new, parts)

    def _write(self, stream: Stream, kind: PartKind, rows: pa.Table, before: Sequence[Part]) -> Parts:
        if not len(rows):
            return {kind: tuple(before)}
        return {kind: (*before, self.lake.catalog.write_part(stream.name, f"{uuid4().hex}.parquet", rows))}

    def _last_words(self, stream: Stream, head: Head) -> tuple[list[AnyReceipt], Sequence[Part]] | None:
        """The receipts since the last checkpoint, newest first and it last, and its parts; None if one is lost."""
        receipts: list[AnyReceipt] = []
        for _, receipt in self.lake.catalog.receipts_from(stream.name, head.receipt):
            if receipt is None:
                return None
            receipts.append(receipt)
            if receipt.checkpoint is not None:
                return receipts, receipt.checkpoint.get("files", ())
        return receipts, ()

    def _since_checkpoint(self, stream: Stream, loaded: Table) -> Iterator[str]:
        """The names of main's receipts, newest first, down to the last checkpoint."""
        name: str | None = None
        for snapshot in ancestry(loaded):
            if summary(snapshot, "checkpoint"):
                return
            if found := summary(snapshot, "receipt"):
                yield (name := found)
        if name:
            yield from islice(self._chain(stream, name), 1, None)

    def _chain(self, stream: Stream, name: str | None) -> Iterator[str]:
        """A receipt and those before it, down to a checkpoint, with it."""
        for each, receipt in self.lake.catalog.receipts_from(stream.name, name):
            yield each
            if receipt and receipt.checkpoint is not None:
                return

    def _needed(self, stream: Stream) -> set[str] | None:
        """The receipts and parts that some snapshot leads to; None if there are too many to follow."""
        needed: set[str] = set()
        checkpoints: set[str] = set()
        for loaded in filter(None, (self.lake.catalog.load(stream.name, table) for table in ALL)):
            found = loaded.snapshots()
            needed |= {name for each in found for name in (summary(each, "receipt"), positions_receipt(each)) if name}
            checkpoints |= {name for each in found if (name := summary(each, "checkpoint"))}
            ids = {each.snapshot_id for each in found}
            for oldest in (each for each in found if each.parent_snapshot_id not in ids):
                chain = list(islice(self._chain(stream, summary(oldest, "receipt")), FAR))
                if len(chain) == FAR:
                    return None
                needed.update(chain)
                checkpoints.update(chain[-1:])
        return needed.union(*(self._parts_of(stream, name) for name in checkpoints))

    def _parts_of(self, stream: Stream, name: str) -> set[str]:
        parts = parts_of(self.lake.catalog.read_receipt(stream.name, name))
        return {part.name for some in parts.values() for part in some}
