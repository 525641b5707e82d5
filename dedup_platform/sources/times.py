"""Times and dates in records: their texts as exact numbers, never through a float."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from fractions import Fraction
from functools import lru_cache
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dedup_platform.planning.moments import microseconds
from dedup_platform.stream import EPOCH_UNITS, ISO_8601, ZoneField, formats_of

__all__ = ["FROM_1970", "FROM_YEAR_1", "ZONE_MARK", "remembering", "time_reader"]

FROM_1970 = range(253_402_300_800_000_000)
"""Times of events and arrivals, in microseconds since 1970: up to the end of the year 9999."""
FROM_YEAR_1 = range(-62_135_596_800_000_000, FROM_1970.stop)
"""Times that Spark and Iceberg show: from the year 1 on."""

_SHORT = 64

ZONE_MARK = "\0"
"""Between the text of a time and its zone where both stand in the record: what no time has in it."""

_ISO_8601 = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d(?::?[0-5]\d)?)?)?", re.ASCII | re.IGNORECASE
)
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?", re.ASCII)
# What is left out is another thing on another machine.
_ZONE_NAME = re.compile(r"(?!localtime|posix|right)[A-Za-z][A-Za-z0-9_+/-]{0,63}", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?", re.ASCII | re.IGNORECASE)

Value = TypeVar("Value")
TimeReader = Callable[[str], int | None]


def time_reader(formats: str | tuple[str, ...] | None, zone: str | ZoneField) -> TimeReader:
    """A function from a text to microseconds since 1970-01-01 UTC, or None if the text is no such time.

    Of several formats the first that fits is taken. None and iso8601 are ISO 8601 (a date alone is its midnight);
    epoch_s, epoch_ms, epoch_us and epoch_ns are numbers; anything else is strptime's. A time without an offset is in
    `zone`; where that stands in a field, it stands behind the text, too, after ZONE_MARK. Digits beyond the microsecond
    are cut off.
    """
    readers = [_reader(each) for each in formats_of(formats)]
    fixed = None if isinstance(zone, ZoneField) else _zone(zone)
    if fixed and formats in EPOCH_UNITS:
        read_number = readers[0]
        return lambda text: read_number(text, fixed)

    def read(text: str) -> int | None:
        place = fixed
        if place is None:
            text, _, name = text.rpartition(ZONE_MARK)
            place = _zone_of_record(name)
        return next((moment for each in readers if (moment := each(text, place)) is not None), None)

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


def _reader(time_format: str) -> Callable[[str, tzinfo | None], int | None]:
    """From a text and the zone of a time without an offset (None: unknown) to microseconds."""
    if time_format in EPOCH_UNITS:
        return _epoch_reader(EPOCH_UNITS[time_format])
    parse = _parse_iso_8601 if time_format == ISO_8601 else _strptime(time_format)

    def read(text: str, zone: tzinfo | None) -> int | None:
        try:
            moment = parse(text)
            if moment.tzinfo is None:
                if zone is None:
                    return None
                moment = moment.replace(tzinfo=zone)
            return microseconds(moment)
        except (ValueError, OverflowError):
            return None

    return read


def _epoch_reader(ticks_per_second: int) -> Callable[[str, tzinfo | None], int | None]:
    def read(text: str, _: tzinfo | None) -> int | None:
        if not _NUMBER.fullmatch(text):
            return None
        ticks = int(text) if text.isdigit() else Fraction(text)
        return ticks * 1_000_000 // ticks_per_second

    return read


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


@lru_cache(1024)
def _zone_of_record(name: str) -> tzinfo | None:
    """The zone of a name or an offset that stands in a record; None if it is none."""
    if offset := _OFFSET.fullmatch(name):
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        away = timedelta(hours=hours, minutes=minutes)
        return timezone(-away if offset[1] == "-" else away) if hours < 24 and minutes < 60 else None
    if name == "Z":
        return UTC
    try:
        return ZoneInfo(name) if _ZONE_NAME.fullmatch(name) else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
