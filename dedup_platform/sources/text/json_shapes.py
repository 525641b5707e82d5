"""JSON records read by columns: records that differ in nothing but their scalars are of one shape.

The first record of a shape is judged as one that is read alone. From it comes a regular expression that matches all
records of its shape, and takes the values of the fields that are asked for. What it matches is well formed: scalars
stand where scalars stood. Records that are of no shape that many have are in doubt.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sources.contents import NamedField
from dedup_platform.sources.text.expressions import Expressions, Groups
from dedup_platform.sources.text.json_records import canonical, json_content, json_value
from dedup_platform.sources.texts import Texts, no_texts

__all__ = ["JsonShapes"]

_FEW = 100
"""Reading so many records alone costs no more than a shape."""
_STRIDE = 7919
_WASTED = 4
"""After so many shapes that few records of a batch have, the rest of it is read alone."""
_MOST_SHAPES = 32
"""Each takes longer to prepare than to read a few hundred records alone."""
_LONGEST_SAMPLE = 4096

_SPACE = r"[ \t\n\r]*"
_HEX = "[0-9a-fA-F]"
_PAIR = rf"[89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_CODE = f"(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD](?:[0-7]{_HEX}{{2}}|{_PAIR}))"
_LETTERS = rf'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u{_CODE}))*'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SCALAR = f'(?:"{_LETTERS}"|{_NUMBER}|true|false|null)'
_TAKEN_SCALAR = f'(?:"({_LETTERS})"|({_NUMBER}|true|false)|null)'
_LIST = rf"\[{_SPACE}(?:{_SCALAR}{_SPACE}(?:,{_SPACE}{_SCALAR}{_SPACE})*)?\]"
_SCALAR_STATES, _LIST_STATES = 45, 110
_WORD = r'[^ \t\n\r,:\[\]{}"]++'
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_ANY = f"(?:{_STRING}|{_WORD}){_SPACE}+"
_PIECE_OF_LISTS = re.compile(rf"(?P<common>{_STRING}{_SPACE}+:|[ \t\n\r,:\[\]{{}}])|(?P<scalar>{_STRING}|{_WORD})")
_PIECE = re.compile(rf"(?P<list>\[{_SPACE}+(?:{_ANY}(?:,{_SPACE}+{_ANY})*+)?+\])|{_PIECE_OF_LISTS.pattern}")
_RECORD, _PLACE = "record", "place"


class JsonShapes:
    """The shapes that records have had so far. Made for those of one stream."""

    def __init__(self) -> None:
        self._known: dict[tuple[NamedField, ...], list[_Shape]] = {}

    def texts(self, records: pl.Series, fields: Sequence[NamedField]) -> list[Texts]:
        """The texts of each field in each of some records, given as texts; null is a record in doubt."""
        fields = tuple(fields)
        batch = _Batch(records)
        helped: list[tuple[int, _Shape]] = []
        for shape in self._known.get(fields, ()):
            helped.append((batch.take(shape), shape))
        wasted = 0
        while batch.has_many and wasted < _WASTED and len(helped) < _MOST_SHAPES:
            new = _shape_of(batch.sample(), fields)
            taken = batch.take(new) if new else 0
            if new and taken:
                helped.append((taken, new))
            else:
                batch.leave_sample()
            wasted += taken < _FEW
        helped.sort(key=itemgetter(0), reverse=True)
        self._known[fields] = [shape for taken, shape in helped if taken >= _FEW]
        return batch.texts(len(fields))


class _Batch:
    """Records that are brought to their shapes: what was found of some, and the rest."""

    def __init__(self, records: pl.Series) -> None:
        self._count = len(records)
        self._rest = pl.DataFrame({_RECORD: records}).with_row_index(_PLACE).filter(pl.col(_RECORD).is_not_null())
        self._found: list[pl.DataFrame] = []
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


@dataclass(frozen=True)
class _Slot:
    """Where the records of a shape have values of their own: scalars, or lists of scalars."""

    number: int
    is_list: bool


class _Shape:
    """What all records of a shape have in common, and where they have the values of some fields."""

    def __init__(self, record: str, fields: Sequence[NamedField]) -> None:
        pieces = _pieces(
            record, has_lists=not any(isinstance(step, int) for each in fields for step in each.path.steps)
        )
        # Scalars are written as whole numbers there and lists as fractions, for JSON to bring them to their places.
        text = "".join(
            f"{piece.number}{'.0' * piece.is_list}" if isinstance(piece, _Slot) else piece for piece in pieces
        )
        content = json.loads(
            text,
            parse_int=lambda number: _Slot(int(number), is_list=False),
            parse_float=lambda number: _Slot(int(float(number)), is_list=True),
        )
        self._values = [field.find(content, "") for field in fields]
        self.is_telling = not any(isinstance(value, dict | list) for value in self._values)
        self._expressions = Expressions()
        self.groups = self._expressions.groups
        self._places: dict[_Slot, tuple[int, str]] = {}
        for piece in pieces:
            self._add(piece)

    def _add(self, piece: str | _Slot) -> None:
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
        if not isinstance(value, _Slot):
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
    if len(record) > _LONGEST_SAMPLE or isinstance(json_content(record.encode()), str):
        return None
    shape = _Shape(record, fields)
    return shape if shape.is_telling else None


def _pieces(record: str, has_lists: bool) -> list[str | _Slot]:
    """A record taken apart: what all of its shape have, and slots for what each has of its own."""
    pieces: list[str | _Slot] = []
    numbers = count()
    for found in (_PIECE if has_lists else _PIECE_OF_LISTS).finditer(record):
        if found.lastgroup == "common":
            pieces.append(found[0])
        else:
            pieces.append(_Slot(next(numbers), found.lastgroup == "list"))
    return pieces


def _unescaped(texts: pl.Series) -> pl.Series:
    """Texts from how they stand between quotes."""
    escaped = texts.str.contains("\\", literal=True).fill_null(False)
    if not escaped.any():
        return texts
    read = [json.loads(f'"{text}"') for text in texts.filter(escaped)]
    return texts.scatter(escaped.arg_true(), pl.Series(read, dtype=pl.String))
