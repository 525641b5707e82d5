"""What the definition of a field in a stream file means: which value of a record it is.

This is the one place that says so. Whoever reads columns at once gives what these functions give for each record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dedup_platform.sources.contents import Contents
from dedup_platform.sources.records import AMBIGUOUS, Fields
from dedup_platform.stream.paths import FieldPath, FieldSpelling, Step, field_path

__all__ = ["ABSENT", "FieldReader", "field_reader"]

ABSENT = object()
"""The value of what is not there; null is there."""


@dataclass(frozen=True)
class FieldReader:
    """Reads one field of records."""

    path: FieldPath
    find: Callable[[Fields], Any]
    """The value in a record: ABSENT if there is none, AMBIGUOUS if its column has no name of its own."""
    names: tuple[str, ...]
    """The fields of the record itself that decide the value."""

    def value(self, fields: Fields) -> Any:
        """The value in a record, None if there is none."""
        found = self.find(fields)
        return None if found is ABSENT else found

    def values(self, contents: Contents) -> Sequence[Any]:
        """The value in each of some records."""
        if self.path.plain:
            return contents.column(self.path.plain)
        return [self.value(fields) for fields in contents.fields(self.names)]

    def missing(self, fields: Fields) -> str | None:
        """What a record that has none of `names` lacks."""
        return None if any(name in fields for name in self.names) else self.path.text


def field_reader(field: FieldSpelling, file_format: str) -> FieldReader:
    """The reader of what a stream file names, for records of a format: rows of Parquet have maps as lists of pairs."""
    path = field_path(field)
    if path.plain:
        return FieldReader(path, _named(path.plain), (path.plain,))
    names = tuple(name for name in (path.name, path.top) if name)
    return FieldReader(path, _found(path, file_format == "parquet"), names)


def _named(name: str) -> Callable[[Fields], Any]:
    return lambda fields: fields.get(name, ABSENT)


def _found(path: FieldPath, maps_are_pairs: bool) -> Callable[[Fields], Any]:
    def find(fields: Fields) -> Any:
        if path.name is not None and path.name in fields:
            return fields[path.name]
        value: Any = fields
        for step in path.steps:
            value = _inner(value, step, maps_are_pairs)
        return value

    return find


def _inner(value: Any, step: Step, maps_are_pairs: bool) -> Any:
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
