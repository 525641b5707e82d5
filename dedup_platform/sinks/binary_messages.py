"""Changes as messages of Avro or Protobuf: values in Debezium's envelope or as plain rows. Pure.

They are worked out column by column: no value of a row ever is an object of Python.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import polars as pl
import pyarrow.compute as pc

from dedup_platform.rules.changes import DELETE, INSERT, POSTIMAGE
from dedup_platform.sinks.avro import Avro
from dedup_platform.sinks.column_bytes import Array, Piece, constant, joined, or_else
from dedup_platform.sinks.messages import told
from dedup_platform.sinks.protobuf import Protobuf
from dedup_platform.sinks.shapes import Envelope, Field, Record, row_of, shape
from dedup_platform.sinks.sink import Target

Values = Mapping[str, Any]
"""Field -> its values: a column, of records a column of what they are as bytes, or `Values` of their fields."""


class Codec(Protocol):
    """How fields are written."""

    absent: bytes
    """What stands for null."""

    def schema(self, record: Record, namespace: str) -> str:
        """The text of a schema."""

    def value(self, field: Field, values: pl.Series) -> list[Piece]:
        """The values of a field; whatever stands for its nulls is replaced."""

    def record(self, field: Field, content: Array) -> list[Piece]:
        """A record inside of another one."""


CODECS: dict[str, Codec] = {"avro": Avro(), "protobuf": Protobuf()}


class Binary:
    """Values by a schema, behind a prefix that is that of all."""

    def __init__(self, target: Target, envelope: Envelope, codec: Codec, prefix: bytes = b"") -> None:
        self.target = target
        self._codec, self._prefix = codec, prefix
        self._record = shape(target, envelope)
        self._row = row_of(self._record)

    @property
    def schema(self) -> str:
        """The text of the schema."""
        return self._codec.schema(self._record, f"{self.target.stream}.{self.target.table}")

    def row(self, changes: pl.DataFrame) -> pl.Series:
        """Each row by itself, as it is inside of an envelope or, without one, the value."""
        columns = [field for field in self._row.fields if isinstance(field.type, str)]
        return _series(self._joined(columns, {field.name: changes[field.name] for field in columns}, len(changes)))

    def values(self, rows: pl.DataFrame, begins: bool) -> pl.Series:
        """What is told of each change; without an envelope null of what is gone."""
        after = rows["_after"].to_arrow()
        if self._row is self._record:
            content = joined([constant(self._prefix), after], len(rows))
            return _series(or_else(pc.is_valid(after), content, None))
        values = _envelope(rows, self.target, begins)
        return _series(self._joined(self._record.fields, values, len(rows), constant(self._prefix)))

    def _joined(self, fields: Any, values: Values, rows: int, *before: Piece) -> Array:
        pieces = (piece for field in fields for piece in self._pieces(field, values[field.name], rows))
        return joined([*before, *pieces], rows)

    def _pieces(self, field: Field, values: Any, rows: int) -> Iterator[Piece]:
        if isinstance(field.type, str):
            yield from self._column(field, values)
            return
        is_told = isinstance(values, Mapping)
        content = self._joined(field.type.fields, values, rows) if is_told else values.to_arrow()
        yield from self._codec.record(field, content)

    def _column(self, field: Field, values: pl.Series) -> list[Piece]:
        if len(values) > 1 and _is_constant(values):
            return [joined(self._column(field, values[:1]), 1)[0]]
        pieces = self._codec.value(field, values)
        if not values.null_count():
            return pieces
        is_there = values.is_not_null().to_arrow()
        first, *others = pieces
        return [or_else(is_there, first, self._codec.absent), *(or_else(is_there, each, b"") for each in others)]


def _is_constant(values: pl.Series) -> bool:
    if values.null_count() or isinstance(values.dtype, pl.List):
        return values.null_count() == len(values)
    return bool((values == values[0]).all())


def _series(content: Array) -> pl.Series:
    return pl.Series(values=content, dtype=pl.Binary)


def _envelope(rows: pl.DataFrame, target: Target, begins: bool) -> Values:
    kinds = {INSERT: "r" if begins else "c", POSTIMAGE: "u", DELETE: "d"}
    version, ordinal = rows["_commit_version"], rows["_change_ordinal"]
    milliseconds = rows["_commit_timestamp"].dt.epoch("ms")
    source = {
        "connector": "dedup_platform",
        "name": target.stream,
        "table": target.table,
        "snapshot": str(begins).lower(),
    }
    return {
        "op": rows["_change_type"].replace_strict(kinds),
        "before": rows["_before"],
        "after": rows["_after"],
        "source": {name: pl.Series([text]).new_from_index(0, len(rows)) for name, text in source.items()}
        | {"ts_ms": milliseconds, "version": version, "ordinal": ordinal, "snapshot_id": rows["_commit_snapshot_id"]}
        | {
            name: rows.with_columns(told(rows, target, name).alias("_"))["_"]
            for name in ("reason", "merged_into", "split_from", "changed_columns")
        },
        "ts_ms": milliseconds,
        "transaction": {"id": version.cast(pl.String), "total_order": ordinal},
    }
