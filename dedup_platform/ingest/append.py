"""Work on new records, done by tasks of Spark that read a source and write data files of `raw_events` themselves.

One task alone reads and writes. Of several, each takes its records apart by cell. What is enough for a file it writes
itself; the rest it packs. Spark brings the packs of a cell together, and whoever has them writes one file: so a cell
gets few files, however many tasks read. Nothing is committed: what comes back are files that no snapshot names yet.
"""

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import starmap
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from dedup_platform.errors import SourceChangedError, SourceError
from dedup_platform.ingest.isolation import read_apart
from dedup_platform.ingest.one_by_one import Inputs, Work
from dedup_platform.ingest.partition_limit import within_limit
from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.table_files import HeldRows, TableFiles, by_cell
from dedup_platform.planning.cells import Cell
from dedup_platform.sources.clock_skew import Observed, skew_bin, skew_seconds
from dedup_platform.spark.task_limits import TaskLimits, limited, note_progress
from dedup_platform.spark.workers import InProcess, has_ended_worker, on_workers, prepare_worker
from dedup_platform.stream import Stream

DIVIDED_BYTES = 32 * 2**20
"""Records are taken apart by cell when there are so many."""
OWN_FILE_BYTES = 2**20
"""What is enough of a cell for a file, times the number of tasks. To pack, send and unpack a megabyte costs as much as
another file; and the more tasks there are, the fewer have enough of a cell, which bounds its files."""
HELD_BYTES = 128 * 2**20
"""At most so much is buffered before files are written: a cell may get several."""
HELD_ROWS = 3 * 2**18
"""And so many rows, of which each takes memory when it is written, however small it is."""

_LOG = logging.getLogger(__name__)

Reader = Callable[[int], Iterable[pl.DataFrame]]
"""From the number of a task to its records, in frames with the columns of `raw_events`. Can be pickled."""


@dataclass(frozen=True)
class Span(Observed):
    """The records of one source partition in one file."""

    records: int
    places: int
    """How many coordinates they have: as many, or a record was read twice."""
    first_offset: int
    last_offset: int


@dataclass(frozen=True)
class Appended:
    """One new file and what it holds."""

    file: DataFile
    spans: tuple[Span, ...]


SOURCE_FAILURES = (SourceError, SourceChangedError)
"""What workers return as data: a task that raised would be tried again, and the error come as a text of Spark's."""
Done = Appended | SourceError | SourceChangedError


