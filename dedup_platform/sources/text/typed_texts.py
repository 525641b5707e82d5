"""Columns of typed values as their texts: value by value what `canonical_text` says of each."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dedup_platform.sources.text.canonical_text import date_text, decimal_text, double_text, float_text

__all__ = [
    "base64_texts",
    "date_texts",
    "decimal_texts",
    "float_texts",
    "moments_of",
    "time_texts",
    "timestamp_texts",
    "uuid_texts",
]

Ints = npt.NDArray[np.int64]

_SMALLEST = 1e-4
_LARGEST = {4: 1e12, 8: 1e16}
"""Numbers between these are written alike by Polars and Python, by the bytes of a number."""
_SECONDS = (-62_135_596_800, 253_402_300_800)
_DAYS = (-719_162, 2_932_897)
_YEAR_9999 = 253_370_764_800
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LONG_BYTES = 8


def float_texts(values: npt.NDArray[np.floating]) -> pl.Series:
    """Of floats of 32 or 64 bits."""
    texts, size = pl.Series(values).cast(pl.String), np.abs(values)
    is_alike = (size >= _SMALLEST) & (size < _LARGEST[values.itemsize]) | (size == 0)
    text_of = float_text if values.itemsize == 4 else double_text
    others = np.flatnonzero(~is_alike)
    return _with(texts, others, [str(text_of(value)) for value in values[others].tolist()])


def base64_texts(values: pl.Series) -> pl.Series:
    """Of binary values."""
    return values.bin.encode("base64")


def uuid_texts(values: pl.Series) -> pl.Series:
    """Of binary values of 16 bytes."""
    digits = pl.lit(values.bin.encode("hex"))
    parts = (digits.str.slice(begin, end - begin) for begin, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
    return pl.select(pl.concat_str(*parts, separator="-")).to_series()


def timestamp_texts(ticks: Ints, per_second: int, zone: str) -> pl.Series:
    """Of moments in ticks since 1970, with a zone's letter behind them; of years that are none, the Numbers."""
    seconds = ticks // per_second
    is_moment = (seconds >= _SECONDS[0]) & (seconds < _SECONDS[1])
    texts = pl.Series(ticks).cast(pl.String)
    rest = np.flatnonzero(is_moment)
    for unit, per_unit in _UNITS.items():
        is_whole = ticks[rest] % (per_second // per_unit) == 0 if per_unit < per_second else np.full(len(rest), True)
        places = rest[is_whole]
        if len(places):
            times = pa.array(ticks[places] // (per_second // per_unit), pa.timestamp(unit)).cast(pa.large_string())
            texts = _with(texts, places, _series(times).str.replace(" ", "T", literal=True) + zone)
        rest = rest[~is_whole]
        if not len(rest):
            break
    return texts


def date_texts(days: Ints) -> pl.Series:
    """Of days since 1970; of years that are none, the Numbers."""
    is_day = (days >= _DAYS[0]) & (days < _DAYS[1])
    dates = _series(pa.array(np.where(is_day, days, 0).astype(np.int32), pa.date32()).cast(pa.large_string()))
    others = np.flatnonzero(~is_day)
    return _with(dates, others, [str(date_text(day)) for day in days[others].tolist()])


def time_texts(ticks: Ints, per_second: int) -> pl.Series:
    """Of times of a day in ticks since midnight; of others, the Numbers."""
    is_time = (ticks >= 0) & (ticks < 86_400 * per_second)
    texts = timestamp_texts(np.where(is_time, ticks, 0), per_second, "").str.slice(11)
    others = np.flatnonzero(~is_time)
    return _with(texts, others, pl.Series(ticks[others]).cast(pl.String))


def decimal_texts(values: pl.Series, scale: int) -> pl.Series:
    """Of binary values: whole numbers, the highest byte first, to be divided by a power of ten."""
    sizes = values.bin.size().to_numpy()
    if (sizes > _LONG_BYTES).any() or scale < 0:
        texts = [str(decimal_text(int.from_bytes(value, signed=True), scale)) for value in values]
        return pl.Series(texts, dtype=pl.String)
    unscaled = _longs(values)
    digits = pl.lit(pl.Series(unscaled).cast(pl.String).str.strip_prefix("-").str.zfill(scale + 1))
    sign = pl.when(pl.lit(pl.Series(unscaled < 0))).then(pl.lit("-")).otherwise(pl.lit(""))
    parts = [digits.str.head(-scale), pl.lit("."), digits.str.tail(scale)] if scale else [digits]
    return pl.select(pl.concat_str(sign, *parts)).to_series()


def moments_of(ticks: Ints, per_second: int) -> pl.Series:
    """Microseconds since 1970 of the same moments as in `timestamp_texts`, as `Texts` has them."""
    is_known = (ticks >= 0) & (ticks < _YEAR_9999 * min(per_second, 2**63 // _YEAR_9999))
    per_microsecond = per_second // 1_000_000
    if per_microsecond > 1:
        is_known &= ticks % per_microsecond == 0
        moments = ticks // per_microsecond
    else:
        moments = np.where(is_known, ticks, 0) * (1_000_000 // per_second)
    known = pl.Series(moments)
    return known if is_known.all() else pl.select(pl.when(pl.Series(is_known)).then(known)).to_series()


def _longs(values: pl.Series) -> Ints:
    """The numbers of at most 8 bytes, the highest byte first."""
    sizes = values.bin.size().to_numpy().astype(np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join(values), np.uint8)
    numbers = np.zeros(len(sizes), np.int64)
    for length in range(_LONG_BYTES):
        there = np.flatnonzero(sizes > length)
        if not len(there):
            break
        byte = data[ends[there] - sizes[there] + length].astype(np.int64)
        if length == 0:
            numbers[there] = byte - ((byte & 0x80) << 1)
        else:
            numbers[there] = numbers[there] << 8 | byte
    return numbers


def _with(texts: pl.Series, places: npt.NDArray[np.integer], others: pl.Series | list[str]) -> pl.Series:
    """Texts with others at some places."""
    if not len(places):
        return texts
    return texts.scatter(places, pl.Series(others, dtype=pl.String))


def _series(array: pa.Array) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series
