"""The texts of values: what a value of a record says, alone and in columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from json.encoder import encode_basestring
from operator import or_
from typing import Any

import polars as pl

from dedup_platform.sources.records import AMBIGUOUS, MALFORMED_RECORD, RejectedError
from dedup_platform.sources.text.json_records import Number, canonical

__all__ = [
    "ABSENT",
    "MUST_BE_ESCAPED",
    "Texts",
    "any_of",
    "no_texts",
    "not_empty",
    "quoted_texts",
    "text_of",
    "texts_of",
]

MUST_BE_ESCAPED = r'["\\\x00-\x1f]'
"""What cannot stand as it is between the quotes of JSON."""

ABSENT = object()
"""The value of what is not there; null is there."""


def text_of(value: Any) -> str | None:
    """The text of a field's value: None for null, canonical JSON for nested values, a number as it was written."""
    if type(value) is str or value is None:
        return value
    if value is AMBIGUOUS:
        raise RejectedError(MALFORMED_RECORD)
    return str(value) if isinstance(value, Number) else canonical(value)


@dataclass(frozen=True)
class Texts:
    """What `text_of` says of one field's value in each of some records, as far as columns tell."""

    values: pl.Series
    """Texts; null where the value is null or absent, anything where the record is in doubt."""
    in_doubt: pl.Series | None = None
    """Booleans: which records must be asked themselves, because their column does not tell. None: not one."""
    moments: pl.Series | None = None
    """Microseconds since 1970 of texts in ISO 8601 with an offset, if the source knows them; null where it does not."""


def texts_of(values: "Sequence[Any] | pl.Series") -> Texts:
    """The texts of values as Python has them; values that are neither texts nor None are in doubt. Series of texts and
    of booleans are taken as they are."""
    if isinstance(values, pl.Series):
        return Texts(values.cast(pl.String))
    try:
        return Texts(pl.Series(values, dtype=pl.String, strict=True))
    except (TypeError, ValueError):
        known = [value if isinstance(value, str) else None for value in values]
        in_doubt = [not (value is None or value is ABSENT or isinstance(value, str)) for value in values]
        return Texts(pl.Series(known, dtype=pl.String), pl.Series(in_doubt, dtype=pl.Boolean))


def any_of(doubts: Iterable[pl.Series | None]) -> pl.Series | None:
    """The records that are in doubt for one reason or another."""
    different = {id(each): each for each in doubts if each is not None}
    return reduce(or_, different.values()) if different else None


def no_texts(count: int) -> pl.Series:
    """So many nulls."""
    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def not_empty(texts: pl.Series) -> pl.Expr:
    """Texts, with null in the place of empty ones."""
    return pl.when(texts != "").then(texts)


def quoted_texts(texts: pl.Series) -> pl.Series:
    """Each text as JSON; null for null."""
    quoted = pl.select(pl.concat_str(pl.lit('"'), pl.lit(texts), pl.lit('"'))).to_series()
    odd = texts.str.contains(MUST_BE_ESCAPED).fill_null(False).arg_true()
    return quoted.scatter(odd, [encode_basestring(text) for text in texts[odd]]) if len(odd) else quoted
