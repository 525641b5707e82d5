"""Which columns are times, how they are written, and whether they tell their zone."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl

from dedup_platform.infer.columns import Column
from dedup_platform.planning.moments import in_microseconds, microseconds
from dedup_platform.sources.times import time_reader
from dedup_platform.stream import EPOCH_UNITS, ISO_8601

__all__ = ["TimeColumn", "joined_texts", "joined_times", "time_columns", "zone_column"]

_FITTING = 0.99
"""So many of the texts must be times."""
_TRIED = 500
_FIRST = 946_684_800
"""2000-01-01 in seconds: a number that stands for an earlier time is more likely no time."""
_DATES = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y")
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S %z")
_OTHERS = (
    "%Y-%m-%d %I:%M:%S %p",
    "%Y-%m-%d %H:%M:%S %z",
    "%d/%b/%Y:%H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a %b %d %H:%M:%S %z %Y",
    "%a %b %d %H:%M:%S %Y",
    "%d %b %Y %H:%M:%S",
    "%b %d, %Y %I:%M:%S %p",
    "%b %d %Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S",
    "%Y-%m-%d %H:%M:%S UTC",
    "%Y%m%dT%H%M%SZ",
    "%Y%m%dT%H%M%S",
    "%Y%m%d%H%M%S",
    "%Y%m%d",
)
FORMATS = (
    ISO_8601,
    *EPOCH_UNITS,
    *(f"{day}{between}{clock}" for day in _DATES for clock in _CLOCKS for between in (" ", ", ")),
    *_DATES,
    *_OTHERS,
)
"""Those that are tried, in this order."""
_DIGITS = {"%Y%m%d": 8, "%Y%m%d%H%M%S": 14}
"""How long texts of digits alone are; strptime takes shorter ones, too."""
_SWAPPED = str.maketrans("dm", "md")
_TELLS_OFFSET = re.compile(r"(?:[zZ]|[+-][0-9]{2}(?::?[0-9]{2})?)$")
_MAY_BE = re.compile(r"(?:[0-9].*){5}")
_CLOCK = r"[0-2]?[0-9]:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
_IN_UTC = ("Z", "UTC", "GMT")


@dataclass(frozen=True)
class TimeColumn:
    """A column, or a date and a time in two, whose texts are times."""

    fields: tuple[str, ...]
    columns: tuple[Column, ...]
    format: str
    moments: pl.Series
    """Microseconds since 1970, null where a record has none; of local times as if they were in UTC."""
    is_local: bool
    """Whether times tell neither offset nor zone."""
    is_ambiguous: bool = False
    """Whether day and month could be the other way round."""

    @property
    def main(self) -> Column:
        """The column that names it."""
        return self.columns[0]

    @property
    def says_zone(self) -> bool:
        """Whether the name of the column says that its times are in UTC."""
        return any(word in ("utc", "gmt") for column in self.columns for word in column.words)

    @property
    def has_clock(self) -> bool:
        """Whether it tells more than days."""
        day = in_microseconds(timedelta(days=1))
        return bool((self.moments.drop_nulls() % day != 0).any())


def time_columns(columns: Iterable[Column], now: datetime) -> list[TimeColumn]:
    """The columns whose texts are times up to `now` and a day; numbers, too, if they can be."""
    latest = now + timedelta(days=1)
    found = (time_column((column,), column.texts, latest) for column in columns)
    return [each for each in found if each]


def joined_times(columns: Sequence[Column], times: Sequence[TimeColumn], now: datetime) -> Iterator[TimeColumn]:
    """Times that stand in two columns, a date and a time of day, both filled alike."""
    clocks = [each for each in columns if each.all_match(_CLOCK)]
    for day in times:
        for clock in () if day.has_clock or day.format in EPOCH_UNITS else clocks:
            if day.main.steps[:-1] == clock.steps[:-1]:
                both = (day.main, clock)
                if found := time_column(both, joined_texts(both), now + timedelta(days=1)):
                    yield found


def joined_texts(columns: Iterable[Column]) -> pl.Series:
    """What columns hold together, with spaces between; null where one of them is."""
    return pl.select(pl.concat_str([each.texts for each in columns], separator=" ")).to_series()


def zone_column(columns: Iterable[Column]) -> Column | None:
    """The column that holds names of zones or offsets, if any."""
    for each in columns:
        is_named = {"zone", "timezone", "tz", "offset"} & set(each.words)
        if is_named and each.all_match(r"[A-Z][A-Za-z_]+(?:/[A-Za-z_+-]+)+|UTC|Z|[+-][0-9]{2}:?[0-9]{2}"):
            return each
    return None


def time_column(columns: tuple[Column, ...], texts: pl.Series, latest: datetime) -> TimeColumn | None:
    """What the texts of some columns, put together, are as times; None if they are none."""
    there = texts.drop_nulls().unique(maintain_order=True)
    if not len(there) or there.str.len_chars().max() > 64:  # type: ignore[operator]  # of texts that are there
        return None
    if not all(_MAY_BE.search(text) for text in (there[0], there[-1])):
        return None
    tried = there.gather_every(max(1, len(there) // _TRIED))
    fitting = [each for each in FORMATS if _fits(each, tried, latest)]
    if not fitting:
        return None
    chosen, is_ambiguous = _chosen(fitting, tried)
    read = time_reader(chosen, "UTC")
    moments = pl.Series([None if text is None else read(text) for text in texts], dtype=pl.Int64)
    is_local = chosen not in EPOCH_UNITS and not chosen.endswith(("%z", "%z %Y", *_IN_UTC))
    if chosen == ISO_8601:
        is_local = not all(_TELLS_OFFSET.search(text[10:]) for text in tried)
    return TimeColumn(tuple(each.field for each in columns), columns, chosen, moments, is_local, is_ambiguous)


def _fits(time_format: str, texts: pl.Series, latest: datetime) -> bool:
    read = time_reader(time_format, "UTC")
    if read(texts[0]) is None and read(texts[-1]) is None:
        return False
    if len(texts[0]) != _DIGITS.get(time_format, len(texts[0])):
        return False
    bounds = range(_FIRST * 1_000_000 if time_format in EPOCH_UNITS else 0, microseconds(latest))
    wrong_allowed = int(len(texts) * (1 - _FITTING))
    for text in texts:
        moment = read(text)
        wrong_allowed -= moment is None or (moment not in bounds and time_format in EPOCH_UNITS)
        if wrong_allowed < 0:
            return False
    return True


def _chosen(formats: Sequence[str], texts: pl.Series) -> tuple[str, bool]:
    """The format to read texts by, and whether another is as likely: of 01/02 either may be the month.

    Read the wrong way round, the days of a few weeks lie all over the year.
    """
    chosen = formats[0]
    swapped = chosen.translate(_SWAPPED) if "%d" in chosen else chosen
    if swapped == chosen or swapped not in formats:
        return chosen, False
    spans = {each: _span(each, texts) for each in (chosen, swapped)}
    return min(spans, key=lambda each: spans[each]), spans[chosen] == spans[swapped]


def _span(time_format: str, texts: pl.Series) -> int:
    read = time_reader(time_format, "UTC")
    moments = [moment for text in texts if (moment := read(text)) is not None]
    return max(moments) - min(moments)
