"""Asks the data what links cells: Spark's workers read the narrow columns that tell, of the cells in question alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.planning.cells import Cell, Cells, reach
from dedup_platform.planning.linking import Link, Span
from dedup_platform.recompute.chunks import Chunk, chunks_along_time, chunks_of_chains
from dedup_platform.recompute.tasks import Store, gather
from dedup_platform.rules.links import key_columns, linked_partitions, spans_of_chains, spans_of_sessions
from dedup_platform.rules.sessions import near_edges
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, SESSION_FRAGMENTS, SESSIONS


@dataclass(frozen=True)
class LinksOfKeys:
    """Finds the pairs of cells of one bucket that share a key within the window."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Link]:
        """The pairs among the chunk's cells and those around them."""
        files = [file for part in (chunk.cells, chunk.around) for found in part.values() for file in found]
        bucket = next(iter(chunk.cells)).bucket
        if files:
            key = self.stream.deduplicate.key
            records = store.read_share(RAW_EVENTS, files, key_columns(self.stream), chunk.share, key)
            for earlier, later in linked_partitions(records, self.stream):
                yield Cell(earlier, bucket), Cell(later, bucket)


@dataclass(frozen=True)
class SpansOfChains:
    """Finds how far the chains of fragments of one bucket reach."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Span]:
        """The spans of more than one partition."""
        # Most fragments reach no other: read cell by cell, only those that may stay in memory.
        edges = [near_edges(self._read(files, store), self.stream) for files in chunk.cells.values()]
        for first, last in spans_of_chains(pl.concat(edges), self.stream):
            yield next(iter(chunk.cells)).bucket, first, last

    def _read(self, files: Sequence[DataFile], store: Store) -> pl.DataFrame:
        return store.read(SESSION_FRAGMENTS, files, ["entity_id", "first_event_time", "last_event_time"])


@dataclass(frozen=True)
class SpansOfSessions:
    """Finds how far the sessions of some cells of a bucket reach."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Span]:
        """The spans of more than one partition."""
        for cell, files in chunk.cells.items():
            for first, last in spans_of_sessions(store.read(SESSIONS, files, ["started_at", "ended_at"]), self.stream):
                yield cell.bucket, first, last


def links_of_keys(lake: Lakehouse, stream: Stream, snapshot: int, cells: Cells) -> list[Link]:
    """The pairs of these cells of `raw_events` that share a key within the window."""
    around = reach(stream.deduplicate.window, stream.partitions.length)
    files = lake.files(stream, RAW_EVENTS, snapshot, cells)
    tables = {RAW_EVENTS: lake.table_files(stream, RAW_EVENTS)}
    weigh = partial(tables[RAW_EVENTS].bytes_of, columns=key_columns(stream))
    return gather(lake.spark(), chunks_along_time(files, files, {}, around, weigh), LinksOfKeys(stream), tables)


def spans_now(lake: Lakehouse, stream: Stream, snapshot: int, cells: Cells) -> list[Span]:
    """The spans of the sessions that the fragments of these cells form."""
    return _spans(lake, stream, SESSION_FRAGMENTS, snapshot, cells, SpansOfChains(stream))


def spans_before(lake: Lakehouse, stream: Stream, snapshot: int, cells: Cells) -> list[Span]:
    """The spans of the sessions of the table that start in these cells."""
    return _spans(lake, stream, SESSIONS, snapshot, cells, SpansOfSessions(stream))


def _spans(
    lake: Lakehouse, stream: Stream, table: str, snapshot: int, cells: Cells, step: SpansOfChains | SpansOfSessions
) -> list[Span]:
    files = lake.files(stream, table, snapshot, cells)
    tables: dict[str, TableFiles] = {table: lake.table_files(stream, table)}
    return gather(lake.spark(), chunks_of_chains(files, files, {}), step, tables)
