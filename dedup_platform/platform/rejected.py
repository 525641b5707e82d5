"""The door to the records that could not become events."""

from collections.abc import Iterable, Mapping

from pyspark.sql import DataFrame

from dedup_platform.ledger import TableSize
from dedup_platform.platform.context import Context
from dedup_platform.replay.rejected import COLUMNS, Outcome, ReasonCount, Rejected, RejectedRecord
from dedup_platform.replay.rewrite import Choice
from dedup_platform.tables import RAW_EVENTS

EVERY = Choice()
"""All rejected records."""


class RejectedRecords:
    """The rejected records of a platform's streams. Only what changes or gives rows needs Spark."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rejected = Rejected(context.lake, context.ledger)

    def count(self, stream: str) -> int:
        """How many there are, dropped ones among them; from metadata alone."""
        if not self._context.ledger.sync(self._context.stream(stream).name):
            return 0
        in_cells = self._context.ledger.totals(stream).get(RAW_EVENTS, TableSize()).rows
        return self._context.rows(stream, RAW_EVENTS) - in_cells

    def read(self, stream: str) -> DataFrame:
        """All of them: coordinates, arrival, reason, payload and what decoding it takes."""
        return self._context.read(stream, RAW_EVENTS).where("event_time is null").select(*COLUMNS)

    def reasons(self, stream: str, choice: Choice = EVERY) -> list[ReasonCount]:
        """The chosen ones, counted by reason, the most frequent first."""
        return self._rejected.reasons(self._context.stream(stream), choice)

    def first(self, stream: str, choice: Choice = EVERY, limit: int = 20) -> list[RejectedRecord]:
        """The first of the chosen ones in arrival order, with the beginning of each payload."""
        return self._rejected.first(self._context.stream(stream), choice, limit)

    def record(self, stream: str, source: str, partition: int, offset: int, index: int) -> RejectedRecord:
        """One by its coordinates, whole. Raises UnknownRecordError."""
        return self._rejected.record(self._context.stream(stream), (source, partition, offset, index))

    def added_by_reason(self, stream: str, snapshot_ids: Iterable[int]) -> Mapping[str, int]:
        """How many of them some snapshots of `raw_events` brought, by reason; reads only what these added."""
        return self._rejected.added_by_reason(self._context.stream(stream), snapshot_ids)

    def newest_batch(self, stream: str) -> int | None:
        """The snapshot of `raw_events` of the newest ingest that brought records; None before the first one."""
        return self._rejected.newest_batch(self._context.stream(stream))

    def replay(self, stream: str, choice: Choice = EVERY, limit: int | None = None) -> Outcome:
        """Decode chosen ones again with today's stream file; what can be an event now becomes one.

        One commit, none if nothing changes. `limit`: only the first ones in arrival order. The derived tables are not
        touched; `repair` rebuilds the cells that got rows.
        """
        return self._context.work(self._rejected.replay, self._context.prepare(stream), choice, limit)

    def drop(self, stream: str, choice: Choice = EVERY, limit: int | None = None) -> Outcome:
        """Take the payloads from chosen ones for good; the records stay counted, as `dropped:<reason>`."""
        return self._context.work(self._rejected.drop, self._context.prepare(stream), choice, limit)

    def redecode(self, stream: str, partitions: Iterable[int]) -> Outcome:
        """Decode the events of some partitions again with today's stream file; they may move or become rejected.

        One commit, none if nothing changes. Every `arrival_time` stays. Once all partitions were, no
        record counts as taken in by an earlier stream file.
        """
        definition, chosen = self._context.prepare(stream), list(partitions)
        all_there = self._context.ledger.arrivals(stream).keys() if self._context.ledger.sync(stream) else ()
        outcome = self._context.work(self._rejected.redecode, definition, chosen)
        if all_there and set(chosen) >= set(all_there):
            self._context.lake.forget_definitions(definition)
        return outcome
