"""The whole platform behind one door: what Dagster's assets, the command line and tests call."""

import gc
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from dedup_platform import tables
from dedup_platform.errors import LostRecordsError, SourceError, UnknownStreamError
from dedup_platform.ingest import Attempts, Ingest, PartitionOffsets, Waiting
from dedup_platform.lake import Lakehouse, snapshots
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.commits import Commit
from dedup_platform.ledger import Health, Ledger, TableSize
from dedup_platform.maintenance.buckets import OnProgress, Rebucketing
from dedup_platform.maintenance.upkeep import Maintenance, Upkeep
from dedup_platform.planning import planner
from dedup_platform.planning.cells import reach
from dedup_platform.planning.circuit_breaker import Circuit
from dedup_platform.planning.planner import Policy, TablePlan
from dedup_platform.recompute.build import Recompute
from dedup_platform.replay.rejected import COLUMNS, Outcome, ReasonCount, Rejected, RejectedRecord
from dedup_platform.replay.rewrite import Choice
from dedup_platform.retries import retry_on_conflict
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.settings import Settings
from dedup_platform.spark.connect import translate_connect_errors
from dedup_platform.stream import KafkaSource, Stream
from dedup_platform.verification import verify

EVERY = Choice()
"""All rejected records."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class TableStatus:
    """One table in numbers; all from metadata."""

    table: str
    snapshot_id: int
    rows: int
    cells: int
    files: int
    bytes: int
    stale_cells: int


@dataclass(frozen=True)
class Status:
    """A stream in numbers; `tables` is empty before anything was taken in."""

    stream: str
    tables: tuple[TableStatus, ...]
    files_read: int
    records_read: int
    rejected: int
    waiting: Waiting | None
    """None if the source cannot be asked; `trouble` is why."""
    trouble: str | None
    health: Circuit
    """How the stream's ingest fares."""


def utc_now() -> datetime:
    """The clock on the wall."""
    return datetime.now(UTC)


