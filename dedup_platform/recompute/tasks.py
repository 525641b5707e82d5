"""Work on whole cells, done by tasks of Spark that read and write data files themselves.

A task takes the files of some cells, applies the rule to their rows, compares the outcome with what the table holds and
writes what differs (rule 6). It commits nothing: what it returns are files that no snapshot names yet.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.planning.figures import NO_FIGURES, CellFigures
from dedup_platform.recompute.chunks import TASK_BYTES, Chunk, Item, Share, split_evenly
from dedup_platform.rules.deduplicated import deduplicate
from dedup_platform.rules.figures import cell_figures
from dedup_platform.rules.fragments import columns_read, fragment
from dedup_platform.spark.workers import on_workers
from dedup_platform.stream import Stream
from dedup_platform.tables import (
    COORDINATES,
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    RAW_EVENTS,
    SESSION_FRAGMENTS,
    column_names,
)


@dataclass(frozen=True)
class CellResult:
    """What became of one cell of one table, or of a share of it. A cell that is unchanged keeps its old files."""

    cell: Cell
    table: str
    is_changed: bool
    file: DataFile | None
    events_before: int = 0
    events_after: int = 0
    figures: CellFigures = NO_FIGURES
    """Of all its rows, unchanged or not."""
    reaches: int = 0
    """How many partitions beyond this one the sessions that start in the cell go on."""


@dataclass
class Store:
    """The data files of some tables, to one task: what it reads is counted."""

    tables: Mapping[str, TableFiles]
    bytes_read: int = 0
    """At most: of a file, all but the columns whose size is known and that are not read."""

    def read(self, table: str, files: Sequence[DataFile], columns: Sequence[str]) -> pl.DataFrame:
        """The rows of some files."""
        frame = frame_of(self.tables[table].read(files, columns))
        self.bytes_read += self.tables[table].bytes_of(files, columns)
        return frame

    def read_share(
        self, table: str, files: Sequence[DataFile], columns: Sequence[str], share: Share, key: Sequence[str]
    ) -> pl.DataFrame:
        """The rows of some files that are in a share; of all others, no more than a batch at a time is in memory."""
        if share.is_whole or not files:
            return self.read(table, files, columns)
        self.bytes_read += self.tables[table].bytes_of(files, columns)
        batches = (batch for file in files for batch in self.tables[table].batches(file, columns))
        # Typed alike, whether read in batches or at once.
        nothing = frame_of(self.tables[table].read([], columns))
        return pl.concat([nothing, *(share(frame_of(batch), key) for batch in batches)])

    def replace_share(
        self, table: str, cell: Cell, old: Sequence[DataFile], rows: pl.DataFrame, share: Share, key: Sequence[str]
    ) -> tuple[bool, DataFile | None]:
        """Write the rows of a share of a cell; whether they differ from those of the old files, and the new file.

        It is written although it is the same: if another share differs, no old file stays.
        """
        before = self.read_share(table, old, rows.columns, share, key)
        is_changed = not rows.sort(COORDINATES).equals(before.sort(COORDINATES))
        return is_changed, self.tables[table].write(cell, rows.to_arrow()) if rows.height else None

    def replace(
        self,
        table: str,
        cell: Cell,
        old: Sequence[DataFile],
        rows: pl.DataFrame,
        order: Sequence[str],
        columns: Sequence[str],
    ) -> tuple[bool, DataFile | None]:
        """Write the rows of a cell if they are not those of the old files; whether they differ, and the new file."""
        if rows.height == sum(file.record_count for file in old):
            if not rows.height:
                return False, None
            if rows.sort(order).equals(self.read(table, old, columns).sort(order)):
                return False, None
        return True, self.tables[table].write(cell, rows.to_arrow()) if rows.height else None

    def count_events(self, table: str, files: Sequence[DataFile]) -> int:
        """The events in the fragments or sessions of some files."""
        return int(self.read(table, files, ["event_count"])["event_count"].sum())


@dataclass(frozen=True)
class Deduplication:
    """Rule 3 for chunks of raw events."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[CellResult]:
        """The files of events and duplicates of each cell of the chunk, and of the fragments of changed events, if any.

        Fragments are made here although another commit publishes them, because the events are in memory: reading them
        again would cost a third of the time.
        """
        names, key = column_names(self.stream, DEDUPLICATED_EVENTS), self.stream.deduplicate.key
        cells, around = (
            {
                cell.partition: store.read_share(RAW_EVENTS, files, names, chunk.share, key)
                for cell, files in part.items()
            }
            for part in (chunk.cells, chunk.around)
        )
        verdicts = deduplicate(cells, around, self.stream)
        for cell in chunk.cells:
            found = verdicts.pop(cell.partition)
            for table, rows in ((DUPLICATE_EVENTS, found.duplicates), (DEDUPLICATED_EVENTS, found.events)):
                old, names = chunk.old[table].get(cell, ()), column_names(self.stream, table)
                if chunk.share.is_whole:
                    is_changed, file = store.replace(table, cell, old, rows, COORDINATES, names)
                else:
                    is_changed, file = store.replace_share(table, cell, old, rows, chunk.share, key)
                yield CellResult(cell, table, is_changed, file, figures=cell_figures(self.stream, table, cell, rows))
            # The events come last.
            if is_changed and self.stream.sessions and cell.bucket != NO_ENTITY:
                yield _fragments(cell, found.events, chunk.old[SESSION_FRAGMENTS].get(cell, ()), self.stream, store)


