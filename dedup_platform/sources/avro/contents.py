"""What data of one Avro schema hold, one by one and a column at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from dedup_platform.sources.avro.columns import DatumColumns
from dedup_platform.sources.avro.datum import MalformedDatumError, datum_reader
from dedup_platform.sources.contents import Contents, EncodedContents, NamedField, SeparateContents
from dedup_platform.sources.records import MALFORMED_RECORD, Content
from dedup_platform.sources.texts import Texts, no_texts, text_of
from dedup_platform.stream.paths import Step

__all__ = ["AvroContents", "Resolution", "SchemaReader"]


@dataclass(frozen=True)
class Resolution:
    """Which field of a schema is which field of the one that data were written by, and what the others are."""

    sources: Mapping[str, str]
    defaults: Mapping[str, Any]


class SchemaReader:
    """Reads data that were written by one schema (parsed by `avro_record`), resolved to another if need be."""

    def __init__(self, written: Mapping[str, Any], resolution: Resolution | None) -> None:
        self._written = written
        self._resolution = resolution
        self._read = datum_reader(written)
        names = [field["name"] for field in written["fields"]]
        self._sources = resolution.sources if resolution else dict(zip(names, names, strict=True))
        self._defaults = resolution.defaults if resolution else {}

    def content(self, payload: bytes) -> Content:
        """The fields of one datum, which fills the payload."""
        try:
            fields, end = self._read(payload, 0)
        except MalformedDatumError:
            return MALFORMED_RECORD
        if end != len(payload):
            return MALFORMED_RECORD
        if self._resolution is None:
            return fields
        return {**{name: fields[source] for name, source in self._sources.items()}, **self._defaults}

    def contents(self, payloads: pl.Series) -> Contents:
        """The fields of many: binary values, each a datum."""
        if self.columns is None:
            return SeparateContents(payloads, self.content)
        return AvroContents(payloads, self, self.columns)

    @cached_property
    def columns(self) -> DatumColumns | None:
        """What reads many data of the schema together; None if they are read one by one."""
        try:
            return DatumColumns(self._written)
        except (RecursionError, ValueError):
            return None

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields of every datum."""
        return [*self._sources, *self._defaults]

    def way(self, field: NamedField) -> Sequence[Step] | None:
        """The way to a field's value in what was written; None if it is not in there."""
        path = field.path
        name = path.plain or (path.name if path.name in self.names else None)
        first, *others = (name,) if name is not None else path.steps
        return (self._sources[str(first)], *others) if first in self._sources else None

    def default(self, field: NamedField) -> str | None:
        """The text of a value that is not in what was written."""
        return text_of(field.value(self._defaults, ""))


class AvroContents(EncodedContents):
    """Those of data of one schema."""

    def __init__(self, payloads: pl.Series, reader: SchemaReader, columns: DatumColumns) -> None:
        super().__init__(payloads)
        self._reader = reader
        self._columns = columns

    def _content(self, payload: bytes) -> Content:
        return self._reader.content(payload)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        ways = [self._reader.way(field) for field in fields]
        known, in_doubt = self._columns.texts(self._payloads, [way for way in ways if way is not None])
        following = iter(known)
        return [
            Texts(self._all(self._reader.default(field)), in_doubt) if way is None else next(following)
            for field, way in zip(fields, ways, strict=True)
        ]

    @property
    def names(self) -> Sequence[str] | None:
        return self._reader.names if self._columns.are_plain else None

    @property
    def kind(self) -> object:
        return self._reader

    def _all(self, text: str | None) -> pl.Series:
        if text is None:
            return no_texts(len(self))
        return pl.Series([text], dtype=pl.String).new_from_index(0, len(self))
