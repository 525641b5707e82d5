"""What messages with a schema hold: records of fields, told once for Avro and for Protobuf. Pure."""

from dataclasses import dataclass
from typing import Literal

from dedup_platform.sinks.sink import Target

Envelope = Literal["debezium", "row"]
"""Debezium's, with the row before and after, or the plain row."""
COMMIT_VERSION = 10_000
"""The number of `_commit_version`: a new table has fewer columns, see `schemas.iceberg_schema`."""


@dataclass(frozen=True)
class Field:
    """A field: its name, a number that it keeps for ever, and the type of a column (`tables.Column`) or a record."""

    name: str
    number: int
    type: "str | Record"
    is_optional: bool = True


@dataclass(frozen=True)
class Record:
    """Fields under a name."""

    name: str
    fields: tuple[Field, ...]


def shape(target: Target, envelope: Envelope) -> Record:
    """What the value of a message is."""
    columns = tuple(Field(column.name, number, str(column.type)) for number, column in target.numbered)
    if envelope == "row":
        return Record("Row", (*columns, Field("_commit_version", COMMIT_VERSION, "long", is_optional=False)))
    row = Record("Value", columns)
    return Record(
        "Envelope",
        (
            Field("op", 1, "string", is_optional=False),
            Field("before", 2, row),
            Field("after", 3, row),
            Field("source", 4, _SOURCE, is_optional=False),
            Field("ts_ms", 5, "long", is_optional=False),
            Field("transaction", 6, _TRANSACTION, is_optional=False),
        ),
    )


def row_of(record: Record) -> Record:
    """The record that has the columns of the table."""
    return next(
        (field.type for field in record.fields if field.name == "after" and isinstance(field.type, Record)), record
    )


_SOURCE = Record(
    "Source",
    (
        Field("connector", 1, "string", is_optional=False),
        Field("name", 2, "string", is_optional=False),
        Field("table", 3, "string", is_optional=False),
        Field("snapshot", 4, "string", is_optional=False),
        Field("ts_ms", 5, "long", is_optional=False),
        Field("version", 6, "long", is_optional=False),
        Field("ordinal", 7, "long", is_optional=False),
        Field("snapshot_id", 8, "long", is_optional=False),
        Field("reason", 9, "string"),
        Field("merged_into", 10, "string"),
        Field("split_from", 11, "string"),
        Field("changed_columns", 12, "list<string>"),
    ),
)
_TRANSACTION = Record(
    "Transaction",
    (Field("id", 1, "string", is_optional=False), Field("total_order", 2, "long", is_optional=False)),
)
