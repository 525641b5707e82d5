"""What the tables are to Spark and to Iceberg: their schemas, and the properties that they are created with."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyspark.sql import types as spark_types

from dedup_platform.comments import column_comments
from dedup_platform.stream import Stream
from dedup_platform.tables import (
    AUDIT,
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    EVENT_CHANGES,
    RAW_EVENTS,
    SESSION_ALIASES,
    SESSION_CHANGES,
    SESSION_FRAGMENTS,
    SESSIONS,
    Column,
    columns,
)

PROPERTIES = {
    "format-version": "2",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    # Ids, times and texts hardly repeat: a dictionary of them is given up late, and its pages are wasted.
    "write.parquet.dict-size-bytes": "65536",
    "write.distribution-mode": "hash",
    "write.spark.fanout.enabled": "false",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.metadata.metrics.default": "none",
    "commit.retry.num-retries": "10",
    # A commit rewrites, and whoever folds it reads, whole manifests of the cells that it replaces: so many bytes hold
    # about two thousand entries, whatever the table's size. The default, 8 MB, holds sixty thousand.
    "commit.manifest.target-size-bytes": str(256 * 1024),
    "history.expire.max-snapshot-age-ms": str(365 * 86_400_000),
}
"""What every table is created with. Metrics are kept only for the columns that planning prunes by (`MEASURED`)."""

MEASURED = {
    RAW_EVENTS: ("event_time", "arrival_time"),
    DUPLICATE_EVENTS: ("event_time",),
    DEDUPLICATED_EVENTS: ("event_time", "arrival_time"),
    SESSION_FRAGMENTS: ("first_event_time", "last_event_time"),
    SESSIONS: ("started_at", "ended_at"),
    EVENT_CHANGES: ("_commit_version", "_change_ordinal"),
    SESSION_CHANGES: ("_commit_version", "_change_ordinal"),
    SESSION_ALIASES: ("entity_id",),
    AUDIT: ("committed_at",),
}
"""Columns whose lower and upper bounds go into the manifests."""

WEIGHED = {RAW_EVENTS: ("payload",)}
"""Columns whose size goes into the manifests: what a file weighs to whoever leaves them out is less by that."""


def raw_schema(stream: Stream) -> spark_types.StructType:
    """The Spark schema of `raw_events`, which sources must return."""
    return spark_schema(columns(stream, RAW_EVENTS))


def spark_schema(table_columns: tuple[Column, ...]) -> spark_types.StructType:
    """The Spark schema of some columns."""
    schema = spark_types.StructType()
    for column in table_columns:
        schema.add(column.name, _spark_type(column.type))
    return schema


def _spark_type(column_type: str | tuple[Column, ...]) -> spark_types.DataType | str:
    if not isinstance(column_type, str):
        return spark_schema(column_type)
    return spark_types.ArrayType(spark_types.StringType()) if column_type == "list<string>" else column_type


def table_schema(stream: Stream, table: str) -> Schema:
    """The Iceberg schema that a table is created with: its columns, each with its comment."""
    return Schema(*_commented(iceberg_schema(columns(stream, table)).fields, column_comments(stream, table)))


def _commented(fields: Iterable[NestedField], comments: Mapping[str, str], above: str = "") -> Iterator[NestedField]:
    for field in fields:
        path, kind = f"{above}{field.name}", field.field_type
        if isinstance(kind, StructType):
            kind = StructType(*_commented(kind.fields, comments, f"{path}."))
        yield NestedField(field.field_id, field.name, kind, required=False, doc=comments.get(path))


@cache
def iceberg_schema(table_columns: tuple[Column, ...]) -> Schema:
    """The Iceberg schema of some columns, with field ids in their order."""
    return Schema(*_iceberg_fields(table_columns, iter(range(1, 10_000))))


def _iceberg_fields(table_columns: tuple[Column, ...], ids: Iterator[int]) -> list[NestedField]:
    return [
        NestedField(next(ids), column.name, _iceberg_type(column.type, ids), required=False) for column in table_columns
    ]


def _iceberg_type(column_type: str | tuple[Column, ...], ids: Iterator[int]) -> IcebergType:
    if not isinstance(column_type, str):
        return StructType(*_iceberg_fields(column_type, ids))
    if column_type == "list<string>":
        return ListType(next(ids), StringType(), element_required=False)
    if column_type.startswith("decimal"):
        precision, scale = map(int, re.findall(r"\d+", column_type))
        return DecimalType(precision, scale)
    return _ICEBERG_TYPES[column_type]


_ICEBERG_TYPES: dict[str, IcebergType] = {
    "string": StringType(),
    "long": LongType(),
    "integer": IntegerType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestamptzType(),
    "date": DateType(),
    "binary": BinaryType(),
}
