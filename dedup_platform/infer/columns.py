"""Records as columns of texts: one for each field, nested ones too, by the path that a stream file names it by."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import polars as pl

from dedup_platform.sources.records import AMBIGUOUS, Fields
from dedup_platform.sources.text.json_records import Number
from dedup_platform.stream.paths import text_of_steps

__all__ = ["ID_WORDS", "Column", "columns_of", "is_number", "percent", "words_of"]

ID_WORDS = frozenset({"id", "uuid", "guid", "uid", "key", "number", "no", "nr", "sn"})
"""What names of identifiers end in."""
_DEPTH = 4
_MOST = 300
"""Columns; of keys that are data there may be very many."""
_LONGEST = 1024
"""Characters of a text that are looked at."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True)
class Column:
    """One field in all records: texts, null where a record has no value or an empty one."""

    field: str
    """As a stream file names it."""
    steps: tuple[str, ...]
    texts: pl.Series
    kinds: frozenset[type]
    """Of the values: str, Number, bool."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The words of the last name, in small letters: `user`, `id` of `actor.userId`."""
        return words_of(self.steps[-1])

    @cached_property
    def filled(self) -> float:
        """The share of records that have a value."""
        return 1 - self.texts.null_count() / len(self.texts) if len(self.texts) else 0.0

    @cached_property
    def different(self) -> int:
        """How many different values there are."""
        return int(self.texts.drop_nulls().n_unique())

    @cached_property
    def repeated(self) -> float:
        """The share of values that an earlier record had, too."""
        there = len(self.texts) - self.texts.null_count()
        return 1 - self.different / there if there else 0.0

    @property
    def depth(self) -> int:
        """How deep it lies: 0 in the record itself."""
        return len(self.steps) - 1

    @property
    def evidence(self) -> str:
        """What tells of it, in words."""
        return f"non-null {percent(self.filled)}, repeated {percent(self.repeated)}"

    def all_are(self, kind: type) -> bool:
        """Whether all values are of this type."""
        return self.kinds == {kind}

    def all_match(self, pattern: str) -> bool:
        """Whether there are values, and all match."""
        there = self.texts.drop_nulls()
        return bool(len(there)) and bool(there.str.contains(f"^(?:{pattern})$").all())


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name, in small letters, however it is written."""
    return tuple(word.lower() for word in _WORD.findall(name))


def percent(share: float) -> str:
    """A share of a whole: `2 %`; never 0 % of what is there, nor 100 % of what is not whole."""
    rounded = round(100 * share)
    if 0 < share < 0.005:
        return "< 1 %"
    return "> 99 %" if rounded == 100 and share < 1 else f"{rounded} %"


def columns_of(records: Sequence[Fields], is_flat: bool) -> list[Column]:
    """The columns of records, in the order in which fields come up; without lists. `is_flat`: names are no paths."""
    found: dict[tuple[str, ...], list[str | None]] = {}
    kinds: dict[tuple[str, ...], set[type]] = {}
    for number, record in enumerate(records):
        for steps, value in _values(record, is_flat):
            if steps not in found:
                if len(found) == _MOST:
                    continue
                found[steps], kinds[steps] = [None] * len(records), set()
            if value not in (None, ""):
                found[steps][number] = _text(value)
                kinds[steps].add(type(value))
    named = ((steps, steps[0] if len(steps) == 1 else text_of_steps(steps)) for steps in found)
    return [
        Column(field, steps, pl.Series(field, found[steps], dtype=pl.String), frozenset(kinds[steps]))
        for steps, field in named
        if kinds[steps]
    ]


def _values(record: Fields, is_flat: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    waiting: list[tuple[tuple[str, ...], Any]] = [((name,), value) for name, value in islice(record.items(), _MOST)]
    while waiting:
        steps, value = waiting.pop(0)
        if isinstance(value, Mapping):
            if len(steps) < _DEPTH and not is_flat:
                inner = [((*steps, name), each) for name, each in islice(value.items(), _MOST) if name]
                waiting = [*inner, *waiting][: 2 * _MOST]
        elif not isinstance(value, list) and value is not AMBIGUOUS:
            yield steps, value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)[:_LONGEST]


def is_number(column: Column) -> bool:
    """Whether all values are numbers, written as such or as texts."""
    return column.all_are(Number) or column.all_match(r"[+-]?[0-9]+(?:\.[0-9]+)?")
