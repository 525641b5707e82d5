"""Moments in columns as ISO 8601."""

import numpy as np
import numpy.typing as npt
import polars as pl

from dedup_platform.sources.binary_columns import EncodedBytes

__all__ = ["SECONDS", "utc_texts"]

SECONDS = range(-62_135_596_800, 253_402_300_800)
"""Since 1970: those of the years 1 to 9999."""

_Integers = npt.NDArray[np.int64]

_SHAPE = b"0000-00-00T00:00:00.000000000Z"
_LONGEST, _SHORTEST = len(_SHAPE), len("0000-00-00T00:00:00Z")
_DAYS_OF_400_YEARS = 146_097
_MARCH_OF_YEAR_0 = 719_468
"""Days from the first of March of the year 0 to 1970."""


def utc_texts(seconds: _Integers, nanoseconds: _Integers) -> pl.Series:
    """Moments as texts with 0, 3, 6 or 9 decimals and Z: the SECONDS since 1970, and less than one second added."""
    days, second = np.divmod(seconds, 86_400)
    # Turned on its side: a character of all texts is written at once.
    written = np.empty((_LONGEST, len(seconds)), np.uint8)
    written[:] = np.frombuffer(_SHAPE, np.uint8)[:, None]
    year, month, day = _dates(days)
    second, nanoseconds = second.astype(np.int32), nanoseconds.astype(np.int32)
    for end, digits, numbers in (
        *((4, 4, year), (7, 2, month), (10, 2, day)),
        *((13, 2, second // 3600), (16, 2, second // 60 % 60), (19, 2, second % 60)),
        *([(29, 9, nanoseconds)] if nanoseconds.any() else ()),
    ):
        _write(written, end, digits, numbers)
    ends = _lengths(nanoseconds)
    written[ends - 1, np.arange(len(seconds))] = ord("Z")
    return EncodedBytes(written.T.tobytes()).slices(np.arange(0, written.size, _LONGEST), ends).cast(pl.String)


def _dates(days: _Integers) -> tuple[_Integers, _Integers, _Integers]:
    """Years, months and days of days since 1970. Years begin in March here, so that a leap day is their last."""
    cycle, day = np.divmod(days + _MARCH_OF_YEAR_0, _DAYS_OF_400_YEARS)
    year = (day - day // 1460 + day // 36_524 - day // (_DAYS_OF_400_YEARS - 1)) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    is_next_year = month >= 10
    return year + 400 * cycle + is_next_year, np.where(is_next_year, month - 9, month + 3), day + 1


def _write(written: npt.NDArray[np.uint8], end: int, digits: int, numbers: npt.NDArray[np.integer]) -> None:
    for place in range(end - 1, end - 1 - digits, -1):
        rest = numbers // 10
        written[place] = numbers - rest * 10 + ord("0")
        numbers = rest


def _lengths(nanoseconds: npt.NDArray[np.integer]) -> _Integers:
    """How long texts are, with their Z: three decimals more for what three less do not tell."""
    lengths = np.full(len(nanoseconds), _SHORTEST)
    lengths[nanoseconds > 0] = _SHORTEST + 4
    lengths[nanoseconds % 1_000_000 > 0] = _SHORTEST + 7
    lengths[nanoseconds % 1_000 > 0] = _SHORTEST + 10
    return lengths
