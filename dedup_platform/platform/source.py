"""The door to what a stream reads: what waits there, how its ingest fares, and what people accept."""

from collections.abc import Iterable, Iterator
from typing import Any

from dedup_platform.errors import LostRecordsError, SourceError
from dedup_platform.ingest.attempts import Attempts
from dedup_platform.ingest.ingest import Ingest
from dedup_platform.ingest.kafka import PartitionOffsets
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.commits import Commit
from dedup_platform.ledger import Health
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.platform.context import Context
from dedup_platform.sources.sample import Sample, sampled_rows


class Source:
    """The sources of a platform's streams, each by the name of its stream."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ingest = Ingest(context.lake, context.ledger)
        self._attempts = Attempts(self._ingest, Health(lambda: context.ledger.engine), lambda: context.clock())

    def ingest(self, stream: str, patient: bool = False) -> list[Commit]:
        """Take in all that waits, batch after batch, whatever the state of the stream's ingest; notes how it went.

        With `patient`, a failure that may pass by itself is tried again, after pauses, until the circuit opens.
        """
        return self._attempts.ingest(self._context.stream(stream), lambda: self._batches(stream), patient)

    def waiting(self, stream: str) -> Waiting:
        """What an ingest would read now. No Spark; costs a listing."""
        self._context.ledger.sync(stream)
        return self._ingest.waiting(self._context.stream(stream), self._context.clock())

    def waiting_or_trouble(self, stream: str) -> tuple[Waiting | None, str | None]:
        """The same, or why the source cannot be asked."""
        try:
            return self.waiting(stream), None
        except (SourceError, LostRecordsError) as error:
            return None, str(error)

    def sample(self, stream: str) -> Sample:
        """Some of the records that wait, field by field; nothing if none waits. SourceError if it cannot be asked."""
        self._context.ledger.sync(stream)
        definition = self._context.stream(stream)
        return sampled_rows(definition, self._ingest.first_rows(definition, self._context.clock()))

    def beginnings(self, stream: str, size: int) -> Iterator[tuple[str, bytes]]:
        """The paths and the first bytes, unpacked, of a few files that wait. SourceError if one cannot be read."""
        self._context.ledger.sync(stream)
        return self._ingest.beginnings(self._context.stream(stream), self._context.clock(), size)

    def first_rows(self, stream: str, of_each: int) -> Iterator[dict[str, Any]]:
        """The first rows of `raw_events` that an ingest would append, `of_each` of a few files or partitions."""
        self._context.ledger.sync(stream)
        return self._ingest.first_rows(self._context.stream(stream), self._context.clock(), of_each)

    def has_read_files(self, stream: str) -> bool:
        """Whether any file was ever taken in. Does not ask the source."""
        self._context.ledger.sync(stream)
        return self._context.ledger.files_read(stream) > 0

    def look(self, stream: str) -> Waiting | None:
        """What waits, for whoever starts ingests by itself: whether the source can be asked is noted.

        None while nothing should be tried, and if the source cannot be asked: `health` tells why.
        """
        return self._attempts.look(self._context.stream(stream), lambda: self.waiting(stream))

    def health(self, stream: str) -> Circuit:
        """How a stream's ingest fares, and when it is tried again."""
        return self._attempts.health(self._context.stream(stream))

    def note_lost_run(self, stream: str, what: str) -> None:
        """Count an ingest as failed that could not say so itself, because its process died or never began."""
        self._attempts.note(self._context.stream(stream), "transient", what)

    def offsets(self, stream: str) -> list[PartitionOffsets]:
        """How far each partition of the stream's topic has been read. Asks the brokers; no Spark."""
        return self._ingest.offsets(self._context.stream(stream))

    def accept_files(self, stream: str, paths: Iterable[str]) -> Commit:
        """Let changed files be read again, as new generations, at the next ingest."""
        definition = self._context.prepare(stream)
        return self._context.work(self._ingest.accept_files, definition, list(paths), self._context.clock())

    def skip_files(self, stream: str, paths: Iterable[str]) -> Commit:
        """Have files that wait count as read, as they are now, though nothing of them was."""
        definition = self._context.prepare(stream)
        return self._context.work(self._ingest.skip_files, definition, list(paths), self._context.clock())

    def skip_offsets(self, stream: str, partition: int, offsets: range) -> Commit:
        """Have offsets of a topic, which wait, never be read."""
        definition = self._context.prepare(stream)
        return self._context.work(self._ingest.skip_offsets, definition, partition, offsets)

    def skipped(self, stream: str) -> list[str]:
        """What people had left out: paths of files, or offsets in words. Does not ask the source."""
        return self._ingest.skipped(self._context.stream(stream))

    def accept_batch(self, stream: str) -> Commit | None:
        """Let the batch that is held be taken in as it is, by the next ingest; None if none is held."""
        batch = self.health(stream).batch
        if not batch:
            return None
        definition = self._context.prepare(stream)
        return self._context.work(self._ingest.accept_batch, definition, batch, self._context.clock())

    def accept_losses(self, stream: str) -> Commit | None:
        """Let reading go on behind what the topic has lost; None if nothing is."""
        return self._context.work(self._ingest.accept_losses, self._context.prepare(stream))

    def _batches(self, stream: str) -> Iterator[Commit]:
        definition = self._context.prepare(stream)
        while commit := self._context.work(self._ingest.next_batch, definition, self._context.clock()):
            self._context.lineage.tell(definition)
            yield commit
