"""Typed attributes: the exact value of a text, in the form that Arrow takes."""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import inf, isfinite, nan
from typing import Any

from dedup_platform.sources.times import FROM_YEAR_1, remembering, time_reader
from dedup_platform.stream import ISO_8601, Attribute, decimal_of, formats_of

__all__ = ["attribute_reader"]

_EXACT = Context(prec=76, traps=[Inexact, InvalidOperation])  # decimal(38,38) of a number below 10 ** 38
_LONG = range(-(2**63), 2**63)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,4})?", re.ASCII | re.IGNORECASE)
_NO_NUMBERS = {"nan": nan, "inf": inf, "infinity": inf, "-inf": -inf, "-infinity": -inf}
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

AttributeReader = Callable[[str], Any]


def attribute_reader(attribute: Attribute) -> AttributeReader | None:
    """A function from a text to the attribute's value, or None if the text is none; None for texts (they are read as
    they are).

    long takes whole numbers however they are written (17850.0 is 17850), decimal takes what fits without rounding,
    boolean takes true, false, 1 and 0. timestamp is in microseconds since 1970, date in days.
    """
    if attribute.type == "string":
        return None
    return remembering(_reader(attribute), texts=2**14)


def _reader(attribute: Attribute) -> AttributeReader:
    if size := decimal_of(attribute.type):
        return _decimal_reader(*size)
    if attribute.type == "timestamp":
        return _timestamp_reader(attribute)
    if attribute.type == "date":
        return _date_reader(attribute.format)
    return {"long": _read_long, "double": _read_double, "boolean": lambda text: _BOOLEANS.get(text.lower())}[
        attribute.type
    ]


def _read_long(text: str) -> int | None:
    number = _exact(text, scale=0)
    return int(number) if number is not None and int(number) in _LONG else None


def _read_double(text: str) -> float | None:
    if not _NUMBER.fullmatch(text):
        return _NO_NUMBERS.get(text.lower())
    number = float(text)
    # -0.0 would make min and max depend on the order of events.
    return number + 0.0 if isfinite(number) else None


def _decimal_reader(precision: int, scale: int) -> AttributeReader:
    def read(text: str) -> Decimal | None:
        number = _exact(text, scale)
        return number if number is not None and number.adjusted() < precision - scale else None

    return read


def _exact(text: str, scale: int) -> Decimal | None:
    """The number of a text with so many decimals; None if it is none, needs more decimals, or is far too long."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except (Inexact, InvalidOperation):
        return None


def _timestamp_reader(attribute: Attribute) -> AttributeReader:
    read_time = time_reader(attribute.format, attribute.timezone)

    def read(text: str) -> int | None:
        moment = read_time(text)
        return moment if moment is not None and moment in FROM_YEAR_1 else None

    return read


def _date_reader(formats: str | tuple[str, ...] | None) -> AttributeReader:
    def read(text: str) -> int | None:
        days = (_date(text, each) for each in formats_of(formats))
        return next((day.toordinal() - _EPOCH_ORDINAL for day in days if day), None)

    return read


def _date(text: str, date_format: str) -> date | None:
    try:
        if date_format != ISO_8601:
            return datetime.strptime(text, date_format).date()
        return date.fromisoformat(text) if _ISO_DATE.fullmatch(text) else None
    except ValueError:
        return None