class Platform:
    """The streams of one deployment and all that can be done with them. Cheap to open: Spark starts when needed."""

    def __init__(
        self,
        settings: Settings,
        streams: Mapping[str, Stream],
        spark: Callable[[], SparkSession],
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.settings = settings
        self.streams = dict(streams)
        self.clock = clock
        self.lake = Lakehouse(Catalog(settings), cache(spark))
        self.ledger = Ledger(settings, self.lake.catalog)
        self._ingest = Ingest(self.lake, self.ledger)
        self._attempts = Attempts(self._ingest, Health(lambda: self.ledger.engine), lambda: self.clock())
        self._recompute = Recompute(self.lake, self.ledger)
        self._maintenance = Maintenance(self.lake, self.ledger)
        self._rebucketing = Rebucketing(self.lake, self.ledger)
        self._rejected = Rejected(self.lake, self.ledger)

    @classmethod
    def open(
        cls,
        settings: Settings,
        streams: Mapping[str, Stream],
        spark: Callable[[], SparkSession],
        clock: Callable[[], datetime] = utc_now,
    ) -> "Platform":
        """The platform of these settings and streams."""
        return cls(settings, streams, spark, clock)

    def stream(self, name: str) -> Stream:
        """A stream by its name; raises UnknownStreamError."""
        if name not in self.streams:
            raise UnknownStreamError(name, self.streams)
        return self.streams[name]

    def ingest(self, stream: str, patient: bool = False) -> list[Commit]:
        """Take in all that waits, batch after batch, whatever the state of the stream's ingest; notes how it went.

        With `patient`, a failure that may pass by itself is tried again, after pauses, until the circuit opens.
        """
        return self._attempts.ingest(self.stream(stream), lambda: self._batches(stream), patient)

    def look(self, stream: str) -> Waiting | None:
        """What waits at the source, for whoever starts ingests by itself: whether it can be asked is noted.

        None while nothing should be tried, and if the source cannot be asked: `health` tells why.
        """
        return self._attempts.look(self.stream(stream), lambda: self.waiting(stream))

    def health(self, stream: str) -> Circuit:
        """How a stream's ingest fares, and when it is tried again."""
        return self._attempts.health(self.stream(stream))

    def note_lost_run(self, stream: str, what: str) -> None:
        """Count an ingest as failed that could not say so itself, because its process died or never began."""
        self._attempts.note(self.stream(stream), "transient", what)

    def accept_batch(self, stream: str) -> Commit | None:
        """Let the batch that is held be taken in as it is, by the next ingest; None if none is held."""
        batch = self.health(stream).batch
        if not batch:
            return None
        return self._do(self._ingest.accept_batch, self._prepare(stream), batch, self.clock())

    def accept(self, stream: str, paths: Iterable[str]) -> Commit:
        """Let changed files be read again, as new generations, at the next ingest."""
        return self._do(self._ingest.accept_files, self._prepare(stream), list(paths), self.clock())

    def accept_losses(self, stream: str) -> Commit | None:
        """Let reading go on behind what the topic has lost; None if nothing is."""
        return self._do(self._ingest.accept_losses, self._prepare(stream))

    def offsets(self, stream: str) -> list[PartitionOffsets]:
        """How far each partition of the stream's topic has been read. Asks the brokers; no Spark."""
        return self._ingest.offsets(self.stream(stream))

    def plan(self, stream: str, every_run: bool = False) -> list[TablePlan]:
        """What is stale in each derived table and the runs that the policy asks for. Runs nothing, needs no Spark.

        With `every_run`, for whoever may have to pass some over, they are as many as would repair all that is ready.
        """
        definition = self.stream(stream)
        self.lake.check(definition)
        if not self.ledger.sync(stream):
            return []
        return [self._plan(definition, table, every_run) for table in tables.DERIVED]

    def recompute(self, stream: str, table: str, partitions: Iterable[int]) -> Commit:
        """Rebuild whole partitions of a derived table, widened to what is linked to them."""
        return self._do(self._recompute.whole, self._prepare(stream), table, list(partitions))

    def recompute_stale(self, stream: str, table: str, partitions: Iterable[int] | None = None) -> Commit:
        """Rebuild the stale cells of a derived table, all or those of some partitions, widened to what is linked."""
        return self._recompute_stale(self._prepare(stream), table, partitions)

    def repair(self, stream: str) -> list[Commit]:
        """Rebuild all that is stale, table by table, until nothing is."""
        return self._repair(self._prepare(stream))

    def waiting(self, stream: str) -> Waiting:
        """What an ingest would read now. No Spark; costs a listing."""
        self.ledger.sync(stream)
        return self._ingest.waiting(self.stream(stream), self.clock())

    def status(self, stream: str) -> Status:
        """The stream in numbers, from metadata alone."""
        plans = {plan.table: plan for plan in self.plan(stream)}
        heads = self.ledger.sync(stream)
        sizes = self.ledger.totals(stream)
        found = []
        for table in tables.ALL if heads else ():
            size = sizes.get(table, TableSize())
            found.append(
                TableStatus(
                    table=table,
                    snapshot_id=heads[table].snapshot_id,
                    rows=self.rows(stream, table),
                    cells=size.cells,
                    files=size.files,
                    bytes=size.bytes,
                    stale_cells=len(plans[table].stale) if table in plans else 0,
                )
            )
        waiting, trouble = self._waiting_or_trouble(stream)
        return Status(
            stream=stream,
            tables=tuple(found),
            files_read=self.ledger.files_read(stream),
            records_read=self._records_read(stream),
            rejected=self.count_rejected(stream),
            waiting=waiting,
            trouble=trouble,
            health=self.health(stream),
        )

    def _waiting_or_trouble(self, stream: str) -> tuple[Waiting | None, str | None]:
        try:
            return self.waiting(stream), None
        except (SourceError, LostRecordsError) as error:
            return None, str(error)

    def _records_read(self, stream: str) -> int:
        # Offsets need not hold records, so of a topic only raw itself can tell.
        is_topic = isinstance(self.stream(stream).source, KafkaSource)
        return self.rows(stream, tables.RAW_EVENTS) if is_topic else self.ledger.records_read(stream)

    def rows(self, stream: str, table: str) -> int:
        """How many rows a table has, by its newest snapshot's summary."""
        loaded = self.lake.catalog.load(stream, table)
        return snapshots.total_rows(loaded) if loaded else 0

    def read(self, stream: str, table: str) -> DataFrame:
        """A table's current rows. Events and duplicates are the pair of snapshots that belong together."""
        definition = self.stream(stream)
        return self.lake.read(definition, table, self.lake.current(definition, table))

    def count_rejected(self, stream: str) -> int:
        """How many records are rejected, dropped ones among them; from metadata alone."""
        if not self.ledger.sync(stream):
            return 0
        in_cells = self.ledger.totals(stream).get(tables.RAW_EVENTS, TableSize()).rows
        return self.rows(stream, tables.RAW_EVENTS) - in_cells

    def rejected(self, stream: str) -> DataFrame:
        """The rejected records: coordinates, arrival, reason, payload and what decoding it takes."""
        return self.read(stream, tables.RAW_EVENTS).where("event_time is null").select(*COLUMNS)

    def rejected_reasons(self, stream: str, choice: Choice = EVERY) -> list[ReasonCount]:
        """The chosen rejected records, counted by reason, the most frequent first. No Spark."""
        return self._rejected.reasons(self.stream(stream), choice)

    def rejected_records(self, stream: str, choice: Choice = EVERY, limit: int = 20) -> list[RejectedRecord]:
        """The first of the chosen rejected records in arrival order, with the beginning of each payload. No Spark."""
        return self._rejected.first(self.stream(stream), choice, limit)

    def rejected_record(self, stream: str, source: str, partition: int, offset: int, index: int) -> RejectedRecord:
        """One rejected record by its coordinates, whole. No Spark. Raises UnknownRecordError."""
        return self._rejected.record(self.stream(stream), (source, partition, offset, index))

    def rejected_in(self, stream: str, snapshot_ids: Iterable[int]) -> Mapping[str, int]:
        """How many rejected records some snapshots of `raw_events` brought, by reason; reads only what these added."""
        return self._rejected.added_by_reason(self.stream(stream), snapshot_ids)

    def newest_batch(self, stream: str) -> int | None:
        """The snapshot of `raw_events` of the newest ingest that brought records; None before the first one."""
        return self._rejected.newest_batch(self.stream(stream))

    def replay(self, stream: str, choice: Choice = EVERY, limit: int | None = None) -> Outcome:
        """Decode chosen rejected records again with today's stream file; what can be an event now becomes one.

        One commit, none if nothing changes. `limit`: only the first ones in arrival order. The derived tables are not
        touched; `repair` rebuilds the cells that got rows.
        """
        return self._do(self._rejected.replay, self._prepare(stream), choice, limit)

    def drop(self, stream: str, choice: Choice = EVERY, limit: int | None = None) -> Outcome:
        """Take the payloads from chosen rejected records for good; the records stay counted, as `dropped:<reason>`."""
        return self._do(self._rejected.drop, self._prepare(stream), choice, limit)

    def redecode(self, stream: str, partitions: Iterable[int]) -> Outcome:
        """Decode the events of some partitions again with today's stream file; they may move or become rejected.

        One commit, none if nothing changes. Every `arrival_time` stays.
        """
        return self._do(self._rejected.redecode, self._prepare(stream), list(partitions))

    def verify(self, stream: str) -> list[str]:
        """Recompute everything from raw and compare row for row: the first differences, none if all is equal."""
        return self._do(verify.differences, self.lake, self.ledger, self.stream(stream))

    def _do(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work that needs Spark, again if somebody else committed first."""
        with translate_connect_errors(self.settings):
            return retry_on_conflict(step)(*args, **kwargs)

    def maintain(self, stream: str, only: Collection[str] = tables.ALL) -> list[Upkeep]:
        """Compact small files, expire old snapshots and remove orphans, in all tables or only some; no row changes.

        Empty before anything was taken in.
        """
        definition = self.stream(stream)
        self.lake.check(definition)
        self.lake.discard_abandoned(definition)
        if not self.ledger.sync(stream):
            return []
        downstream_first = [table for table in reversed(tables.ALL) if table in only]
        return [self._maintenance.maintain(definition, table, self.clock()) for table in downstream_first]

    def change_buckets(self, stream: str, buckets: int, tell: OnProgress = lambda *_: None) -> bool:
        """Give all tables of a stream another number of buckets, a power of two; no row changes. False if they have it.

        Repairs what is stale first. Whatever the stream file says of `buckets` does not matter. Called again, it goes
        on where it was killed. Raises ConflictError if writers came in between again and again.
        """
        definition = self.stream(stream).model_copy(update={"buckets": 0})
        if not self.ledger.sync(stream):
            return False
        retry_on_conflict(self.lake.add_columns)(definition)
        return self._do(self._rebucketing.change, definition, buckets, lambda: self._repair(definition), tell)

    def _batches(self, stream: str) -> Iterator[Commit]:
        definition = self._prepare(stream)
        while commit := self._do(self._ingest.next_batch, definition, self.clock()):
            yield commit

    def _prepare(self, stream: str) -> Stream:
        definition = self.stream(stream)
        retry_on_conflict(self.lake.evolve)(definition)
        self.lake.discard_abandoned(definition)
        return definition

    def _repair(self, stream: Stream) -> list[Commit]:
        commits = [self._recompute_stale(stream, table) for table in tables.DERIVED]
        return [commit for commit in commits if commit.snapshot_id is not None]

    def _recompute_stale(self, stream: Stream, table: str, partitions: Iterable[int] | None = None) -> Commit:
        chosen = None if partitions is None else frozenset(partitions)
        return self._do(self._recompute.stale, stream, table, chosen)

    def _plan(self, stream: Stream, table: str, every_run: bool = False) -> TablePlan:
        with _collector_paused():
            facts = self.ledger.facts(stream, table, fingerprint(stream, table))
            policy = _policy(stream, table)
            if every_run:
                policy = replace(policy, max_runs_per_tick=sys.maxsize)
            return planner.plan(facts, policy, self.clock())


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Python's collector of cycles off: a plan makes none, but so many objects that looking at them costs as much.

    Where threads plan at the same time, the one that paused it lets it go on, and the others are only slower.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _policy(stream: Stream, table: str) -> Policy:
    late = stream.late
    first = table == tables.DEDUPLICATED_EVENTS
    return Policy(
        length=stream.partitions.length,
        grace=late.grace,
        # What is built from rows that have settled already need not wait again.
        settle=late.settle if first else timedelta(0),
        max_delay=late.max_delay if first else timedelta(0),
        min_rows=late.min_rows if first else 0,
        max_partitions_per_run=late.max_partitions_per_run,
        max_runs_per_tick=late.max_runs_per_tick,
        reach=reach(stream.deduplicate.window, stream.partitions.length) if first else 0,
        whole_buckets=table == tables.SESSIONS,
    )
