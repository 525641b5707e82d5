"""JSON records taken apart: what all records that are written alike have in common, and what each has of its own."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from dedup_platform.sources.contents import NamedField
from dedup_platform.sources.text.json_records import json_content

__all__ = ["NUMBER", "SPACE", "Piece", "Sampled", "Slot", "is_sample", "pieces_of", "taken_by_kind", "values_in"]

_LONGEST_SAMPLE = 4096
_WASTED = 4
"""After so many kinds that few records of a batch have, the rest of it is read in another way."""

SPACE = r"[ \t\n\r]*"
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORD = r'[^ \t\n\r,:\[\]{}"]++'
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_ANY = f"(?:{_STRING}|{_WORD}){SPACE}+"
_PIECE_OF_LISTS = re.compile(rf"(?P<common>{_STRING}{SPACE}+:|[ \t\n\r,:\[\]{{}}])|(?P<scalar>{_STRING}|{_WORD})")
_PIECE = re.compile(rf"(?P<list>\[{SPACE}+(?:{_ANY}(?:,{SPACE}+{_ANY})*+)?+\])|{_PIECE_OF_LISTS.pattern}")


@dataclass(frozen=True)
class Slot:
    """Where records that are written alike have values of their own: scalars, or lists of scalars."""

    number: int
    is_list: bool
    is_quoted: bool
    """Whether the record that was taken apart has a string there."""


Piece = str | Slot
"""Text that all have, or a slot."""


def pieces_of(record: str, has_lists: bool) -> list[Piece]:
    """A well-formed record taken apart; `has_lists` makes one slot of a list of scalars."""
    pieces: list[Piece] = []
    numbers = count()
    for found in (_PIECE if has_lists else _PIECE_OF_LISTS).finditer(record):
        if found.lastgroup == "common":
            pieces.append(found[0])
        else:
            pieces.append(Slot(next(numbers), found.lastgroup == "list", found[0].startswith('"')))
    return pieces


def values_in(pieces: Sequence[Piece], fields: Iterable[NamedField]) -> list[Any]:
    """Of each field its slot, or what is there instead: a list or a mapping with slots in it, or nothing."""
    slots = {piece.number: piece for piece in pieces if isinstance(piece, Slot)}
    # Scalars are written as whole numbers there and lists as fractions, for JSON to bring them to their places.
    text = "".join(f"{piece.number}{'.0' * piece.is_list}" if isinstance(piece, Slot) else piece for piece in pieces)
    content = json.loads(
        text, parse_int=lambda number: slots[int(number)], parse_float=lambda number: slots[int(float(number))]
    )
    return [field.find(content, "") for field in fields]


def is_sample(record: str) -> bool:
    """Whether a record is well formed, and short enough to learn from it."""
    return len(record) <= _LONGEST_SAMPLE and isinstance(json_content(record.encode()), dict)


Kind = TypeVar("Kind")
_Kind = TypeVar("_Kind", contravariant=True)


class Sampled(Protocol[_Kind]):
    """Records that are taken by their kinds."""

    @property
    def has_many(self) -> bool:
        """Whether another kind would be worth it for what is left."""

    def sample(self) -> str:
        """One of the rest."""

    def leave_sample(self) -> None:
        """Never give this one again."""

    def take(self, kind: _Kind) -> int:
        """Take those of a kind; so many there were."""


def taken_by_kind(
    records: Sampled[Kind], known: Iterable[Kind], kind_of: Callable[[str], Kind | None], most: int, few: int
) -> list[Kind]:
    """Take records by the kinds that are known, then by those of samples; returns which are worth to be known on,
    the most frequent first: at most so many, and none that only a few records are of."""
    helped = [(records.take(kind), kind) for kind in known]
    wasted = 0
    while records.has_many and wasted < _WASTED and len(helped) < most:
        new = kind_of(records.sample())
        taken = records.take(new) if new else 0
        if new and taken:
            helped.append((taken, new))
        else:
            records.leave_sample()
        wasted += taken < few
    helped.sort(key=itemgetter(0), reverse=True)
    return [kind for taken, kind in helped if taken >= few]
