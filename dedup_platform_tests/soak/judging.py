"""Whether feeds, aliases and sinks are what every snapshot of their tables says, at a moment when all are caught up."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from unittest.mock import patch

from pyiceberg.table.snapshots import Snapshot

from dedup_platform.lake.snapshots import ancestry, files_by_cell
from dedup_platform.platform import Platform
from dedup_platform.platform.status import SinkStatus
from dedup_platform.sinks.opening import KEYS
from dedup_platform.stream import FilesSink, KafkaSink, PostgresSink, Stream
from dedup_platform.tables import (
    DEDUPLICATED_EVENTS,
    FEED_OF,
    RAW_EVENTS,
    SESSION_ALIASES,
    SESSIONS,
    column_names,
)
from dedup_platform.testing.judge import wrong_rows
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.lives.aliases import wrong_aliases
from dedup_platform_tests.lives.feeds import FeedLaws
from dedup_platform_tests.lives.state import Reader, Row, State
from dedup_platform_tests.sinks.copies import (
    Shown,
    Told,
    folded,
    in_kafka,
    in_postgres,
    shown,
    told_by_files,
    told_by_kafka,
    wrong_order,
)

WATCHED = (RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS)
DATABASE = "copies"
NOT_IN_VIEW = ("entity_id", "retired_by_version")


@dataclass
class Judge:
    """Remembers what it saw, so that each snapshot is read once."""

    postgres: PostgresServer
    brokers: str
    versions: dict[str, int] = field(default_factory=dict)
    """Feed -> its newest version."""
    _laws: FeedLaws = field(default_factory=FeedLaws)
    _reader: Reader = field(default_factory=Reader)
    _heads: dict[str, int] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _given: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Sink -> its version and how many rows it was given, when it was judged last."""

    def wrong(self, platform: Platform, stream: Stream) -> Iterator[str]:
        """What does not hold, a line each."""
        self._remember(platform, stream)
        yield from wrong_rows(platform, stream.name)
        for feed in FEED_OF.values():
            rows = self._reader.feed(platform, stream, feed)
            self.versions[feed] = max(row["_commit_version"] for row in rows)
            yield from self._laws.of(stream, feed, rows)
            if self._laws.at(feed, self.versions[feed]) is None:
                yield f"{feed} was not judged"
        behind = self._laws.behind(stream, self._state(platform, stream, self._heads))
        yield from (f"{table}: its feed is behind" for table in behind)
        yield from wrong_aliases(platform, stream, self._reader)
        yield from self._wrong_sinks(platform, stream)

    def _remember(self, platform: Platform, stream: Stream) -> None:
        """What the tables held at each commit since the last time."""
        for table in self._heads:
            there = [each.snapshot_id for each in ancestry(platform.lake.catalog.load_table(stream.name, table))]
            if self._heads[table] not in there:
                self._heads[table] = there[-1]  # upkeep's, which changed no row
        for table, snapshot in self._new_snapshots(platform, stream):
            self._heads[table] = snapshot.snapshot_id
            self._seen.add(snapshot.snapshot_id)
            if table != RAW_EVENTS and len(self._heads) == len(WATCHED):
                self._laws.remember(stream, self._state(platform, stream, self._heads), self._heads)

    def _new_snapshots(self, platform: Platform, stream: Stream) -> list[tuple[str, Snapshot]]:
        """In the order of their commits; of one millisecond, as tables are made of each other."""
        found = [
            (snapshot.timestamp_ms, place, snapshot.sequence_number or 0, table, snapshot)
            for place, table in enumerate(WATCHED)
            for snapshot in ancestry(platform.lake.catalog.load_table(stream.name, table))
            if snapshot.snapshot_id not in self._seen
        ]
        return [(table, snapshot) for *_, table, snapshot in sorted(found, key=itemgetter(0, 1, 2))]

    def _state(self, platform: Platform, stream: Stream, heads: Mapping[str, int]) -> State:
        rows = {}
        for table in WATCHED:
            files = files_by_cell(platform.lake.catalog.load_table(stream.name, table), heads[table])
            rows[table] = {cell: self._reader.rows(each) for cell, each in files.items()}
        return State(rows, [], frozenset())

    def _wrong_sinks(self, platform: Platform, stream: Stream) -> Iterator[str]:
        with patch("dedup_platform.platform.sinks.LOOK_SECONDS", 60.0):
            told = platform.sinks.status(stream.name)
        for status in told:
            feed = self._reader.feed(platform, stream, FEED_OF[status.follows])
            if (status.behind, status.is_beginning, status.refused, status.trouble) != (0, False, 0, None):
                yield f"{status.sink} has not got all: {status}"
            else:
                yield from (f"{status.sink}: {each}" for each in self._wrong_sink(stream, status, feed))
        yield from self._wrong_view(platform, stream)

    def _wrong_sink(self, stream: Stream, status: SinkStatus, feed: Sequence[Row]) -> Iterator[str]:
        names = column_names(stream, status.follows)
        rows, changes = self._copy(stream, status.sink, names)
        if changes:
            yield from wrong_order(changes, feed)
        expected = [shown(row, names) for row in self._laws.at(FEED_OF[status.follows], status.version or 0) or ()]
        if _texts(rows) != _texts(expected):
            yield f"{len(rows)} rows are not the {len(expected)} of {status.follows}"
        yield from self._wrong_counts(status, feed)

    def _wrong_counts(self, status: SinkStatus, feed: Sequence[Row]) -> Iterator[str]:
        """It was given each change since the last time once, and knew no newer ones."""
        before = self._given.get(status.sink)
        self._given[status.sink] = (status.version or 0, status.totals.sent)
        if before:
            given, new = status.totals.sent - before[1], sum(row["_commit_version"] > before[0] for row in feed)
            if (given, status.totals.known) != (new, 0):
                yield f"given {given} changes of {new} since {before}: {status.totals}"

    def _copy(self, stream: Stream, name: str, names: Sequence[str]) -> tuple[list[Shown], list[Told]]:
        """The rows that a sink holds, and what it was told, if it keeps that."""
        said = stream.publish.sinks[name]
        if isinstance(said, PostgresSink):
            return in_postgres(self.postgres, DATABASE, said.table, names), []
        if isinstance(said, KafkaSink):
            return in_kafka(self.brokers, said.topic), list(told_by_kafka(self.brokers, said.topic))
        assert isinstance(said, FilesSink)
        changes = list(told_by_files(said.folder, KEYS[said.follows], names))
        return folded(changes), changes

    def _wrong_view(self, platform: Platform, stream: Stream) -> Iterator[str]:
        """Old ids, as the view beside each copy of sessions in Postgres has them."""
        names = [name for name in column_names(stream, SESSION_ALIASES) if name not in NOT_IN_VIEW]
        rows = [shown(row, names) for row in self._reader.feed(platform, stream, SESSION_ALIASES)]
        for name, said in stream.publish.sinks.items():
            if isinstance(said, PostgresSink) and said.follows == SESSIONS:
                found = in_postgres(self.postgres, DATABASE, f"{said.table}_aliases", names)
                if _texts(found) != _texts(rows):
                    yield f"{name}: the view of aliases has {len(found)} rows that are not the {len(rows)} of the table"


def _texts(rows: Sequence[Shown]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)
