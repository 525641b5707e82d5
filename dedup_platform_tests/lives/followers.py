"""Who follows a life's tables: feeds, aliases, and copies of them in sinks, judged after every operation."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from dedup_platform.platform import Platform
from dedup_platform.stream import CustomSink, Publish, Stream
from dedup_platform.tables import (
    DEDUPLICATED_EVENTS,
    FEED_OF,
    SESSION_ALIASES,
    SESSIONS,
    column_names,
    derived,
    feeds_of,
)
from dedup_platform_tests.lives.aliases import wrong_aliases
from dedup_platform_tests.lives.feeds import FeedLaws
from dedup_platform_tests.lives.state import Reader, Row, State
from dedup_platform_tests.sinks.sqlite_table import copies, position

SINKS = {"copied_sessions": SESSIONS, "copied_events": DEDUPLICATED_EVENTS}
FACTORY = "dedup_platform_tests.sinks.sqlite_table:open_table"


def with_sinks(stream: Stream, folder: Path) -> Stream:
    """The stream, with a copy of each of its tables that can be followed in a file of its own."""
    sinks = {
        name: CustomSink(kind="custom", follows=table, factory=FACTORY, options={"file": str(folder / f"{name}.db")})
        for name, table in SINKS.items()
        if table in derived(stream)
    }
    return stream.model_copy(update={"publish": Publish(downstream=stream.publish.downstream, sinks=sinks)})


class Followers:
    """Publishes what a life changes, and judges what is told of it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._laws = FeedLaws()

    def remember(self, stream: Stream, state: State, heads: Mapping[str, int]) -> None:
        """What the tables hold at these snapshots."""
        self._laws.remember(stream, state, heads)

    def publish(self, platform: Platform, stream: Stream, random: Random) -> None:
        """Whoever follows the tables gets their changes: the feeds, or some sink."""
        platform.publish_changes(stream.name)
        sinks = [*stream.publish.sinks]
        for name in random.sample(sinks, random.randint(0, len(sinks))):
            if random.random() < 0.03:
                self._file(stream, name).unlink(missing_ok=True)
            platform.publish(stream.name, name)
        catalog = platform.lake.catalog
        if random.random() < 0.03 and catalog.load(stream.name, SESSION_ALIASES):
            catalog.iceberg.drop_table((stream.name, SESSION_ALIASES))

    def wrong(self, judge: Platform, stream: Stream) -> Iterator[str]:
        """What does not hold of feeds, aliases and sinks now."""
        for feed in feeds_of(stream).values():
            yield from self._laws.of(stream, feed, self._reader.feed(judge, stream, feed))
        if stream.sessions:
            yield from wrong_aliases(judge, stream, self._reader)
        for name, sink in stream.publish.sinks.items():
            yield from self._wrong_copy(stream, name, sink.follows)

    def finish(self, platform: Platform, stream: Stream, state: State) -> Iterator[str]:
        """What does not hold once everything is published."""
        platform.publish_changes(stream.name)
        for name in stream.publish.sinks:
            platform.publish(stream.name, name)
        yield from self.wrong(platform, stream)
        yield from (f"{table}: not published" for table in platform.unpublished(stream.name))
        yield from (f"{table}: its feed is behind" for table in self._laws.behind(stream, state))
        for name, sink in stream.publish.sinks.items():
            table = sink.follows
            if _texts(copies(self._path(stream, name))) != _texts(_columns(state.all(table), stream, table)):
                yield f"{name} is not what {table} is"

    def _wrong_copy(self, stream: Stream, name: str, table: str) -> Iterator[str]:
        if not self._file(stream, name).exists():
            return
        at = position(self._path(stream, name))
        if at is None or at.ordinal is not None:
            return  # it has some of the rows of a version
        there = self._laws.at(FEED_OF[table], at.version)
        if there is not None and _texts(copies(self._path(stream, name))) != _texts(there):
            yield f"{name} is not what {table} was at version {at.version}"

    def _path(self, stream: Stream, name: str) -> str:
        sink = stream.publish.sinks[name]
        assert isinstance(sink, CustomSink)
        return sink.options["file"]

    def _file(self, stream: Stream, name: str) -> Path:
        return Path(self._path(stream, name))


def _columns(rows: Sequence[Row], stream: Stream, table: str) -> list[Row]:
    return [{name: row.get(name) for name in column_names(stream, table)} for row in rows]


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Comparable with what was written as JSON."""
    return sorted(json.dumps(dict(row), default=str, sort_keys=True) for row in rows)
