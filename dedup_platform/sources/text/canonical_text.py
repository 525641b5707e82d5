"""Typed values of Avro and Protobuf as what JSON would say of them, so that one event has one id in every format.

Whole numbers and floats are Numbers (5, 0.1, 1e+20), the shortest that read back equal at the float's own size; NaN and
the infinities are texts. Bytes are base64. A time is ISO 8601 with 0, 3, 6 or 9 decimals; one that a calendar of the
years 1 to 9999 does not have stays the Number that was sent.
"""

import base64
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite, isnan

import numpy as np

from dedup_platform.sources.text.json_records import Number

__all__ = ["base64_text", "date_text", "decimal_text", "double_text", "float_text", "time_text", "timestamp_text"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # the zone's letter is added to the text
_SECONDS = range(-62_135_596_800, 253_402_300_800)  # the years 1 to 9999
_DAYS = range(-719_162, 2_932_897)


def double_text(value: float) -> str:
    """The Number of a 64-bit float, or the text NaN, Infinity or -Infinity."""
    if isfinite(value):
        return Number(repr(value))
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def float_text(value: float) -> str:
    """The same of a 32-bit float: 0.1 rather than 0.10000000149011612."""
    return double_text(float(str(np.float32(value))))


def decimal_text(unscaled: int, scale: int) -> Number:
    """The Number of an exact decimal, all of its decimals written out."""
    return Number(format(Decimal(f"{unscaled}e-{scale}"), "f"))


def base64_text(value: bytes) -> str:
    """Bytes in the standard alphabet, padded."""
    return base64.b64encode(value).decode()


def timestamp_text(ticks: int, per_second: int, zone: str) -> str:
    """A moment, given in ticks since 1970-01-01, and behind it `zone`: Z, or nothing for a time on the wall."""
    seconds, fraction = divmod(ticks, per_second)
    if seconds not in _SECONDS:
        return Number(ticks)
    return (_EPOCH + timedelta(seconds=seconds)).isoformat() + _decimals(fraction, per_second) + zone


def date_text(days: int) -> str:
    """The date so many days after 1970-01-01."""
    return date.fromordinal(days + 719_163).isoformat() if days in _DAYS else Number(days)


def time_text(ticks: int, per_second: int) -> str:
    """The time of a day so many ticks after midnight."""
    if not 0 <= ticks < 86_400 * per_second:
        return Number(ticks)
    return timestamp_text(ticks, per_second, "")[11:]


def _decimals(fraction: int, per_second: int) -> str:
    if not fraction:
        return ""
    nanoseconds = f"{fraction * (1_000_000_000 // per_second):09}"
    return "." + nanoseconds.removesuffix("000").removesuffix("000")