@dataclass(frozen=True)
class Appending:
    """What a worker needs to know to bring records to their cells."""

    stream: Stream
    files: TableFiles
    buckets: int
    read: Reader
    tasks: int
    own_file_bytes: int = OWN_FILE_BYTES
    inputs: Inputs | None = None
    """What `read` reads, input by input: without them, nothing can be narrowed down."""
    limits: TaskLimits | None = None
    is_apart: bool = False
    """Whether inputs are read in lone processes."""

    def read_and_write(self, task: bytes) -> bytes:
        """All of one task, whose number this is: its files, or why the source could not be read."""
        done: list[Done] = []
        with self._limited():
            try:
                done += self._files_with(self._divided(int(task)))
            except SOURCE_FAILURES as failure:
                done.append(failure)
        sync_written()
        return pickle.dumps(done)

    def packed(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of some tasks as packs, each of one cell, and the files that were written instead.

        Where the source cannot be read, the failure goes the way of such a file.
        """
        prepare_worker()
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            with self._limited():
                try:
                    yield from self._packed_of(number)
                except SOURCE_FAILURES as failure:
                    yield _sent(None, None, None, pickle.dumps(failure))
        sync_written()

    def _packed_of(self, number: int) -> Iterator[pa.RecordBatch]:
        held = HeldRows()
        for cell, rows in self._divided(number):
            held.hold(cell, rows)
            if _are_enough(held):
                yield from self._written_or_packed(held)
        yield from self._written_or_packed(held)

    def _written_or_packed(self, held: HeldRows) -> Iterator[pa.RecordBatch]:
        for cell, size in held.sizes().items():
            if size >= self.tasks * self.own_file_bytes:
                yield _sent(None, None, None, pickle.dumps(self._file_of(cell, held.take(cell))))
            else:
                place = (cell.partition, cell.bucket) if cell else (None, None)
                yield _sent(*place, _packed(held.take(cell)), None)

    def written(self, packs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The files of the cells whose packs these are, and those that were written before."""
        prepare_worker()
        before: list[Done] = []
        done = list(self._files_with(_unpacked(packs, before)))
        sync_written()
        yield pa.record_batch([pa.array([pickle.dumps([*before, *done])], pa.binary())], ["done"])

    def _files_with(self, parts: Iterable[tuple[Cell | None, pl.DataFrame]]) -> Iterator[Appended]:
        """A file for each cell, or several if they hold too much together."""
        held = HeldRows()
        for part in parts:
            held.hold(*part)
            if _are_enough(held):
                yield from starmap(self._file_of, held.take_all())
        yield from starmap(self._file_of, held.take_all())

    def _limited(self) -> AbstractContextManager[None]:
        """Lone processes are limited themselves, and whoever waits for them does nothing that could be endless."""
        return limited(None if self.is_apart else self.limits)

    def _file_of(self, cell: Cell | None, rows: pl.DataFrame) -> Appended:
        note_progress()
        return Appended(self.files.write(cell, rows.to_arrow()), tuple(_spans(rows)))

    def _divided(self, number: int) -> Iterator[tuple[Cell | None, pl.DataFrame]]:
        """The records of one task by cell, some at a time; rejected ones have none."""
        some: list[pl.DataFrame] = []
        size = 0
        for rows in within_limit(self._read(number), self.stream):
            note_progress()
            size += int(rows.estimated_size())
            some.append(rows)
            if size >= DIVIDED_BYTES:
                yield from by_cell(pl.concat(some), self.stream.partitions.length, self.buckets)
                some, size = [], 0
        if some:
            yield from by_cell(pl.concat(some), self.stream.partitions.length, self.buckets)

    def _read(self, number: int) -> Iterable[pl.DataFrame]:
        if self.is_apart and self.inputs and self.limits:
            return read_apart(Work(self.stream, self.inputs, number, self.limits))
        return self.read(number)


def _are_enough(held: HeldRows) -> bool:
    return held.size >= HELD_BYTES or held.count >= HELD_ROWS


_COUNTS = "_counts"
_SENT = pa.schema([("partition", pa.int32()), ("bucket", pa.int32()), ("rows", pa.binary()), ("done", pa.binary())])


def _sent(*values: Any) -> pa.RecordBatch:
    typed = zip(values, _SENT.types, strict=True)
    return pa.record_batch([pa.array([value], of_type) for value, of_type in typed], schema=_SENT)


def _packed(rows: pl.DataFrame) -> bytes:
    pack = BytesIO()
    rows.write_ipc(pack, compression="zstd")
    return pack.getvalue()


def _unpacked(packs: Iterable[pa.RecordBatch], before: list[Done]) -> Iterator[tuple[Cell | None, pl.DataFrame]]:
    """The rows of packs; the files and failures that come instead of some go to `before`."""
    for batch in packs:
        for partition, bucket, pack, file in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if file is not None:
                before.append(pickle.loads(file))
            else:
                yield None if partition is None else Cell(partition, bucket), pl.read_ipc(pack)


def append(spark: SparkSession, appending: Appending) -> list[Appended]:
    """The new files with the records of all tasks.

    Raises the SourceError or SourceChangedError of whichever task could not read the source. If a task ends its worker,
    all are done once more, in processes that only this costs; files of the first time are never named by a snapshot.
    """
    if isinstance(spark, InProcess):
        # This process has more to do than to read.
        return _appended(spark, replace(appending, limits=None))
    try:
        return _appended(spark, appending)
    except Exception as error:
        if not (appending.inputs and appending.limits and has_ended_worker(error)):
            raise
        _LOG.warning("%s: a worker ended while it read; once more, record by record", appending.stream.name)
        return _appended(spark, replace(appending, is_apart=True))


def _appended(spark: SparkSession, appending: Appending) -> list[Appended]:
    tasks = appending.tasks
    if tasks == 1 or isinstance(spark, InProcess):
        done = on_workers(spark, [b"%d" % number for number in range(tasks)], appending.read_and_write)
    else:
        numbers = spark.range(0, tasks, 1, numPartitions=tasks)
        packs = numbers.mapInArrow(appending.packed, "partition int, bucket int, rows binary, done binary")
        # Several cells share a task; without a number Spark would put all that is small into one.
        together = packs.repartition(tasks, "partition", "bucket")
        done = [row.done for row in together.mapInArrow(appending.written, "done binary").collect()]
    appended: list[Appended] = []
    for each in (each for part in done for each in pickle.loads(part)):
        if isinstance(each, SOURCE_FAILURES):
            raise each
        appending.files.partitioned(each.file)
        appended.append(each)
    return appended


def _spans(rows: pl.DataFrame) -> Iterator[Span]:
    offset = pl.col("source_offset")
    is_one_each = rows["source_index"].max() == 0
    # What is asked of single rows is worked out before they are grouped: of each group it takes twice as long.
    asked = rows.select(
        *("source", "source_partition", "source_offset", "source_index", "rejection_reason"),
        skew_bin().alias("_skew"),
        skew_seconds().alias("_seconds"),
    )
    spans = asked.group_by("source", "source_partition").agg(
        pl.len().alias("records"),
        (offset if is_one_each else pl.struct("source_offset", "source_index")).n_unique().alias("places"),
        offset.min().alias("first_offset"),
        offset.max().alias("last_offset"),
        *_counted(pl.col("rejection_reason").drop_nulls(), "rejected"),
        *_counted(pl.col("_skew").drop_nulls(), "skews"),
        pl.col("_seconds").max().alias("longest"),
    )
    return (Span(**_with_counts(row)) for row in spans.iter_rows(named=True))


def _counted(values: pl.Expr, name: str) -> tuple[pl.Expr, pl.Expr]:
    """The values of each group and, in the same order, how often each is there. A list of pairs is slow to read."""
    return values.unique(maintain_order=True).alias(name), values.unique_counts().alias(name + _COUNTS)


def _with_counts(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose columns of values and counts became mappings."""
    counts = {name: row.pop(name + _COUNTS) for name in ("rejected", "skews")}
    return row | {name: dict(zip(row[name], each, strict=True)) for name, each in counts.items()}
