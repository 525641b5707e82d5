"""The door to the health of streams: what is known of one, put before its limits."""

from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from dedup_platform import tables
from dedup_platform.errors import DedupPlatformError, UnreachableError
from dedup_platform.ingest.pending import Waiting
from dedup_platform.lake.snapshots import committed_at, head
from dedup_platform.planning.health import AtSource, AtWork, Check, InTables, Limits, OfSink, Oldest, Vitals, judged
from dedup_platform.planning.planner import TablePlan
from dedup_platform.platform.status import Status
from dedup_platform.stream import Stream

if TYPE_CHECKING:
    from dedup_platform.platform import Platform

__all__ = ["StreamHealth", "at_source", "oldest_stale"]


class StreamHealth:
    """The checks of a platform's streams. From metadata; no Spark."""

    def __init__(self, platform: "Platform") -> None:
        self._platform = platform

    def of_status(self, status: Status) -> list[Check]:
        """All checks of a stream, from its status: its source and the stores of its sinks were asked for that."""
        stream = self._platform.stream(status.stream)
        rows = {each.table: each.rows for each in status.tables}
        oldest = [each.oldest_stale for each in status.tables if each.oldest_stale]
        known = InTables(
            oldest_stale=_oldest(oldest),
            records=rows.get(tables.RAW_EVENTS, 0),
            rejected=status.rejected,
            watermark=status.watermark,
            newest_end=_end_of(stream, map(stream.partitions.ordinal_of, status.partitions)),
        )
        sinks = {sink.sink: OfSink(sink.health, sink.trouble) for sink in status.sinks}
        source = at_source(status.waiting, status.trouble)
        return self._judged(stream, Vitals(status.health, source, known, sinks))

    def of_parts(self, stream: str, source: AtSource | AtWork | None, *, with_tables: bool) -> list[Check]:
        """Those checks that can be told without asking the source or a store; `source` is what it told just now."""
        definition = self._platform.stream(stream)
        sinks = {name: OfSink(self._platform.sinks.health(stream, name)) for name in definition.publish.sinks}
        known = self._in_tables(definition) if with_tables else None
        return self._judged(definition, Vitals(self._platform.source.health(stream), source, known, sinks))

    def at_work(self, stream: str, run: str, begun: datetime) -> AtWork:
        """A run that ingests since then, or has committed since."""
        loaded = self._platform.lake.catalog.load(self._platform.stream(stream).name, tables.RAW_EVENTS)
        return AtWork(run, max(begun, committed_at(head(loaded))) if loaded else begun)

    def _in_tables(self, stream: Stream) -> InTables:
        try:
            return self._told_by_tables(stream)
        except UnreachableError:
            raise
        except DedupPlatformError as error:
            return InTables(trouble=str(error))

    def _told_by_tables(self, stream: Stream) -> InTables:
        plans = self._platform.plan(stream.name)
        reached = self._platform.completeness(stream.name, plans)
        return InTables(
            oldest_stale=_oldest(each for plan in plans if (each := oldest_stale(stream, plan))),
            records=self._platform.rows(stream.name, tables.RAW_EVENTS),
            rejected=self._platform.rejected.count(stream.name),
            watermark=reached.watermark,
            newest_end=_end_of(stream, reached.states),
        )

    def _judged(self, stream: Stream, vitals: Vitals) -> list[Check]:
        said = stream.health
        limits = Limits(
            max_lag=said.max_lag,
            max_stale=stream.late.max_delay + said.max_stale,
            max_reject_ratio=said.max_reject_ratio,
            max_age=said.max_age,
            quiet_days=said.quiet_weekdays,
        )
        return list(judged(stream.name, vitals, limits, self._platform.clock()))


def at_source(waiting: Waiting | None, trouble: str | None) -> AtSource:
    """What asking a source told: what waits there, or why it could not be asked."""
    if waiting is None or not waiting.items:
        return AtSource("", None, trouble)
    return AtSource(waiting.amount, waiting.since, trouble)


def oldest_stale(stream: Stream, plan: TablePlan) -> Oldest | None:
    """The stale cell of a table that has waited for longest; None if none is stale."""
    longest = max(plan.stale, key=attrgetter("waiting"), default=None)
    if longest is None:
        return None
    return Oldest(plan.table, stream.partitions.key(longest.cell.partition), longest.waiting)


def _oldest(found: Iterable[Oldest]) -> Oldest | None:
    return max(found, key=attrgetter("waiting"), default=None)


def _end_of(stream: Stream, partitions: Iterable[int]) -> datetime | None:
    """The end of the last of these partitions; None of none, and where no time lies beyond it."""
    last = max(partitions, default=None)
    return None if last is None else stream.partitions.bounds(last, last)[1]
