"""Data of one Avro schema read together, field after field in all of them, without an object for each value.

They say what `datum_reader` says of each. What that takes more than a look for is in doubt: data that are not what the
schema says, records inside themselves, long lists, and lists and records that are asked for as a whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sources.avro.cursors import Asked, Cursor, Longs
from dedup_platform.sources.avro.logical_types import logical_type
from dedup_platform.sources.avro.walks import (
    PRIMITIVES,
    Walk,
    as_they_are,
    texts_or_numbers,
    walk_bytes,
    walk_doubtful,
    walk_enum,
    walk_fixed,
    walk_items,
    walk_longs,
    walk_map,
    walk_record,
    walk_union,
)
from dedup_platform.sources.binary_columns import EncodedBytes
from dedup_platform.sources.text.typed_texts import (
    base64_texts,
    date_texts,
    decimal_texts,
    moments_of,
    time_texts,
    timestamp_texts,
    uuid_texts,
)
from dedup_platform.sources.texts import Texts, quoted_texts
from dedup_platform.stream.paths import Step

__all__ = ["DatumColumns"]

_MOST_LEVELS = 50
_MOST_DIGIT_BYTES = 1000
"""Longer decimals may have more digits than Python writes."""


class DatumColumns:
    """Reads data of a schema (parsed by `avro_record`). ValueError if columns do not do for it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        made = _Walks(schema["__named_schemas"]).of(schema)
        if made.levels > _MOST_LEVELS:
            raise ValueError("it has too many levels")
        self._walk = made.walk
        self.are_plain = made.levels == 1
        """Whether no field has parts."""

    def texts(self, data: pl.Series, ways: Sequence[Sequence[Step]]) -> tuple[list[Texts], pl.Series | None]:
        """The texts of what each of some ways leads to in all data, null where it leads nowhere; and which data are in
        doubt."""
        asked = Asked()
        ends_of_ways = [asked.into(way) for way in ways]
        in_doubt = self._found(data, asked)
        return [each.texts(len(data), in_doubt) for each in ends_of_ways], in_doubt

    def written(self, data: pl.Series, names: Sequence[str]) -> tuple[list[tuple[Texts, pl.Series]], pl.Series | None]:
        """The texts and the JSON of these fields, each without parts, in all data; and which data are in doubt."""
        asked = Asked(steps={name: Asked(is_asked=True, is_written=True) for name in names})
        in_doubt = self._found(data, asked)
        fields = (asked.steps[name] for name in names)
        return [(each.texts(len(data), in_doubt), each.json(len(data))) for each in fields], in_doubt

    def _found(self, data: pl.Series, asked: Asked) -> pl.Series | None:
        encoded, begins, ends = EncodedBytes.of(data)
        doubts = np.zeros(len(data), np.bool_)
        cursor = Cursor(encoded, begins.copy(), ends, np.arange(len(data)), doubts)
        self._walk(cursor, asked)
        cursor.doubt_all_but_at_end()
        return pl.Series(doubts) if doubts.any() else None


@dataclass(frozen=True)
class _Made:
    """The walk over a type, and how many records and lists are inside one another in it."""

    walk: Walk
    levels: int = 0


class _Walks:
    """Makes the walks over a schema's types. A type with a name has one, to which all its uses lead."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, _Made] = {}

    def of(self, schema: Any) -> _Made:
        if isinstance(schema, list):
            branches = [self.of(branch) for branch in schema]
            return _Made(walk_union([each.walk for each in branches]), _most_levels(branches))
        if isinstance(schema, str):
            primitive = PRIMITIVES.get(schema)
            return _Made(primitive) if primitive else self._made.get(schema) or self.of(self._named[schema])
        if "name" not in schema:
            return self._complex(schema)
        self._made[schema["name"]] = _Made(walk_doubtful, 1)  # as long as it is being made: inside itself
        made = self._made[schema["name"]] = self._complex(schema)
        return made

    def _complex(self, schema: Mapping[str, Any]) -> _Made:
        match schema["type"]:
            case "record" | "error":
                return self._record(schema["fields"])
            case "enum":
                return _Made(walk_enum(schema["symbols"]) if schema["symbols"] else walk_doubtful)
            case "array":
                items = self.of(schema["items"])
                return _Made(walk_items(items.walk), 1 + items.levels)
            case "map":
                values = self.of(schema["values"])
                return _Made(walk_map(values.walk), 1 + values.levels)
        if walk := _logical(schema):
            return _Made(walk)
        return (
            _Made(walk_fixed(schema["size"], base64_texts, quoted_texts))
            if "size" in schema
            else self.of(schema["type"])
        )

    def _record(self, fields: Sequence[Mapping[str, Any]]) -> _Made:
        made = {field["name"]: self.of(field["type"]) for field in fields}
        if len(made) < len(fields):
            raise ValueError("two fields have one name")
        return _Made(walk_record({name: each.walk for name, each in made.items()}), 1 + _most_levels(made.values()))


def _most_levels(made: Iterable[_Made]) -> int:
    return max((each.levels for each in made), default=0)


def _logical(schema: Mapping[str, Any]) -> Walk | None:
    logical = logical_type(schema)
    if logical is None:
        return None
    ticks = logical.ticks
    match logical.name:
        case "timestamp":
            return walk_longs(lambda numbers: _timestamps(numbers, ticks, logical.zone), texts_or_numbers)
        case "time":
            return walk_longs(lambda numbers: Texts(time_texts(numbers, ticks)), texts_or_numbers)
        case "date":
            return walk_longs(lambda numbers: Texts(date_texts(numbers)), texts_or_numbers)
        case "uuid":
            return walk_fixed(16, uuid_texts, quoted_texts)
    texts_of = partial(decimal_texts, scale=logical.scale)
    if schema["type"] == "bytes":
        return walk_bytes(texts_of, as_they_are, _MOST_DIGIT_BYTES)
    if schema["size"] > _MOST_DIGIT_BYTES:
        raise ValueError("its decimals are too long")
    return walk_fixed(schema["size"], texts_of, as_they_are)


def _timestamps(numbers: Longs, ticks: int, zone: str) -> Texts:
    return Texts(timestamp_texts(numbers, ticks, zone), moments=moments_of(numbers, ticks) if zone else None)
