"""Times and dates in records: their texts as exact numbers, never through a float."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo

from dedup_platform.planning.moments import microseconds
from dedup_platform.stream import EPOCH_UNITS

__all__ = ["FROM_1970", "FROM_YEAR_1", "remembering", "time_reader"]

FROM_1970 = range(253_402_300_800_000_000)
"""Times of events and arrivals, in microseconds since 1970: up to the end of the year 9999."""
FROM_YEAR_1 = range(-62_135_596_800_000_000, FROM_1970.stop)
"""Times that Spark and Iceberg show: from the year 1 on."""

_SHORT = 64

_ISO_8601 = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII | re.IGNORECASE
)
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?", re.ASCII | re.IGNORECASE)

Value = TypeVar("Value")
TimeReader = Callable[[str], int | None]


def time_reader(time_format: str | None, timezone: str) -> TimeReader:
    """A function from a text to microseconds since 1970-01-01 UTC, or None if the text is no such time.

    `time_format` None is ISO 8601 (a date alone is its midnight); epoch_s, epoch_ms and epoch_us are numbers; anything
    else is strptime's. A time without an offset is in `timezone`. Digits beyond the microsecond are cut off.
    """
    if time_format in EPOCH_UNITS:
        return _epoch_reader(1_000_000 // EPOCH_UNITS[time_format])
    zone: tzinfo = UTC if timezone == "UTC" else ZoneInfo(timezone)
    parse = _parse_iso_8601 if time_format is None else _strptime(time_format)

    def read(text: str) -> int | None:
        try:
            moment = parse(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=zone)
            return microseconds(moment)
        except (ValueError, OverflowError):
            return None

    return remembering(read, texts=2**16)


def remembering(read: Callable[[str], Value], texts: int) -> Callable[[str], Value]:
    """`read` with a memory of the last `texts` short texts: values of events repeat."""
    remember = lru_cache(texts)(read)
    return lambda text: remember(text) if len(text) <= _SHORT else read(text)


def _parse_iso_8601(text: str) -> datetime:
    # fromisoformat alone reads digits without separators too, and so takes epoch numbers for dates.
    if not _ISO_8601.fullmatch(text):
        raise ValueError(text)
    return datetime.fromisoformat(text.upper())


def _strptime(time_format: str) -> Callable[[str], datetime]:
    return lambda text: datetime.strptime(text, time_format)


def _epoch_reader(microseconds_per_tick: int) -> TimeReader:
    def read(text: str) -> int | None:
        if not _NUMBER.fullmatch(text):
            return None
        ticks = int(text) if text.isdigit() else Fraction(text)
        return ticks * microseconds_per_tick // 1

    return read
