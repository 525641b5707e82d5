"""The whole platform behind one object: what Dagster's assets, the command line and tests call.

What is done to a stream's tables is here; `platform.source` is the door to what it reads, `platform.rejected` to what
could not become events, `platform.sinks` to copies elsewhere, `platform.explained` to why rows are as they are,
`platform.figures` to what each partition holds, and `platform.health` to whether all is well.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial, reduce

from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.changes import Aliases, Audit, Audited, Choice, FeedCommit, Feeds, Published, Publisher
from dedup_platform.changes.reading import newest_position
from dedup_platform.lake.aliases import is_alias_behind
from dedup_platform.lake.commits import Commit
from dedup_platform.lake.feeds import is_behind
from dedup_platform.ledger import TableSize
from dedup_platform.maintenance.buckets import OnProgress, Rebucketing
from dedup_platform.maintenance.feeds import maintain_feed
from dedup_platform.maintenance.upkeep import Maintenance, Upkeep
from dedup_platform.planning import planner
from dedup_platform.planning.claims import ALL, Partitions
from dedup_platform.planning.completeness import Completeness, completeness
from dedup_platform.planning.moments import Clock, utc_now
from dedup_platform.planning.planner import Policy, TablePlan
from dedup_platform.platform.claims import Claims, Turn
from dedup_platform.platform.context import Context
from dedup_platform.platform.explained import Explanations
from dedup_platform.platform.figures import Figures
from dedup_platform.platform.file_changes import StreamFile
from dedup_platform.platform.health import StreamHealth, oldest_stale
from dedup_platform.platform.points import Points
from dedup_platform.platform.rebuilding import Rebuilding
from dedup_platform.platform.rejected import EVERY, RejectedRecords
from dedup_platform.platform.sinks import Sinks
from dedup_platform.platform.source import Source
from dedup_platform.platform.status import FeedStatus, SinkStatus, Status, TableStatus
from dedup_platform.retries import retry_on_conflict
from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.settings import Settings
from dedup_platform.sinks import Position
from dedup_platform.stream import KafkaSource, Stream
from dedup_platform.verification import verify

__all__ = ["EVERY", "Choice", "FeedStatus", "Platform", "SinkStatus", "Status", "TableStatus"]


class Platform(Context):
    """The streams of one deployment and all that can be done with them. Cheap to open: Spark starts when needed."""

    def __init__(
        self,
        settings: Settings,
        streams: Mapping[str, Stream],
        spark: Callable[[], SparkSession],
        clock: Clock = utc_now,
    ) -> None:
        super().__init__(settings, streams, spark, clock)
        self.source = Source(self)
        self.rejected = RejectedRecords(self)
        self.points = Points(self)
        self.explained = Explanations(self)
        self.figures = Figures(self)
        self.stream_file = StreamFile(self)
        self._feeds, self._aliases = Feeds(self.lake), Aliases(self.lake)
        self._audit = Audit(self.lake)
        self._publisher = Publisher(self.lake, settings)
        self.claims = Claims(self)
        self._rebuilding = Rebuilding(self, self.claims)
        self.sinks = Sinks(self)
        self.health = StreamHealth(self)
        self._maintenance = Maintenance(self.lake, self.ledger)
        self._rebucketing = Rebucketing(self.lake, self.ledger)

    def ingest(self, stream: str, patient: bool = False) -> list[Commit]:
        """Take in all that waits at the source: `platform.source.ingest`."""
        return self.source.ingest(stream, patient)

    def plan(self, stream: str, every_run: bool = False) -> list[TablePlan]:
        """What is stale in each derived table and the runs that the policy asks for. Runs nothing, needs no Spark.

        With `every_run`, for whoever may have to pass some over, they are as many as would repair all that is ready.
        """
        definition = self.complete(stream)
        if not self.ledger.sync(stream):
            return []
        return [self._plan(definition, table, every_run) for table in tables.derived(definition)]

    def recompute(self, stream: str, table: str, partitions: Iterable[int]) -> Commit:
        """Rebuild whole partitions of a derived table, widened to what is linked to them."""
        return self._rebuilding.whole(self.prepare(stream), table, list(partitions))

    def recompute_stale(self, stream: str, table: str, partitions: Iterable[int] | None = None) -> Commit:
        """Rebuild the stale cells of a derived table, all or those of some partitions, widened to what is linked."""
        asked = ALL if partitions is None else Partitions(frozenset(partitions))
        return self._rebuilding.stale(self.prepare(stream), table, asked)

    def repair(self, stream: str) -> list[Commit]:
        """Rebuild all that is stale and nobody else is at, table by table."""
        return self._repair(self.prepare(stream))

    def publish_changes(self, stream: str, only: Collection[str] | None = None) -> list[FeedCommit]:
        """Bring what follows a stream's tables up to the newest commits: feeds, and the aliases of sessions' old ids.

        Each version is published once. Empty before anything was taken in.
        """
        return self._publish_changes(stream, only)

    def publish(self, stream: str, sink: str, retry: bool = False, again: Choice | None = None) -> Published:
        """Bring one sink, and the feed that it follows, up to the newest commit; SinkError if the store fails.

        With `retry` rows that the store refused are tried again; those of `again` are written once more.
        """
        definition = self.stream(stream)

        def bring(turn: Turn) -> Published:
            def write(told: Published) -> None:
                with turn.reading():
                    # What the sink is to get must be in its feed, whoever else is about to publish it.
                    self._publish_changes(stream, [definition.publish.sinks[sink].follows], beside=True)
                    said = (False, None) if turn.is_again else (retry, again)
                    self._publisher.publish(definition, sink, told, *said)

            return self.sinks.publish(stream, sink, write)

        # Who is at it may not try again what was refused, or write what is wanted once more.
        work = self.claims.work(definition, sink, ALL, bring, beside=retry or again is not None)
        return replace(reduce(Published.then, work.done, Published(sink)), left=work.left)

    def audit(self, stream: str) -> Audited:
        """Count in the table `audit` what commits of the stream's tables came to; each is counted once."""
        return retry_on_conflict(self._audit.follow)(self.stream(stream))

    def newest_version(self, stream: str, table: str) -> Position | None:
        """Where a sink is that has got all that the feed of a table tells; None before the feed has begun."""
        return newest_position(self.lake.catalog, self.stream(stream), table)

    def unpublished(self, stream: str) -> list[str]:
        """The tables of whose newest commits their followers do not know. From metadata; needs no Spark."""
        catalog, definition = self.lake.catalog, self.stream(stream)
        behind = [table for table in tables.feeds_of(definition) if is_behind(catalog, definition, table)]
        has_old_aliases = bool(definition.sessions) and is_alias_behind(catalog, definition)
        return [*behind, tables.SESSION_CHANGES] if has_old_aliases else behind

    def status(self, stream: str) -> Status:
        """The stream in numbers, from metadata and from what its sinks say of themselves."""
        plans = {plan.table: plan for plan in self.plan(stream)}
        reached, key = self._completeness(self.stream(stream), plans.values()), self.stream(stream).partitions.key
        heads = self.ledger.sync(stream)
        sizes = self.ledger.totals(stream)
        found = []
        for table in tables.all_of(self.stream(stream)) if heads else ():
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
                    oldest_stale=oldest_stale(self.stream(stream), plans[table]) if table in plans else None,
                )
            )
        rejected = self.rejected.count(stream)
        waiting, trouble = self.source.waiting_or_trouble(stream)
        return Status(
            stream=stream,
            tables=tuple(found),
            files_read=self.ledger.files_read(stream),
            records_read=self._records_read(stream),
            rejected=rejected,
            waiting=waiting,
            trouble=trouble,
            health=self.source.health(stream),
            skipped=tuple(self.source.skipped(stream)),
            switched_off=tuple(self.switched_off(stream)),
            point=self.points.newest(stream),
            watermark=reached.watermark,
            partitions={key(partition): state for partition, state in reached.states.items()},
            feeds=tuple(self._feeds_status(stream)),
            sinks=self.sinks.status(stream),
            audit=self._audit.totals(self.stream(stream)),
            claims=self.claims.of(stream),
            changes=self.stream_file.changes(stream, plans.values(), rejected),
        )

    def completeness(self, stream: str, plans: Iterable[TablePlan] | None = None) -> Completeness:
        """Which partitions are open, closed and settled, by these plans or by new ones. From metadata; no Spark."""
        return self._completeness(self.stream(stream), self.plan(stream) if plans is None else plans)

    def verify(self, stream: str) -> list[str]:
        """Recompute everything from raw and compare row for row: the first differences, none if all is equal."""
        return self.work(verify.differences, self.lake, self.ledger, self.stream(stream))

    def maintain(self, stream: str, only: Collection[str] | None = None) -> list[Upkeep]:
        """Compact small files, expire old snapshots and remove orphans, in all tables or only some; no row changes.

        Empty before anything was taken in.
        """
        definition = self.complete(stream)
        self.lake.discard_abandoned(definition)
        if not self.ledger.sync(stream):
            return []
        self.points.drop_old(stream)
        chosen = [table for table in tables.all_of(definition) if only is None or table in only]
        # What it counts is read from snapshots that may go now.
        self.audit(stream)
        feeds = (
            maintain_feed(self.lake, definition, each, self.clock()) for t in chosen for each in tables.followers(t)
        )
        done = [self._maintenance.maintain(definition, table, self.clock()) for table in reversed(chosen)]
        audited = [tables.AUDIT] if tables.RAW_EVENTS in chosen else []
        counts = (maintain_feed(self.lake, definition, table, self.clock()) for table in audited)
        maintained = [*done, *(each for each in (*feeds, *counts) if each)]
        if tables.RAW_EVENTS in chosen:
            # The last of all tables: a point of the files as they are now lets go of those that were put together.
            self.points.make_if_possible(stream)
        return maintained

    def change_buckets(self, stream: str, buckets: int, tell: OnProgress = lambda *_: None) -> bool:
        """Give all tables of a stream another number of buckets, a power of two; no row changes. False if they have it.

        Repairs what is stale first. Whatever the stream file says of `buckets` does not matter. Called again, it goes
        on where it was killed. Raises ConflictError if writers came in between again and again.
        """
        definition = self.stream(stream).model_copy(update={"buckets": 0})
        if not self.ledger.sync(stream):
            return False
        retry_on_conflict(self.lake.add_columns)(definition)
        repair = partial(self._rebuilding.all_beside, definition)
        return self.work(self._rebucketing.change, definition, buckets, repair, tell)

    def _completeness(self, stream: Stream, plans: Iterable[TablePlan]) -> Completeness:
        stale = {each.cell.partition for plan in plans for each in plan.stale}
        arrivals = self.ledger.arrivals(stream.name)
        return completeness(arrivals, stale, stream.partitions.length, stream.late.grace, self.clock())

    def _feeds_status(self, stream: str) -> Iterator[FeedStatus]:
        behind = self.unpublished(stream)
        for table, feed in tables.feeds_of(self.stream(stream)).items():
            if newest := self.newest_version(stream, table):
                yield FeedStatus(feed, newest.version, table in behind)

    def _records_read(self, stream: str) -> int:
        # Offsets need not hold records, so of a topic only raw itself can tell.
        is_topic = isinstance(self.stream(stream).source, KafkaSource)
        return self.rows(stream, tables.RAW_EVENTS) if is_topic else self.ledger.records_read(stream)

    def _repair(self, stream: Stream) -> list[Commit]:
        commits = [self._rebuilding.stale(stream, table, ALL) for table in tables.derived(stream)]
        return [commit for commit in commits if commit.snapshot_id is not None]

    def _publish_changes(self, stream: str, only: Iterable[str] | None, *, beside: bool = False) -> list[FeedCommit]:
        definition = self.complete(stream)
        if not self.ledger.sync(stream):
            return []
        # A feed has the columns that the stream file names, so its table must.
        retry_on_conflict(self.lake.evolve)(definition)
        followed = tables.followers_of(definition) if only is None else only
        done = [self._follow(definition, table, beside) for table in followed]
        self.lineage.tell(definition)
        return done

    def _follow(self, stream: Stream, table: str, beside: bool) -> FeedCommit:
        if table not in tables.FEED_OF:
            return self.work(self._aliases.follow, stream)

        def follow(turn: Turn) -> FeedCommit:
            with turn.reading():
                return self._feeds.follow(stream, table)

        feed = tables.FEED_OF[table]
        work = self.claims.work(stream, feed, ALL, lambda turn: self.work(follow, turn), beside=beside)
        return replace(reduce(FeedCommit.then, work.done, FeedCommit(table, feed)), left=work.left)

    def _plan(self, stream: Stream, table: str, every_run: bool = False) -> TablePlan:
        facts = self.ledger.facts(stream, table, fingerprint(stream, table))
        policy = _policy(stream, table)
        if every_run:
            policy = replace(policy, max_runs_per_tick=sys.maxsize)
        return planner.plan(facts, policy, self.clock())


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
        whole_buckets=table == tables.SESSIONS,
    )