@dataclass(frozen=True)
class Fragmentation:
    """Rule 4 within each partition, for chunks of deduplicated events."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[CellResult]:
        """The file of fragments of each cell of the chunk."""
        for cell, files in chunk.cells.items():
            events = store.read(DEDUPLICATED_EVENTS, files, columns_read(self.stream))
            yield _fragments(cell, events, chunk.old[SESSION_FRAGMENTS].get(cell, ()), self.stream, store)


Step = Callable[[Chunk, Store], Iterator[CellResult]]


@dataclass(frozen=True)
class TaskResult:
    """What all tasks of one step did together."""

    written: list[CellResult]
    bytes_read: int


def run_tasks(spark: SparkSession, chunks: Iterable[Chunk], step: Step, tables: Mapping[str, TableFiles]) -> TaskResult:
    """Have Spark's workers do a step for each chunk; small chunks share a task."""
    done = list(_on_workers(spark, chunks, step, tables))
    written = [result for results, _ in done for result in results]
    for result in written:
        if result.file:
            tables[result.table].partitioned(result.file)
    return TaskResult(written, sum(size for _, size in done))


def gather(
    spark: SparkSession,
    chunks: Iterable[Chunk],
    ask: Callable[[Chunk, Store], Iterator[Item]],
    tables: Mapping[str, TableFiles],
) -> list[Item]:
    """Have Spark's workers look at each chunk: all that they found."""
    return [found for results, _ in _on_workers(spark, chunks, ask, tables) for found in results]


def _on_workers(
    spark: SparkSession,
    chunks: Iterable[Chunk],
    step: Callable[[Chunk, Store], Iterator[Item]],
    tables: Mapping[str, TableFiles],
) -> Iterator[tuple[list[Item], int]]:
    """The results of each task, and the bytes that it read."""
    tasks = [pickle.dumps(task) for task in split_evenly(list(chunks), lambda chunk: chunk.bytes, TASK_BYTES)]
    return map(pickle.loads, on_workers(spark, tasks, partial(_run, step, tables)))


def _run(step: Callable[[Chunk, Store], Iterator[Any]], tables: Mapping[str, TableFiles], task: bytes) -> bytes:
    store = Store(tables)
    results = [each for chunk in pickle.loads(task) for each in step(chunk, store)]
    sync_written()
    return pickle.dumps((results, store.bytes_read))


def _fragments(cell: Cell, events: pl.DataFrame, old: Sequence[DataFile], stream: Stream, store: Store) -> CellResult:
    rows = fragment(events, stream)
    order, names = ("entity_id", "first_event_time"), column_names(stream, SESSION_FRAGMENTS)
    is_changed, file = store.replace(SESSION_FRAGMENTS, cell, old, rows, order, names)
    before = store.count_events(SESSION_FRAGMENTS, old) if is_changed and old else 0
    return CellResult(cell, SESSION_FRAGMENTS, is_changed, file, before, int(rows["event_count"].sum()))
