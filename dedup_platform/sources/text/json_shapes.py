"""JSON records read by columns: records that differ in nothing but their scalars are of one shape.

The first record of a shape is judged as one that is read alone. From it comes a regular expression that matches all
records of its shape, and takes the values of the fields that are asked for. What it matches is well formed: scalars
stand where scalars stood. Records that are of no shape that many have are in doubt.

Most need no expression: their layout tells.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sources.contents import NamedField
from dedup_platform.sources.text.expressions import Expressions, Groups
from dedup_platform.sources.text.json_layouts import JsonLayouts, LaidOut
from dedup_platform.sources.text.json_pieces import (
    NUMBER,
    SPACE,
    Piece,
    Slot,
    is_sample,
    pieces_of,
    taken_by_kind,
    values_in,
)
from dedup_platform.sources.text.json_records import canonical, json_value
from dedup_platform.sources.texts import Texts, no_texts

__all__ = ["JsonShapes"]

_FEW = 100
"""Reading so many records alone costs no more than a shape."""
_STRIDE = 7919
_MOST_SHAPES = 32
"""Each takes longer to prepare than to read a few hundred records alone."""

_HEX = "[0-9a-fA-F]"
_PAIR = rf"[89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_CODE = f"(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD](?:[0-7]{_HEX}{{2}}|{_PAIR}))"
_LETTERS = rf'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u{_CODE}))*'
_SCALAR = f'(?:"{_LETTERS}"|{NUMBER}|true|false|null)'
_TAKEN_SCALAR = f'(?:"({_LETTERS})"|({NUMBER}|true|false)|null)'
_LIST = rf"\[{SPACE}(?:{_SCALAR}{SPACE}(?:,{SPACE}{_SCALAR}{SPACE})*)?\]"
_SCALAR_STATES, _LIST_STATES = 45, 110
_RECORD, _PLACE = "record", "place"


class JsonShapes:
    """The shapes that records have had so far. Made for those of one stream."""

    def __init__(self) -> None:
        self._known: dict[tuple[NamedField, ...], list[_Shape]] = {}
        self._layouts = JsonLayouts()

    def texts(self, records: pl.Series, fields: Sequence[NamedField]) -> list[Texts]:
        """The texts of each field in each of some records, given as texts; null is a record in doubt."""
        fields = tuple(fields)
        laid_out = self._layouts.read(records, fields)
        in_doubt = pl.Series(~laid_out.is_known)
        if in_doubt.sum() < _FEW:
            return [Texts(texts, in_doubt if in_doubt.any() else None) for texts in laid_out.texts]
        batch = _Batch(records, laid_out)
        self._known[fields] = taken_by_kind(
            batch, self._known.get(fields, ()), lambda sample: _shape_of(sample, fields), _MOST_SHAPES, _FEW
        )
        return batch.texts(len(fields))


class _Batch:
    """Records that are brought to their shapes: what was found of some, and the rest."""

    def __init__(self, records: pl.Series, laid_out: LaidOut) -> None:
        self._count = len(records)
        is_known = pl.Series(laid_out.is_known)
        texts = [each.alias(str(number)) for number, each in enumerate(laid_out.texts)]
        rows = pl.DataFrame([records.alias(_RECORD), *texts]).with_row_index(_PLACE)
        self._rest = rows.filter(~is_known & records.is_not_null()).select(_PLACE, _RECORD)
        self._found = [rows.filter(is_known).drop(_RECORD)]
        self._sampled = 0

    @property
    def has_many(self) -> bool:
        """Whether a shape of the rest would be worth it."""
        return len(self._rest) >= _FEW

    def sample(self) -> str:
        """One of the rest: of many shapes, all the more likely one that many have."""
        self._sampled = (self._sampled + _STRIDE) % len(self._rest)
        record: str = self._rest[_RECORD][self._sampled]
        return record

    def leave_sample(self) -> None:
        """Leave the record of `sample` in doubt."""
        place = self._rest[_PLACE][self._sampled]
        self._rest = self._rest.filter(pl.col(_PLACE) != place)

    def take(self, shape: "_Shape") -> int:
        """Take the records of a shape from the rest, if that is worth it; so many there were."""
        if not self.has_many:
            return 0
        groups, is_taken = shape.groups(self._rest[_RECORD])
        count = int(is_taken.sum())
        if count:
            places = self._rest.select(_PLACE).filter(is_taken)
            self._found.append(places.hstack(shape.texts([each.filter(is_taken) for each in groups])))
            self._rest = self._rest.filter(~is_taken)
        return count

    def texts(self, fields: int) -> list[Texts]:
        """The texts of so many fields in all records."""
        names = list(map(str, range(fields)))
        none = pl.DataFrame({_PLACE: [self._count]}, {_PLACE: pl.UInt32}).with_columns(
            pl.lit(None, pl.String).alias(name) for name in names
        )
        found = pl.concat([*self._found, none])
        taken = len(found) - 1
        rows = np.full(self._count + 1, taken, np.uint32)
        rows[found[_PLACE].to_numpy()] = np.arange(len(found), dtype=np.uint32)
        is_whole = taken == self._count
        in_doubt = None if is_whole else pl.Series(rows[:-1] == taken)
        if is_whole and len(self._found) == 1:
            return [Texts(found[name][:-1]) for name in names]
        values = found.select(names)[pl.Series(rows[:-1])]
        return [Texts(values[name], in_doubt) for name in names]


class _Shape:
    """What all records of a shape have in common, and where they have the values of some fields."""

    def __init__(self, record: str, fields: Sequence[NamedField]) -> None:
        has_lists = not any(isinstance(step, int) for each in fields for step in each.path.steps)
        pieces = pieces_of(record, has_lists)
        self._values = values_in(pieces, fields)
        self.is_telling = not any(isinstance(value, dict | list) for value in self._values)
        self._expressions = Expressions()
        self.groups = self._expressions.groups
        self._places: dict[Slot, tuple[int, str]] = {}
        for piece in pieces:
            self._add(piece)

    def _add(self, piece: Piece) -> None:
        if isinstance(piece, str):
            self._expressions.add_literal(piece)
            return
        is_taken = piece in self._values
        if piece.is_list:
            place = self._expressions.add(f"({_LIST})" if is_taken else _LIST, _LIST_STATES, int(is_taken))
        else:
            place = self._expressions.add(_TAKEN_SCALAR if is_taken else _SCALAR, _SCALAR_STATES, 2 * is_taken)
        self._places[piece] = place

    def texts(self, groups: Groups) -> pl.DataFrame:
        """The texts of the fields in order, from what was found in records of this shape."""
        count = len(groups[0])
        texts = (self._texts(value, groups) for value in self._values)
        return pl.DataFrame(
            [(no_texts(count) if each is None else each).alias(str(number)) for number, each in enumerate(texts)]
        )

    def _texts(self, value: Any, groups: Groups) -> pl.Series | None:
        if not isinstance(value, Slot):
            return None  # it is absent
        number, group = self._places[value]
        texts = groups[number][group]
        if value.is_list:
            return pl.Series([canonical(json_value(text.encode())) for text in texts], dtype=pl.String)
        words = groups[number][str(int(group) + 1)]
        texts = _unescaped(texts)
        return texts if words.null_count() == len(words) else texts.zip_with(texts.is_not_null(), words)


def _shape_of(record: str, fields: Sequence[NamedField]) -> _Shape | None:
    """The shape of a record, if columns can tell of its fields and it is not malformed."""
    if not is_sample(record):
        return None
    shape = _Shape(record, fields)
    return shape if shape.is_telling else None


def _unescaped(texts: pl.Series) -> pl.Series:
    """Texts from how they stand between quotes."""
    escaped = texts.str.contains("\\", literal=True).fill_null(False)
    if not escaped.any():
        return texts
    read = [json.loads(f'"{text}"') for text in texts.filter(escaped)]
    return texts.scatter(escaped.arg_true(), pl.Series(read, dtype=pl.String))
