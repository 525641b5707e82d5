"""One snapshot of a table as a dataset of Arrow: who asks it for some columns and rows opens few files. No Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO, schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import LongType, PrimitiveType, TimestamptzType

__all__ = ["dataset_of"]

_BOUNDED = TimestamptzType | LongType
"""Types of columns whose bounds in manifests are exact: those of long texts are cut."""


def dataset_of(table: Table, snapshot_id: int, properties: Mapping[str, str]) -> ds.Dataset:
    """The rows of a snapshot, with the columns that the table had then; null where a file is too old to have one.

    A condition leaves out, unopened, the files whose bounds in the manifests leave no room for such a row, and then row
    groups. The platform deletes no single rows. If another writer did, the rows that are left in these files are read
    at once. `properties` are those of the file system.
    """
    scan = table.scan(snapshot_id=snapshot_id)
    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    whole, thinned = list[FileScanTask](), list[FileScanTask]()
    for task in scan.plan_files():
        (thinned if task.delete_files else whole).append(task)
    dataset = _of_files([task.file for task in whole], table.location(), schema, scan.projection(), properties)
    if not thinned:
        return dataset
    left = ArrowScan(table.metadata, table.io, scan.projection(), AlwaysTrue()).to_table(thinned)
    return ds.UnionDataset(schema, [dataset, ds.dataset(left.cast(schema))])


def _of_files(
    files: list[DataFile], place: str, schema: pa.Schema, projection: Schema, properties: Mapping[str, str]
) -> ds.Dataset:
    io = PyArrowFileIO(dict(properties))
    scheme, host, _ = io.parse_location(place)
    file_system, parquet = io.fs_by_scheme(scheme, host), ds.ParquetFileFormat()
    columns = list(_bounded_columns(projection, schema))
    fragments = [
        parquet.make_fragment(
            io.parse_location(file.file_path)[2],
            file_system,
            partition_expression=_known_of(file, columns),
            file_size=file.file_size_in_bytes,
        )
        for file in files
    ]
    # Columns of our tables are never renamed, so names find them.
    return ds.FileSystemDataset(fragments, schema, parquet, file_system)


@dataclass(frozen=True)
class _Column:
    number: int
    iceberg_type: PrimitiveType
    arrow_type: pa.DataType
    value: pc.Expression


def _bounded_columns(projection: Schema, schema: pa.Schema) -> Iterator[_Column]:
    for field in projection.fields:
        if isinstance(field.field_type, _BOUNDED):
            arrow_type = schema.field(field.name).type
            yield _Column(field.field_id, field.field_type, arrow_type, pc.field(field.name))


def _known_of(file: DataFile, columns: list[_Column]) -> pc.Expression:
    """What holds for every row of a file, as the manifest tells: its values lie within their bounds, none is null."""
    lower, upper, nulls = file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    known = pc.scalar(True)
    for each in columns:
        if nulls.get(each.number) == 0 and each.number in lower and each.number in upper:
            bounds = (from_bytes(each.iceberg_type, bound[each.number]) for bound in (lower, upper))
            first, last = (pa.scalar(bound, each.arrow_type) for bound in bounds)
            known &= (each.value >= first) & (each.value <= last)
    return known
