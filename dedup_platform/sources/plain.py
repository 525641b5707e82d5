"""Texts that are written in the plainest way, as columns.

Each function gives what the reader of a single text makes of them (`time_reader`, `attribute_reader`), and null where
that takes more than a look: for whatever is null, the single reader has to be asked.
"""

from functools import partial

import polars as pl

from dedup_platform.sources.fixed_times import fixed_times
from dedup_platform.stream import EPOCH_UNITS, ISO_8601

__all__ = ["plain_booleans", "plain_decimals", "plain_doubles", "plain_longs", "plain_times"]

_LONG_DIGITS = 18  # of which 64 bits hold every number
_EPOCH_DIGITS = {1: 12, 1_000: 15, 1_000_000: 18, 1_000_000_000: 18}  # as the year 9999 has, as far as bits go
_DATE_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,6})?"
_UTC = r"(?:Z|\+00:00)"


def plain_longs(texts: pl.Series, digits: int = _LONG_DIGITS) -> pl.Series:
    """Whole numbers of at most so many digits."""
    return _only(texts, rf"^-?[0-9]{{1,{digits}}}$").cast(pl.Int64)


def plain_doubles(texts: pl.Series) -> pl.Series:
    """Numbers without an exponent, and without a minus before a zero."""
    return _only(texts, r"^(?:0|-?[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?$").cast(pl.Float64)


def plain_booleans(texts: pl.Series) -> pl.Series:
    """true and false."""
    is_true = texts == "true"
    return pl.select(pl.when(pl.lit(is_true) | pl.lit(texts == "false")).then(pl.lit(is_true))).to_series()


def plain_decimals(texts: pl.Series, precision: int, scale: int) -> pl.Series:
    """Numbers without an exponent that need no rounding."""
    whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    decimals = rf"(?:\.[0-9]{{1,{scale}}})?" if scale else ""
    return _only(texts, f"^-?{whole}{decimals}$").cast(pl.Decimal(precision, scale))


def plain_times(texts: pl.Series, time_format: str | None, timezone: str) -> pl.Series:
    """Microseconds since 1970: of ISO 8601 with seconds and in UTC, and of whole numbers since then."""
    if time_format in EPOCH_UNITS:
        unit = EPOCH_UNITS[time_format]
        ticks = plain_longs(texts, _EPOCH_DIGITS[unit])
        return ticks * (1_000_000 // unit) if unit <= 1_000_000 else ticks // (unit // 1_000_000)
    if time_format not in (None, ISO_8601):
        return pl.Series([None], dtype=pl.Int64).new_from_index(0, len(texts))
    moments = fixed_times(texts, decimals=6)
    for read in (
        partial(fixed_times, decimals=3),
        partial(fixed_times, decimals=0),
        partial(_times, timezone=timezone),
    ):
        if moments.null_count() == texts.null_count():
            break
        others = (moments.is_null() & texts.is_not_null()).arg_true()
        moments = moments.scatter(others, read(texts[others]))
    return moments


def _times(texts: pl.Series, timezone: str) -> pl.Series:
    offset = f"{_UTC}?" if timezone == "UTC" else _UTC
    plain = _only(texts, f"{_DATE_TIME}{offset}$").str.strip_suffix("Z").str.strip_suffix("+00:00")
    with_space = plain.str.replace("T", " ", literal=True)
    return with_space.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False, cache=False).cast(pl.Int64)


def _only(texts: pl.Series, pattern: str) -> pl.Series:
    """The texts of this pattern, and null for all others."""
    fits = texts.str.contains(pattern)
    return texts if fits.all() else pl.select(pl.when(fits).then(texts)).to_series()
