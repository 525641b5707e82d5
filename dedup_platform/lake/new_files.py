"""New data files of a table: where they lie, how they are written, and what a commit is told of them.

What all files of a table have in common is worked out once: PyIceberg's own writer does so for each, which takes longer
than to write a few hundred rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import LocationProvider, load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import BinaryType, NestedField, StructType, TimestamptzType

_CODEC, _LEVEL = "zstd", 1
_WITHOUT_DICTIONARY = BinaryType | TimestamptzType
"""Types of columns whose values hardly ever repeat: to look for a dictionary takes longer than to write them."""
_SAMPLES, _SAMPLE_ROWS = 8, 128
"""Whether the values of another column repeat is told by so many samples, which lie evenly among the rows."""
_FEW_REPEATED = 0.03
"""Where fewer of a sample's values are in it twice, a file has so many values that few would be in its dictionary."""


class NewFiles:
    """Writes files of one table as it was when this was made."""

    def __init__(self, metadata: TableMetadata, io: FileIO) -> None:
        self._metadata = metadata
        self._io = io

    def key(self, place: Sequence[int | None]) -> PartitionKey:
        """The partition that has these values."""
        spec = self._metadata.spec()
        values = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, place, strict=True)]
        return PartitionKey(values, spec, self.schema)

    def location(self, key: PartitionKey) -> str:
        """Where another file of a partition goes; nobody else gets the same."""
        return self._locations.new_data_location(f"00000-0-{uuid4()}.parquet", key)

    def write(self, place: Sequence[int | None], rows: pa.Table) -> DataFile:
        """Write rows, at least one, as a file whose partition has these values."""
        rows = rows.select(self._names).cast(self.arrow_schema)
        key = self.key(place)
        path = self.location(key)
        output = self._io.new_output(path)
        with output.create(overwrite=True) as out:
            with pq.ParquetWriter(
                out,
                self.arrow_schema,
                store_decimal_as_integer=True,
                use_dictionary=self._with_dictionary(rows),
                **self._options,
            ) as writer:
                writer.write_table(rows, self._rows_a_group)
            footer = writer.writer.metadata
        return self.described(path, key, len(output), footer)

    def described(self, path: str, key: PartitionKey, size: int, footer: pq.FileMetaData) -> DataFile:
        """What a commit is told of a file that was written."""
        statistics = data_file_statistics_from_parquet_metadata(footer, *self._statistics)
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=key.partition,
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self._metadata.default_spec_id
        return file

    @cached_property
    def schema(self) -> Schema:
        """The table's, with the names that its files have, and without comments, which no file need repeat."""
        return Schema(*_without_comments(sanitize_column_names(self._metadata.schema()).fields))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The same for Arrow, with the ids of fields."""
        return schema_to_pyarrow(self.schema)

    def _with_dictionary(self, rows: pa.Table) -> Sequence[str]:
        """Paths in the file of the columns that are worth one: those whose values repeat, or that are few."""
        if len(rows) < _SAMPLES * _SAMPLE_ROWS:
            return self._may_repeat
        asked = rows.select([name for name in rows.column_names if name in self._may_repeat])
        starts = [number * len(rows) // _SAMPLES for number in range(_SAMPLES)]
        sample = pa.concat_tables([asked.slice(start, _SAMPLE_ROWS) for start in starts])
        distinct = {name for name in asked.column_names if _hardly_repeats(sample.column(name))}
        return [path for path in self._may_repeat if path not in distinct]

    @cached_property
    def _may_repeat(self) -> Sequence[str]:
        """Paths in a file of the columns that may have a dictionary."""
        _, paths = self._statistics
        types = {path: self.schema.find_type(number) for path, number in paths.items()}
        return [path for path, of_type in types.items() if not isinstance(of_type, _WITHOUT_DICTIONARY)]

    @cached_property
    def _names(self) -> list[str]:
        return [field.name for field in self._metadata.schema().fields]

    @cached_property
    def _locations(self) -> LocationProvider:
        return load_location_provider(self._metadata.location, self._metadata.properties)

    @cached_property
    def _statistics(self) -> tuple[dict[int, Any], dict[str, int]]:
        return compute_statistics_plan(self.schema, self._metadata.properties), parquet_path_to_id_mapping(self.schema)

    @cached_property
    def _options(self) -> Mapping[str, Any]:
        said = self._metadata.properties
        return {
            "compression": said.get(TableProperties.PARQUET_COMPRESSION, _CODEC),
            "compression_level": int(said.get(TableProperties.PARQUET_COMPRESSION_LEVEL, _LEVEL)),
            "dictionary_pagesize_limit": self._number(
                TableProperties.PARQUET_DICT_SIZE_BYTES, TableProperties.PARQUET_DICT_SIZE_BYTES_DEFAULT
            ),
            "write_batch_size": TableProperties.PARQUET_PAGE_ROW_LIMIT_DEFAULT,
        }

    @cached_property
    def _rows_a_group(self) -> int:
        return self._number(TableProperties.PARQUET_ROW_GROUP_LIMIT, TableProperties.PARQUET_ROW_GROUP_LIMIT_DEFAULT)

    def _number(self, name: str, default: int) -> int:
        return int(self._metadata.properties.get(name, default))


def _without_comments(fields: Iterable[NestedField]) -> Iterator[NestedField]:
    for field in fields:
        kind = field.field_type
        kind = StructType(*_without_comments(kind.fields)) if isinstance(kind, StructType) else kind
        yield NestedField(field.field_id, field.name, kind, required=field.required)


def _hardly_repeats(sample: pa.ChunkedArray) -> bool:
    """Whether nearly all values differ; where most are null there are too few to tell."""
    values = len(sample) - sample.null_count
    distinct = pc.count_distinct(sample, mode="only_valid").as_py()
    return 2 * values >= len(sample) and values - distinct < _FEW_REPEATED * values
