"""One door to the sources of all kinds."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import Any

from dedup_platform.ingest.files import FilesIntake
from dedup_platform.ingest.isolation import read_apart
from dedup_platform.ingest.kafka import KafkaIntake, PartitionOffsets
from dedup_platform.ingest.one_by_one import Work
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.ledger import Ledger
from dedup_platform.stream import KafkaSource, Stream

_ROWS_OF_EACH = 300


class Ingest:
    """Appends what waits at a stream's source to `raw_events`, in bounded batches."""

    def __init__(self, lake: Lakehouse, ledger: Ledger) -> None:
        self._files = FilesIntake(lake, ledger)
        self._kafka = KafkaIntake(lake, ledger)

    def waiting(self, stream: Stream, now: datetime) -> Waiting:
        """What an ingest would read now. Starts no Spark. SourceError if the source cannot be asked."""
        return self._of(stream).waiting(stream, now)

    def beginnings(self, stream: Stream, now: datetime, size: int) -> Iterator[tuple[str, bytes]]:
        """Of a few of the files that wait the paths and the first bytes, unpacked. SourceError as for `waiting`."""
        return self._files.beginnings(stream, now, size)

    def first_rows(self, stream: Stream, now: datetime, of_each: int = _ROWS_OF_EACH) -> Iterator[dict[str, Any]]:
        """Some of the rows that an ingest would append now, `of_each` of a few files or partitions. Starts no Spark.

        Read in lone processes, as what ends a process is. SourceError as for `waiting`.
        """
        intake = self._of(stream)
        for inputs in intake.first_inputs(stream, now):
            # What follows the first frame is not read.
            with closing(read_apart(Work(stream, inputs, 0, intake.limits))) as frames:
                for frame in islice(frames, 1):
                    yield from frame.head(of_each).iter_rows(named=True)

    def next_batch(self, stream: Stream, now: datetime) -> Commit | None:
        """Read the next batch; None if nothing waits. Raises ConflictError if another ingest committed first."""
        return self._of(stream).next_batch(stream, now)

    def accept_files(self, stream: Stream, paths: Iterable[str], now: datetime) -> Commit:
        """Record in the lake that these changed files may be read again, as a new generation."""
        return self._files.accept(stream, paths, now)

    def skip_files(self, stream: Stream, paths: Sequence[str], now: datetime) -> Commit:
        """Record in the lake that these files count as read, though nothing of them was."""
        return self._files.skip(stream, paths, now)

    def skip_offsets(self, stream: Stream, partition: int, offsets: range) -> Commit:
        """Record in the lake that these offsets of a topic are never to be read."""
        return self._kafka.skip(stream, partition, offsets)

    def skipped(self, stream: Stream) -> list[str]:
        """What people had left out, in words. Does not ask the source."""
        return self._of(stream).skipped(stream)

    def accept_losses(self, stream: Stream) -> Commit | None:
        """Record in the lake that what the topic has lost is lost; None if nothing is."""
        return self._kafka.accept(stream)

    def accept_batch(self, stream: Stream, batch: str, now: datetime) -> Commit:
        """Record in the lake that a batch that was held (`HeldBatchError.batch`) may be taken in as it is."""
        return self._of(stream).accept_batch(stream, batch, now)

    def change_token(self, stream: Stream) -> str:
        """A text that differs once more was read, or accepted by a person. Does not ask the source."""
        return self._of(stream).change_token(stream)

    def offsets(self, stream: Stream) -> list[PartitionOffsets]:
        """How far each partition of a topic has been read."""
        return self._kafka.offsets(stream)

    def _of(self, stream: Stream) -> FilesIntake | KafkaIntake:
        return self._kafka if isinstance(stream.source, KafkaSource) else self._files
