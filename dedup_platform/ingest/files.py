"""Takes in files: each is read whole, once for each generation of it, and a receipt says which."""

import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from pyspark.sql import functions as F

from dedup_platform import tables
from dedup_platform.errors import HeldBatchError, SourceChangedError, SourceError, UnknownFileError
from dedup_platform.ingest.append import Span
from dedup_platform.ingest.discovery import Generations, Look, judged, look_at_bucket, look_at_folder
from dedup_platform.ingest.intake import CELL_BYTES, Intake, buckets_for
from dedup_platform.ingest.one_by_one import Inputs
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import (
    ANY_GENERATION,
    Acceptance,
    FilesReceipt,
    ReadFile,
    SummaryValues,
    new_receipt_name,
)
from dedup_platform.lake.staged import Staged
from dedup_platform.ledger import Head, Ledger
from dedup_platform.sources.files import (
    SourceFile,
    beginning_of,
    changed_since_listed,
    files_of_group,
    grouped,
    is_little,
    read_files,
    read_group,
)
from dedup_platform.sources.listing import came_at
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.spark.workers import tasks_at_once
from dedup_platform.stream import Stream

_LOG = logging.getLogger(__name__)
_NAMED = 20
"""Files that a message names, at most."""


class FilesIntake(Intake):
    """Appends whole files to `raw_events`."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        super().__init__(lake, ledger)
        self._listed: dict[str, list[SourceFile]] = {}

    def waiting(self, stream: Stream, now: datetime) -> Waiting:
        """Compare the source with what has been read. Reads names, sizes and times only."""
        found = self._look(stream, now)
        newest = max((f"{file.modified.isoformat()} {file.etag}" for file, _ in found.files), default="")
        read = self.ledger.files_read(stream.name)
        return Waiting(
            items=tuple(file.path for file, _ in found.files),
            amount=f"{len(found.files):,} files",
            reasons=tuple(found.reasons),
            watermark=f"{read}+{len(found.files)} {newest}" if found.files else "",
            since=came_at(found.files[0][0]) if found.files else None,
            bytes=sum(file.size for file, _ in found.files),
        )

    def first_inputs(self, stream: Stream, now: datetime) -> list[Inputs]:
        """The first of the files that wait, one in the middle, and the last."""
        return [partial(files_of_group, stream, [[each]], s3=self._s3) for each in self._some(stream, now)]

    def beginnings(self, stream: Stream, now: datetime, size: int) -> Iterator[tuple[str, bytes]]:
        """Of the same files the paths and the first bytes, unpacked. SourceError if one cannot be read."""
        for file, _ in self._some(stream, now):
            yield file.path, beginning_of(stream, file, size, self._s3)

    def _some(self, stream: Stream, now: datetime) -> Generations:
        files = self._look(stream, now).files
        return [files[number] for number in dict.fromkeys((0, len(files) // 2, len(files) - 1))] if files else []

    def _look(self, stream: Stream, now: datetime, whole: bool = False) -> Look:
        if stream.files.s3:
            return look_at_bucket(stream, self.ledger, self._s3, now, whole)
        return look_at_folder(stream, self.ledger, now)

    @property
    def _s3(self) -> S3Access:
        return S3Access.of(self.lake.catalog.settings)

    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Read the next batch; None if nothing waits. Raises ConflictError if another ingest committed first."""
        heads = self._ready(stream, now)
        files = self._unread(stream, now)
        if not files:
            return None
        if not heads:
            self._create(stream, [file for file, _ in files])
            # Another ingest may have created them, and read these files: they are judged again.
            self._listed[stream.name] = [file for file, _ in files]
            return self.next_batch(stream, now)
        batch = _bounded(stream, files)
        commit = self._append(stream, heads[tables.RAW_EVENTS], batch)
        self._tell(stream, "files", len(batch), len(files) - len(batch))
        if stream.files.s3:
            self._listed[stream.name] = [file for file, _ in files[len(batch) :]]
        return commit

    def _unread(self, stream: Stream, now: datetime) -> Generations:
        """What can be read now: the rest of what was listed for the batch before, or what a new listing finds.

        An S3 bucket that holds many new files is listed once, not once for each of their batches. Whatever became of
        the files meanwhile, each is read as it was listed, or not at all.
        """
        listed = self._listed.pop(stream.name, [])
        return judged(stream, self.ledger, listed).files or self._look(stream, now).files

    def accept(self, stream: Stream, paths: Iterable[str], now: datetime) -> Commit:
        """Record in the lake that these changed files may be read again, as a new generation.

        So may those that were skipped, and those of which it is not known what they held, since what told it was lost.
        """
        heads = self._ready(stream, now)
        look = self._look(stream, now, whole=True)
        changed = {file.path: file.etag for file in look.changed}
        known = changed | {file.path: file.etag for file in [*look.doubtful, *look.skipped]}
        read = self.ledger.files(stream.name, known)
        accepted = [Acceptance(path, known[path], read[path].generation + 1) for path in paths if path in known]
        if unknown := sorted(set(paths) - known.keys()):
            raise UnknownFileError(
                f"{stream.name}: {', '.join(unknown)} did not change after being read; changed: "
                f"{', '.join(sorted(changed)) or 'none'}"
            )
        commit = self._commit_positions(
            stream, heads[tables.RAW_EVENTS], FilesReceipt(reason="accepted", accepted=tuple(accepted))
        )
        # A listing that starts behind them would not find them.
        self.ledger.keep_listing(stream.name, None)
        return commit

    def skip(self, stream: Stream, paths: Sequence[str], now: datetime) -> Commit:
        """Record in the lake that these files count as read, as they are now, though nothing of them was.

        UnknownFileError if one does not wait: it is read already, or not there.
        """
        heads = self._ready(stream, now)
        look = self._look(stream, now, whole=True)
        waiting = {file.path: (file, generation) for file, generation in look.files}
        read = self.ledger.files(stream.name, [file.path for file in look.changed])
        waiting |= {file.path: (file, read[file.path].generation + 1) for file in look.changed}
        if unknown := sorted(set(paths) - waiting.keys()):
            raise UnknownFileError(
                f"{stream.name}: {', '.join(unknown)} does not wait to be read; what waits: "
                f"{', '.join(sorted(waiting)[:_NAMED]) or 'nothing'}"
            )
        if not heads:
            self._create(stream, [file for path, (file, _) in waiting.items() if path not in paths])
            heads = self._ready(stream, now)
        files = tuple(
            ReadFile(path, generation, file.size, file.etag, 0, skipped=True)
            for path, (file, generation) in waiting.items()
            if path in paths
        )
        receipt = FilesReceipt(reason="skipped", files=files)
        return self._commit_positions(stream, heads[tables.RAW_EVENTS], receipt)

    def skipped(self, stream: Stream) -> list[str]:
        """The paths of files that people had left out."""
        return self.ledger.skipped(stream.name)

    def change_token(self, stream: Stream) -> str:
        """The newest receipt: it tells of files that were read, and of those that people accepted."""
        head = self.ledger.sync(stream.name).get(tables.RAW_EVENTS)
        return (head and head.receipt) or ""

    def accept_batch(self, stream: Stream, batch: str, now: datetime) -> Commit:
        """Record in the lake that these files may be taken in, whatever share of their records is rejected."""
        heads = self._ready(stream, now)
        accepted = tuple(Acceptance(**each) for each in json.loads(batch))
        receipt = FilesReceipt(reason="batch accepted", accepted=accepted)
        return self._commit_positions(stream, heads[tables.RAW_EVENTS], receipt)

    def _check_share(self, stream: Stream, files: Generations, spans: Iterable[Span]) -> None:
        """Refuse a batch too much of which would be rejected, unless people accepted the files that it is in."""
        known = self.ledger.accepted(stream.name)
        batch = [Acceptance(file.path, file.etag, generation) for file, generation in files]
        accepted = {
            (each.path, each.generation)
            for each in batch
            if each in known or replace(each, generation=ANY_GENERATION) in known
        }
        if reason := self._hold_back(stream, spans, accepted):
            raise HeldBatchError(reason, json.dumps([vars(each) for each in batch]))

    def _ready(self, stream: Stream, now: datetime) -> dict[str, Head]:
        heads = self.ledger.sync(stream.name)
        if heads and not heads[tables.RAW_EVENTS].complete:
            self._derive_positions(stream, heads[tables.RAW_EVENTS], now)
            heads = self.ledger.sync(stream.name)
        return heads

    def _create(self, stream: Stream, files: Sequence[SourceFile]) -> None:
        self.lake.create(stream, stream.buckets or self._choose_buckets(stream, files))

    def _choose_buckets(self, stream: Stream, files: Sequence[SourceFile]) -> int:
        """The fewest buckets, a power of two, that keep the cells of an average partition below `CELL_BYTES`."""
        size = sum(file.size for file in files)
        if size <= CELL_BYTES:
            return 1
        first = read_files(self.lake.spark(), stream, [(file, 0) for file in files[:100]], self._s3)
        length = int(stream.partitions.length.total_seconds())
        partitions = first.select(F.floor(F.unix_seconds("event_time") / length)).distinct().count()
        share = sum(file.size for file in files[:100])
        return buckets_for(share / max(partitions, 1))

    def _append(self, stream: Stream, head: Head, files: Generations) -> Commit:
        started = time.monotonic()
        name = new_receipt_name()
        staged, spans = self._stage_files(stream, head, files, name)
        try:
            records = self._count_records(staged, spans) if staged else {}
            unsettled = {file.path for file in self._changed(files, is_read=staged is not None)}
            if not unsettled:
                self._check_share(stream, files, spans)
        except Exception:
            self._discard(staged)
            raise
        if staged is None or unsettled:
            self._discard(staged)
            return self._append(stream, head, _without(stream, files, unsettled))
        read = tuple(_position(file, generation, records) for file, generation in files)
        self.lake.catalog.write_receipt(
            stream.name, FilesReceipt(name=name, reason="ingest", files=read, previous=head.receipt)
        )
        self.lake.publish(staged)
        return self._commit(stream, staged, f"{len(files)} files", started, spans)

    def _stage_files(
        self, stream: Stream, head: Head, files: Generations, receipt: str
    ) -> tuple[Staged | None, list[Span]]:
        """The files' records, written but not published; None if a file could not be read as it was listed."""
        groups = [files] if is_little(files) else grouped(files, tasks_at_once(self.lake.spark()))
        read = partial(read_group, stream, groups, s3=self._s3)
        inputs = partial(files_of_group, stream, groups, s3=self._s3)
        try:
            return self._stage(stream, head, len(groups), read, inputs, {"receipt": receipt})
        except (SourceError, SourceChangedError):
            if self._changed(files, is_read=False):
                return None, []
            raise

    def _changed(self, files: Generations, is_read: bool) -> list[SourceFile]:
        # What was read from S3 was one version from its beginning to its end, the one that was listed.
        asked = [file for file, _ in files if not (is_read and file.is_on_s3)]
        return changed_since_listed(asked, self._s3)

    def _discard(self, staged: Staged | None) -> None:
        if staged:
            self.lake.discard(staged)

    def _derive_positions(self, stream: Stream, head: Head, now: datetime) -> None:
        """Rule 1: if receipts are lost, the coordinates in raw tell what was read, never zero."""
        columns = ("source", "source_partition")
        records: Counter[tuple[str, int]] = Counter()
        for rows in self.lake.batches(stream, tables.RAW_EVENTS, head.snapshot_id, columns):
            for path, generation, count in rows.group_by(columns).len().iter_rows():
                records[path, generation] += count
        known = {(each.path, each.generation): each.etag for each in self.ledger.files(stream.name).values()}
        # That the others hold what they held is taken on trust, so that it is seen at least if they change from now on.
        listed = {file.path: file.etag for file, _ in self._look(stream, now, whole=True).files}
        files = tuple(
            ReadFile(path, generation, None, known.get((path, generation)) or listed.get(path), count)
            for (path, generation), count in records.items()
        )
        self._commit_positions(stream, head, FilesReceipt(reason="derived positions", files=files, derived=True))

    def _commit_positions(self, stream: Stream, head: Head, receipt: FilesReceipt) -> Commit:
        started = time.monotonic()
        if not receipt.derived:
            receipt = receipt.model_copy(update={"previous": head.receipt})
        properties: SummaryValues = {"receipt": receipt.name, "reason": receipt.reason}
        staged = self.lake.stage_nothing(stream, tables.RAW_EVENTS, head.snapshot_id, properties)
        self.lake.catalog.write_receipt(stream.name, receipt)
        self.lake.publish(staged)
        return self._commit(stream, staged, "positions", started)


def _bounded(stream: Stream, files: Generations) -> Generations:
    """The first files that fit a batch; one file alone always does."""
    batch: Generations = []
    size = 0
    for file, generation in files[: stream.files.max_batch_files]:
        size += file.size
        if batch and size > stream.source.max_batch_bytes:
            break
        batch.append((file, generation))
    return batch


def _without(stream: Stream, files: Generations, unsettled: Collection[str]) -> Generations:
    """The files that can be read; those that are being written to must not hold up the others."""
    rest = [(file, generation) for file, generation in files if file.path not in unsettled]
    what = f"{stream.name}: {', '.join(sorted(unsettled))} changed or vanished while being read"
    if not rest or not unsettled:
        raise SourceChangedError(f"{what}; nothing of it was taken in. Run again when its writer is done.")
    _LOG.warning("%s; left for a later run", what)
    return rest


def _position(file: SourceFile, generation: int, records: dict[tuple[str, int], int]) -> ReadFile:
    return ReadFile(file.path, generation, file.size, file.etag, records.get((file.path, generation), 0))
