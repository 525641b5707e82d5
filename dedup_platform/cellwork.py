"""Work on whole cells, done by tasks of Spark that read and write data files themselves.

A task takes the files of some cells, gives their rows to a kernel, compares the outcome with what the table holds and
writes what differs (rule 6). It commits nothing: what it returns are files that no snapshot names yet.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TypeVar

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession, functions as F

from dedup_platform.datafiles import TableFiles
from dedup_platform.kernels.deduplicated import Verdicts, deduplicate
from dedup_platform.kernels.fragments import columns_read, fragment
from dedup_platform.kernels.sessions import stitch
from dedup_platform.lateness import Cell
from dedup_platform.stream import Stream
from dedup_platform.tables import (
    COORDINATES,
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    RAW_EVENTS,
    SESSION_FRAGMENTS,
    SESSIONS,
    column_names,
)
from dedup_platform.workers import spare_archives

TASK_BYTES = 64 * 2**20
"""About so many bytes of files are one task: in memory they are a few hundred megabytes."""

CellFiles = Mapping[Cell, Sequence[DataFile]]
Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Written:
    """What became of one cell of one table. Unchanged cells have no new file and keep the old ones."""

    cell: Cell
    table: str
    is_changed: bool
    file: DataFile | None
    events_before: int = 0
    events_after: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    """For metadata and plots."""


@dataclass(frozen=True)
class Chunk:
    """Cells of one bucket that are worked on together, and the cells around them that are only read."""

    cells: CellFiles
    old: Mapping[str, CellFiles]
    """What the tables that are rebuilt hold in these cells, by table."""
    around: CellFiles = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Of all files that are read."""
        return sum(_bytes(files) for files in (*self.cells.values(), *self.around.values()))


@dataclass
class Store:
    """The data files of some tables, to one task: what it reads is counted."""

    tables: Mapping[str, TableFiles]
    bytes_read: int = 0
    """The sizes of the files, of which only some columns are read."""

    def read(self, table: str, files: Sequence[DataFile], columns: Sequence[str]) -> pl.DataFrame:
        """The rows of some files."""
        frame = pl.from_arrow(self.tables[table].read(files, columns))
        assert isinstance(frame, pl.DataFrame)
        self.bytes_read += _bytes(files)
        return frame

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

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Written]:
        """The files of events and duplicates of each cell of the chunk."""
        names = column_names(self.stream, DEDUPLICATED_EVENTS)
        cells, around = (
            {cell.partition: store.read(RAW_EVENTS, files, names) for cell, files in part.items()}
            for part in (chunk.cells, chunk.around)
        )
        verdicts = deduplicate(cells, around, self.stream)
        for cell in chunk.cells:
            found = verdicts.pop(cell.partition)
            numbers = _lateness(found, cell, self.stream)
            for table, rows in ((DUPLICATE_EVENTS, found.duplicates), (DEDUPLICATED_EVENTS, found.events)):
                old, names = chunk.old[table].get(cell, ()), column_names(self.stream, table)
                is_changed, file = store.replace(table, cell, old, rows, COORDINATES, names)
                yield Written(cell, table, is_changed, file, numbers=numbers)


