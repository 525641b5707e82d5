"""Work on new records, done by tasks of Spark that read a source and write data files of `raw_events` themselves.

One task alone reads and writes. Of several, each takes its records apart by cell and packs them; Spark brings the packs
of a cell together, and whoever has them writes its file: so a cell gets one file, however many tasks read. Nothing is
committed: what comes back are files that no snapshot names yet.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from dedup_platform.clocks import Observed, skew_bucket, skew_seconds
from dedup_platform.datafiles import TableFiles, by_cell
from dedup_platform.lateness import Cell
from dedup_platform.stream import Stream
from dedup_platform.workers import on_workers, prepare_worker

PACK_BYTES = 32 * 2**20
"""Records are taken apart by cell when there are so many; a pack is a part of that."""
HELD_BYTES = 256 * 2**20
"""At most so much is held before files are written: a cell may get several."""

Reader = Callable[[int], Iterable[pl.DataFrame]]
"""Of a task's number: its records, in frames with the columns of `raw_events`. Can be pickled."""


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


@dataclass(frozen=True)
class Appending:
    """What a worker needs to know to bring records to their cells."""

    stream: Stream
    files: TableFiles
    buckets: int
    read: Reader

    def read_and_write(self, task: bytes) -> bytes:
        """All of one task, whose number this is."""
        held = Held(self.files)
        done = [written for cell, rows in self._divided(int(task)) for written in held.add(cell, rows)]
        return pickle.dumps([*done, *held.write()])

    def packed(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of some tasks as packs, each of one cell."""
        prepare_worker()
        for number in (value for batch in numbers for value in batch.column(0).to_pylist()):
            for cell, rows in self._divided(number):
                pack = BytesIO()
                rows.write_ipc(pack)
                place = (cell.partition, cell.bucket) if cell else (None, None)
                values = zip((*place, pack.getvalue()), _PACK.types, strict=True)
                yield pa.record_batch([pa.array([value], of_type) for value, of_type in values], schema=_PACK)

    def written(self, packs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The files of the cells whose packs these are."""
        prepare_worker()
        held = Held(self.files)
        done: list[Appended] = []
        for batch in packs:
            for partition, bucket, pack in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                cell = None if partition is None else Cell(partition, bucket)
                done += held.add(cell, pl.read_ipc(pack))
        yield pa.record_batch([pa.array([pickle.dumps([*done, *held.write()])], pa.binary())], ["done"])

    def _divided(self, number: int) -> Iterator[tuple[Cell | None, pl.DataFrame]]:
        """The records of one task by cell, some at a time; rejected ones have none."""
        some: list[pl.DataFrame] = []
        size = 0
        for rows in self.read(number):
            size += int(rows.estimated_size())
            some.append(rows)
            if size >= PACK_BYTES:
                yield from by_cell(pl.concat(some), self.stream.partitions.length, self.buckets)
                some, size = [], 0
        if some:
            yield from by_cell(pl.concat(some), self.stream.partitions.length, self.buckets)


@dataclass
class Held:
    """Rows of several cells on their way into files."""

    files: TableFiles
    _rows: dict[Cell | None, list[pl.DataFrame]] = field(default_factory=dict)
    _bytes: int = 0

    def add(self, cell: Cell | None, rows: pl.DataFrame) -> Iterator[Appended]:
        """Hold some more; if they have become too many, write all."""
        self._rows.setdefault(cell, []).append(rows)
        self._bytes += int(rows.estimated_size())
        if self._bytes >= HELD_BYTES:
            yield from self.write()

    def write(self) -> Iterator[Appended]:
        """Write what is held, a file for each cell."""
        for cell, parts in self._rows.items():
            rows = pl.concat(parts)
            yield Appended(self.files.write(cell, rows.to_arrow()), tuple(_spans(rows)))
        self._rows, self._bytes = {}, 0


_PACK = pa.schema([("partition", pa.int32()), ("bucket", pa.int32()), ("rows", pa.binary())])


def append(spark: SparkSession, tasks: int, appending: Appending) -> list[Appended]:
    """The new files with the records of all tasks."""
    if tasks == 1:
        done = on_workers(spark, [b"0"], appending.read_and_write)
    else:
        numbers = spark.range(0, tasks, 1, numPartitions=tasks)
        packs = numbers.mapInArrow(appending.packed, "partition int, bucket int, rows binary")
        # Several cells share a task; without a number Spark would put all that is small into one.
        together = packs.repartition(tasks, "partition", "bucket")
        done = [row.done for row in together.mapInArrow(appending.written, "done binary").collect()]
    appended = [each for part in done for each in pickle.loads(part)]
    for each in appended:
        appending.files.partitioned(each.file)
    return appended


def _spans(rows: pl.DataFrame) -> Iterator[Span]:
    offset, place = pl.col("source_offset"), pl.struct("source_offset", "source_index")
    reason, bucket = pl.col("rejection_reason").drop_nulls(), skew_bucket().drop_nulls()
    spans = rows.group_by("source", "source_partition").agg(
        pl.len().alias("records"),
        place.n_unique().alias("places"),
        offset.min().alias("first_offset"),
        offset.max().alias("last_offset"),
        reason.value_counts().alias("rejected"),
        bucket.alias("bucket").value_counts().alias("skews"),
        skew_seconds().max().alias("longest"),
    )
    return (Span(**{**row, **_counts(row)}) for row in spans.iter_rows(named=True))


def _counts(row: Mapping[str, Any]) -> dict[str, dict[Any, int]]:
    """The columns that hold values with their counts, as mappings."""
    return {name: dict(each.values() for each in row[name]) for name in ("rejected", "skews")}
