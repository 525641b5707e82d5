"""What a field of a stream file means: which value of a record it is, alone (`find`) and in columns (`texts`).

This is the one place that says so. Whoever reads columns in another way must find what `find` does.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import polars as pl

from dedup_platform.sources.contents import NamedField, RecordColumns
from dedup_platform.sources.records import AMBIGUOUS, Fields
from dedup_platform.sources.texts import ABSENT, Texts, any_of, not_empty, text_of
from dedup_platform.sources.times import ZONE_MARK
from dedup_platform.stream import Attribute, TimeField, ZoneField
from dedup_platform.stream.definitions import Constant, Definition, FilePath, FirstOf, Join, TextPattern
from dedup_platform.stream.paths import FieldPath, Step, field_path

__all__ = ["FieldReader", "RecordColumns", "field_reader", "step_into", "time_field_reader"]

_NO_VALUE = (None, "")


class FieldReader:
    """Reads one field of records. `path` is that of the record's file below the source's root."""

    @abstractmethod
    def find(self, fields: Fields, path: str) -> Any:
        """The value in a record: ABSENT if there is none, AMBIGUOUS if its column has no name of its own."""

    def value(self, fields: Fields, path: str) -> Any:
        """The value in a record, None if there is none."""
        found = self.find(fields, path)
        return None if found is ABSENT else found

    @property
    def named(self) -> Sequence[NamedField]:
        """The fields of records that decide; none where only the file does."""
        return ()

    @abstractmethod
    def texts(self, records: "RecordColumns") -> Texts:
        """What `text_of` says of the value in each of some records."""

    def missing(self, fields: Fields) -> str | None:  # noqa: ARG002  # most look at none
        """The column that a record of columns would need for this and does not have; None if it has it."""
        return None


def field_reader(field: Definition, file_format: str) -> FieldReader:
    """The reader of what a stream file names, for records of a format."""
    match field:
        case FirstOf(first_of=parts):
            return _FirstOf([field_reader(part, file_format) for part in parts])
        case Join(join=parts, between=between):
            return _Join([field_reader(part, file_format) for part in parts], between)
        case TextPattern(pattern=pattern, field=part):
            return _TextPattern(field_reader(part, file_format), pattern)
        case Constant(constant=text):
            return _Constant(text)
        case FilePath(path=pattern):
            return _FilePath(pattern)
    path = field_path(field)
    return _Named(path, path.plain) if path.plain else _Path(path, maps_are_pairs=file_format == "parquet")


def time_field_reader(time: TimeField | Attribute, file_format: str) -> FieldReader:
    """The reader of a time's text, with its zone behind ZONE_MARK where that stands in the record, too."""
    text = field_reader(time.field, file_format)
    if not isinstance(time.timezone, ZoneField):
        return text
    return _Zoned((text, field_reader(time.timezone.field, file_format)))


class _OfRecord(FieldReader):
    """What stands in the record at one place."""

    path: FieldPath

    @property
    def named(self) -> Sequence[NamedField]:
        return (self,)

    def texts(self, records: RecordColumns) -> Texts:
        return records.texts(self)


class _Named(_OfRecord):
    """A field of the record itself."""

    def __init__(self, path: FieldPath, name: str) -> None:
        self.path = path
        self._name = name

    def find(self, fields: Fields, path: str) -> Any:  # noqa: ARG002
        return fields.get(self._name, ABSENT)

    def value(self, fields: Fields, path: str) -> Any:  # noqa: ARG002
        return fields.get(self._name)

    def missing(self, fields: Fields) -> str | None:
        return None if self._name in fields else self._name


class _Path(_OfRecord):
    """What a path leads to. Rows of Parquet have their maps as lists of pairs."""

    def __init__(self, path: FieldPath, maps_are_pairs: bool) -> None:
        self.path = path
        self._maps_are_pairs = maps_are_pairs
        self._names = tuple(name for name in (path.name, path.top) if name)

    def find(self, fields: Fields, path: str) -> Any:  # noqa: ARG002
        name = self.path.name
        if name is not None and name in fields:
            return fields[name]
        value: Any = fields
        for step in self.path.steps:
            value = step_into(value, step, self._maps_are_pairs)
        return value

    def missing(self, fields: Fields) -> str | None:
        return None if any(name in fields for name in self._names) else self.path.text


def step_into(value: Any, step: Step, maps_are_pairs: bool) -> Any:
    """What a step into a value leads to. Into null it leads to null."""
    if value is None or value is AMBIGUOUS:
        return value
    if isinstance(value, dict) and isinstance(step, str):
        return value.get(step, ABSENT)
    if isinstance(value, list):
        if isinstance(step, int):
            return value[step] if step < len(value) else ABSENT
        if maps_are_pairs:
            return _of_key(value, step)
    return ABSENT


