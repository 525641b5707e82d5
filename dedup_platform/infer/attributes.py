"""Further columns of the events: names and types for fields that nothing else is made of."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from dedup_platform.infer.columns import ID_WORDS, Column, is_number, words_of
from dedup_platform.infer.times import TimeColumn
from dedup_platform.sources.text.json_records import Number
from dedup_platform.stream import RESERVED_COLUMNS

__all__ = ["ProposedAttribute", "attributes_of"]

_MOST = 12
_MOST_ASIDE = 20
_FILLED = 0.5
_ENOUGH = 100
"""Texts that must look alike before they are taken for numbers: one that is none would be rejected."""
_DECIMALS = ((0, "long"), (4, '"decimal(18,4)"'), (8, '"decimal(28,8)"'))


@dataclass(frozen=True)
class ProposedAttribute:
    """A column by a name of its own; `type` as a stream file has it, None for texts."""

    name: str
    column: Column
    type: str | None
    format: str | None = None


def attributes_of(
    columns: Iterable[Column], taken: Iterable[str], times: Iterable[TimeColumn]
) -> tuple[list[ProposedAttribute], list[ProposedAttribute]]:
    """Those to begin with, and others to choose from: what few records have, or is nested deep."""
    left_out = set(taken)
    names: set[str] = set()
    moments = {each.main.field: each for each in times if len(each.columns) == 1 and not each.is_local}
    found = [
        _attribute(each, names, moments.get(each.field))
        for each in columns
        if each.field not in left_out and (each.different > 1 or each.filled < 1)
    ]
    first = [each for each in found if _is_wanted(each.column)][:_MOST]
    return first, [each for each in found if each not in first][:_MOST_ASIDE]


def _is_wanted(column: Column) -> bool:
    is_link = column.depth > 0 and column.words[-1:] == ("url",)
    return column.filled >= _FILLED and column.depth < 2 and not is_link


def _attribute(column: Column, names: set[str], time: TimeColumn | None) -> ProposedAttribute:
    name = next(each for each in _names(column) if each not in names and each not in RESERVED_COLUMNS)
    names.add(name)
    if time is not None:
        # Numbers that could be times may as well be none.
        if time.format == "iso8601" and time.has_clock:
            return ProposedAttribute(name, column, "timestamp")
        return ProposedAttribute(name, column, None)
    return ProposedAttribute(name, column, _type(column))


def _names(column: Column) -> Iterator[str]:
    """The last step, as many steps before it as it takes, then numbers; one of a single word says little by itself."""
    last = len(column.steps) - 1
    for first in range(max(0, last - (len(column.words) < 2)), -1, -1):
        name = "_".join(word for step in column.steps[first:] for word in words_of(step))[:60]
        if re.match("[a-z]", name):
            yield name
    yield from (f"field_{number}" for number in count(1))


def _type(column: Column) -> str | None:
    if column.all_are(bool):
        return "boolean"
    there = column.texts.drop_nulls()
    if column.words[-1:] and column.words[-1] in ID_WORDS:
        return None
    if not is_number(column) or not (column.all_are(Number) or len(there) >= _ENOUGH):
        return None
    if there.str.contains(r"^[+-]?0[0-9]|[eE]").any() or there.str.len_chars().max() > 15:  # type: ignore[operator]
        return None  # 007 is a name, and what is so long, too
    decimals = max(len(text.partition(".")[2].rstrip("0")) for text in there)
    return next((name for most, name in _DECIMALS if decimals <= most), "double")