@dataclass(frozen=True)
class Fragmentation:
    """Rule 4 within each partition, for chunks of deduplicated events."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Written]:
        """The file of fragments of each cell of the chunk."""
        names = column_names(self.stream, SESSION_FRAGMENTS)
        for cell, files in chunk.cells.items():
            old = chunk.old[SESSION_FRAGMENTS].get(cell, ())
            rows = fragment(store.read(DEDUPLICATED_EVENTS, files, columns_read(self.stream)), self.stream)
            order = ("entity_id", "first_event_time")
            is_changed, file = store.replace(SESSION_FRAGMENTS, cell, old, rows, order, names)
            before = store.count_events(SESSION_FRAGMENTS, old) if is_changed and old else 0
            yield Written(cell, SESSION_FRAGMENTS, is_changed, file, before, int(rows["event_count"].sum()))


@dataclass(frozen=True)
class Sessionization:
    """Rules 4 and 5 for chunks of fragments; what lies around must hold whole chains."""

    stream: Stream

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[Written]:
        """The file of sessions that start in each cell of the chunk."""
        names = column_names(self.stream, SESSIONS)
        files = [file for part in (chunk.cells, chunk.around) for found in part.values() for file in found]
        fragments = store.read(SESSION_FRAGMENTS, files, column_names(self.stream, SESSION_FRAGMENTS))
        rows = stitch(fragments, self.stream).sort("started_at")
        for cell in chunk.cells:
            start, end = (self.stream.partitions.start_of(cell.partition + step) for step in (0, 1))
            inside = rows.filter(pl.col("started_at").is_between(start, end, closed="left"))
            old = chunk.old[SESSIONS].get(cell, ())
            is_changed, file = store.replace(SESSIONS, cell, old, inside, ("session_id",), names)
            before = store.count_events(SESSIONS, old) if is_changed and old else 0
            yield Written(cell, SESSIONS, is_changed, file, before, int(inside["event_count"].sum()))


def chunks_along_time(
    files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles], reach: int
) -> Iterator[Chunk]:
    """The cells cut into chunks of one bucket each, with the files of the cells within `reach` partitions of them."""
    by_bucket: dict[int, list[Cell]] = {}
    for cell in sorted(cells):
        by_bucket.setdefault(cell.bucket, []).append(cell)
    for in_bucket in by_bucket.values():
        for part in _cut(in_bucket, lambda cell: _bytes(files.get(cell, ()))):
            near = {Cell(cell.partition + step, cell.bucket) for cell in part for step in range(-reach, reach + 1)}
            inside = {cell: files.get(cell, ()) for cell in part}
            yield Chunk(inside, _old_of(part, old), _of(near - set(part), files))


def chunks_of_chains(files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Iterator[Chunk]:
    """The cells of each bucket as one chunk, with all other files of the bucket: a chain may go anywhere."""
    for bucket in sorted({cell.bucket for cell in cells}):
        inside = {cell: files.get(cell, ()) for cell in sorted(cells) if cell.bucket == bucket}
        around = {cell: files[cell] for cell in sorted(files) if cell.bucket == bucket and cell not in inside}
        yield Chunk(inside, _old_of(inside, old), around)


def chunks_of_cells(files: CellFiles, cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Iterator[Chunk]:
    """The cells cut into chunks; each cell stands for itself."""
    for part in _cut(sorted(cells), lambda cell: _bytes(files.get(cell, ()))):
        yield Chunk({cell: files.get(cell, ()) for cell in part}, _old_of(part, old))


def _of(cells: Iterable[Cell], files: CellFiles) -> CellFiles:
    return {cell: files[cell] for cell in cells if cell in files}


def _old_of(cells: Iterable[Cell], old: Mapping[str, CellFiles]) -> Mapping[str, CellFiles]:
    return {table: _of(cells, files) for table, files in old.items()}


Step = Callable[[Chunk, Store], Iterator[Written]]


@dataclass(frozen=True)
class Work:
    """What all tasks of one step did together."""

    written: list[Written]
    bytes_read: int


def work(spark: SparkSession, chunks: Iterable[Chunk], step: Step, tables: Mapping[str, TableFiles]) -> Work:
    """Have Spark's tasks do a step for each chunk; small chunks share a task."""
    tasks = list(_cut(list(chunks), lambda chunk: chunk.bytes))
    if not tasks:
        return Work([], 0)
    # Every task is sent its own chunks only: with all of them in the function, each would receive them all.
    packed = spark.createDataFrame(
        [(number, pickle.dumps(task)) for number, task in enumerate(tasks)], "id long, task binary"
    )
    numbers = spark.range(0, len(tasks), 1, numPartitions=len(tasks))
    run = partial(_run, step, tables)
    done = numbers.join(F.broadcast(packed), "id").select("task").mapInArrow(run, "written binary, bytes_read long")
    rows = done.collect()
    return Work([each for row in rows for each in pickle.loads(row.written)], sum(row.bytes_read for row in rows))


def _run(step: Step, tables: Mapping[str, TableFiles], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    spare_archives()
    for batch in batches:
        for task in batch.column(0):
            store = Store(tables)
            written = [each for chunk in pickle.loads(task.as_py()) for each in step(chunk, store)]
            columns = {"written": pa.array([pickle.dumps(written)], pa.binary()), "bytes_read": [store.bytes_read]}
            yield pa.RecordBatch.from_pydict(columns)


def _cut(items: Sequence[Task], size: Callable[[Task], int]) -> Iterator[list[Task]]:
    """Consecutive items, as many as stay below `TASK_BYTES`, but at least one."""
    part: list[Task] = []
    total = 0
    for item in items:
        if part and total + size(item) > TASK_BYTES:
            yield part
            part, total = [], 0
        part.append(item)
        total += size(item)
    if part:
        yield part


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.file_size_in_bytes for file in files)


def _lateness(found: Verdicts, cell: Cell, stream: Stream) -> dict[str, float]:
    closes = stream.partitions.start_of(cell.partition + 1) + stream.late.grace
    late = found.events["arrival_time"] - closes
    is_late = late > timedelta(0)
    longest = late.max()
    return {
        "late_rows": float(is_late.sum()),
        "longest_lateness_seconds": max(longest.total_seconds(), 0) if isinstance(longest, timedelta) else 0.0,
        "conflicts": float((found.duplicates["kind"] == "conflict").sum()) if found.duplicates.height else 0.0,
    }
