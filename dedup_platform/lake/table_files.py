"""A table's data files as Spark's workers read and write them. Everything here can be pickled; nothing is committed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType, TimestamptzType

from dedup_platform.lake.new_files import NewFiles
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.planning.moments import utc_datetime
from dedup_platform.rules.partitions import partition_ordinal

_BATCH_BYTES = 8 * 2**20
_BATCH_ROWS = 8192
_LARGER_ROWS = 50_000
_ALL = AlwaysTrue()


@dataclass(frozen=True)
class TableFiles:
    """What reading and writing a table's files takes: its schema, specs and properties, but none of its history."""

    metadata: TableMetadata
    properties: Mapping[str, str]
    """Of the file system, and none of the catalog: they go to every worker."""

    @classmethod
    def of(cls, table: Table, properties: Mapping[str, str]) -> "TableFiles":
        """Those of a table as it is now."""
        history: dict[str, Any] = {
            "snapshots": [],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {},
            "current_snapshot_id": None,
        }
        return cls(table.metadata.model_copy(update=history), dict(properties))

    @cached_property
    def io(self) -> FileIO:
        return load_file_io(dict(self.properties), self.metadata.location)

    @cached_property
    def new(self) -> NewFiles:
        """Writes more of them."""
        return NewFiles(self.metadata, self.io)

    @cached_property
    def _selections(self) -> dict[tuple[str, ...], Schema]:
        return {}

    def _select(self, columns: Sequence[str]) -> Schema:
        """The schema of some columns, of which tasks ask cell after cell: making one takes milliseconds."""
        names = tuple(columns)
        if names not in self._selections:
            self._selections[names] = self.metadata.schema().select(*names)
        return self._selections[names]

    def read(self, files: Sequence[DataFile], columns: Sequence[str], where: BooleanExpression = _ALL) -> pa.Table:
        """The rows of some files, all or those of a condition; a column that a file is too old to have is null.

        Row groups whose statistics leave no room for such a row are not read.
        """
        schema = self._select(columns)
        scan = ArrowScan(self.metadata, self.io, schema, where)
        return scan.to_table([FileScanTask(file) for file in files]).select(columns)

    def batches(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows of one file in its order, about 8 MB at a time; a column that it is too old to have is null."""
        schema = schema_to_pyarrow(self._select(columns), include_field_ids=False)
        with self.io.new_input(file.file_path).open() as opened:
            # Not pre-buffered: only the pages that are being read are in memory.
            parquet = pq.ParquetFile(opened, pre_buffer=False, buffer_size=2**20)
            # Columns of our tables are never renamed, so names find them.
            there = [name for name in columns if name in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(_rows_a_batch(parquet.metadata), columns=there):
                yield pa.table(
                    [
                        batch.column(name).cast(schema.field(name).type)
                        if name in there
                        else pa.nulls(batch.num_rows, schema.field(name).type)
                        for name in columns
                    ],
                    names=list(columns),
                )

    def bounds(self, file: DataFile, column: str) -> tuple[datetime, datetime] | None:
        """The first and the last of the times in a column of a file, as its commit says; None if that does not tell."""
        field = self.metadata.schema().find_field(column).field_id
        bounds = [(of_all or {}).get(field) for of_all in (file.lower_bounds, file.upper_bounds)]
        first, last = (None if each is None else from_bytes(TimestamptzType(), each) for each in bounds)
        return None if first is None or last is None else (utc_datetime(int(first)), utc_datetime(int(last)))

    def bytes_of(self, files: Sequence[DataFile], columns: Sequence[str]) -> int:
        """What reading some columns takes at most: the files without those other columns whose size is known."""
        read = self._select(columns).field_ids
        known = ((file.column_sizes or {}).items() for file in files)
        unread = sum(size for sizes in known for field, size in sizes if field not in read)
        return sum(file.file_size_in_bytes for file in files) - unread

    def write(self, cell: Cell | None, rows: pa.Table) -> DataFile:
        """Write the rows of one cell, at least one, as one new file; rejected records have no cell."""
        place = (cell.partition, None if cell.bucket == NO_ENTITY else cell.bucket) if cell else (None, None)
        return self.write_at(place, rows)

    def write_at(self, place: Sequence[int | None], rows: pa.Table) -> DataFile:
        """Write rows, at least one, as one new file, whose partition has these values."""
        return self.new.write(place, rows)

    def partitioned(self, file: DataFile) -> DataFile:
        """The same file, which knows by which partitioning it was written: pickling makes it forget."""
        file.spec_id = self.metadata.default_spec_id
        return file


def in_larger(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in the same order, small batches of them joined: each costs what does not depend on its rows."""
    held: list[pa.Table] = []
    for batch in batches:
        held.append(batch)
        if sum(len(each) for each in held) >= _LARGER_ROWS or sum(each.nbytes for each in held) >= _BATCH_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def frame_of(rows: pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """The same rows for Polars."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def by_cell(rows: pl.DataFrame, length: timedelta, buckets: int) -> Iterator[tuple[Cell | None, pl.DataFrame]]:
    """Rows of `raw_events` by the cell they lie in, in their order; rejected ones lie in none."""
    partition = partition_ordinal(pl.col("event_time"), length).cast(pl.Int32)
    placed = rows.with_columns(_partition=partition, _bucket=buckets_of(rows["entity_id"], buckets))
    parts = placed.partition_by("_partition", "_bucket", as_dict=True, include_key=False, maintain_order=True)
    for (ordinal, bucket), part in parts.items():
        yield (None if ordinal is None else Cell(ordinal, bucket)), part


@dataclass
class HeldRows:
    """Rows of several cells, held in memory on their way into files."""

    size: int = 0
    """About how many bytes they have."""
    count: int = 0
    _rows: dict[Cell | None, list[pl.DataFrame]] = field(default_factory=dict)

    def hold(self, cell: Cell | None, rows: pl.DataFrame) -> None:
        """Hold some more."""
        self._rows.setdefault(cell, []).append(rows)
        self.size += _bytes(rows)
        self.count += len(rows)

    def sizes(self) -> dict[Cell | None, int]:
        """About how many bytes of each cell are held."""
        return {cell: sum(map(_bytes, parts)) for cell, parts in self._rows.items()}

    def take(self, cell: Cell | None) -> pl.DataFrame:
        """The rows of one cell, which are held no longer."""
        parts = self._rows.pop(cell)
        self.size -= sum(map(_bytes, parts))
        self.count -= sum(map(len, parts))
        return pl.concat(parts)

    def take_all(self) -> Iterator[tuple[Cell | None, pl.DataFrame]]:
        """The rows of every cell, one cell after the other."""
        return ((cell, self.take(cell)) for cell in list(self._rows))


def buckets_of(entities: pl.Series, buckets: int) -> pl.Series:
    """The bucket of each entity, as Iceberg's transform has it."""
    bucket = BucketTransform(buckets).pyarrow_transform(StringType())
    found = pl.from_arrow(bucket(entities.to_arrow(compat_level=pl.CompatLevel.oldest())))
    assert isinstance(found, pl.Series)
    return found.fill_null(NO_ENTITY)


def _bytes(rows: pl.DataFrame) -> int:
    return int(rows.estimated_size())


def _rows_a_batch(metadata: pq.FileMetaData) -> int:
    """As many rows as fit, by the mean size of the rows of the group whose rows are largest."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(largest, 1)))