def _of_key(pairs: list[Any], key: str) -> Any:
    """The last value of a key in a list of [key, value]."""
    values = [pair[1] for pair in pairs if isinstance(pair, list) and len(pair) == 2 and pair[0] == key]
    return values[-1] if values else ABSENT


class _OfParts(FieldReader):
    """What is made of several."""

    def __init__(self, parts: Sequence[FieldReader]) -> None:
        self._parts = parts

    @property
    def named(self) -> Sequence[NamedField]:
        return [field for part in self._parts for field in part.named]

    def _texts(self, records: RecordColumns) -> list[Texts]:
        return [part.texts(records) for part in self._parts]


class _FirstOf(_OfParts):
    def find(self, fields: Fields, path: str) -> Any:
        return _first(part.value(fields, path) for part in self._parts)

    def texts(self, records: RecordColumns) -> Texts:
        parts = self._texts(records)
        return _combined(pl.coalesce([not_empty(part.values) for part in parts]), parts)

    def missing(self, fields: Fields) -> str | None:
        lacking = [part.missing(fields) for part in self._parts]
        return lacking[0] if all(lacking) else None


def _first(values: Iterable[Any]) -> Any:
    return next((value for value in values if value not in _NO_VALUE), None)


class _Join(_OfParts):
    def __init__(self, parts: Sequence[FieldReader], between: str) -> None:
        super().__init__(parts)
        self._between = between

    def find(self, fields: Fields, path: str) -> Any:
        return self._joined([part.value(fields, path) for part in self._parts])

    def texts(self, records: RecordColumns) -> Texts:
        parts = self._texts(records)
        there = [not_empty(part.values) for part in parts]
        return _combined(pl.concat_str(there, separator=self._between), parts)

    def missing(self, fields: Fields) -> str | None:
        return next((lacking for part in self._parts if (lacking := part.missing(fields))), None)

    def _joined(self, values: Sequence[Any]) -> Any:
        if AMBIGUOUS in values:
            return AMBIGUOUS
        texts = [text_of(value) for value in values]
        return self._between.join(text for text in texts if text) if all(texts) else None


class _TextPattern(FieldReader):
    def __init__(self, part: FieldReader, pattern: str) -> None:
        self._part = part
        self._pattern = pattern

    def find(self, fields: Fields, path: str) -> Any:
        value = self._part.value(fields, path)
        return value if value is AMBIGUOUS else _matched(self._pattern, text_of(value))

    @property
    def named(self) -> Sequence[NamedField]:
        return self._part.named

    def texts(self, records: RecordColumns) -> Texts:
        part = self._part.texts(records)
        return Texts(part.values.str.extract(self._pattern), part.in_doubt)

    def missing(self, fields: Fields) -> str | None:
        return self._part.missing(fields)


class _Zoned(_OfParts):
    def find(self, fields: Fields, path: str) -> Any:
        text, zone = self._parts
        return _zoned(text.value(fields, path), zone.value(fields, path))

    def texts(self, records: RecordColumns) -> Texts:
        text, zone = self._texts(records)
        name = zone.values.fill_null("").str.replace_all(ZONE_MARK, " ", literal=True)
        zoned = pl.concat_str(text.values, pl.lit(ZONE_MARK), name)
        return _combined(pl.when(text.values == "").then(text.values).otherwise(zoned), (text, zone))

    def missing(self, fields: Fields) -> str | None:
        return self._parts[0].missing(fields)


def _zoned(text: Any, zone: Any) -> Any:
    if AMBIGUOUS in (text, zone) or text in _NO_VALUE:
        return AMBIGUOUS if text not in _NO_VALUE else text
    # The last mark is the one: a zone that has one in it is none anyway.
    return ZONE_MARK.join((text_of(text) or "", (text_of(zone) or "").replace(ZONE_MARK, " ")))


class _Constant(FieldReader):
    def __init__(self, text: str) -> None:
        self._text = text

    def find(self, fields: Fields, path: str) -> Any:  # noqa: ARG002
        return self._text

    def texts(self, records: RecordColumns) -> Texts:
        return Texts(pl.repeat(self._text, records.count, dtype=pl.String, eager=True))


class _FilePath(FieldReader):
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._matched: Callable[[str], str | None] = lru_cache(1024)(lambda path: _matched(pattern, path))

    def find(self, fields: Fields, path: str) -> Any:  # noqa: ARG002
        return self._matched(path)

    def texts(self, records: RecordColumns) -> Texts:
        return Texts(records.paths.str.extract(self._pattern))


def _matched(pattern: str, text: str | None) -> str | None:
    """What the group of a pattern finds in a text."""
    found: str | None = pl.Series([text], dtype=pl.String).str.extract(pattern).item()
    return found


def _combined(values: pl.Expr, parts: Iterable[Texts]) -> Texts:
    return Texts(pl.select(values).to_series(), any_of(part.in_doubt for part in parts))
