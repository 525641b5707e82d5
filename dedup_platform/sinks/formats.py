"""Changes as the content of a file."""

from functools import lru_cache
from io import BytesIO
from typing import Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

FileFormat = Literal["json", "csv", "parquet"]
ENDINGS: dict[FileFormat, str] = {"json": "json", "csv": "csv", "parquet": "parquet"}
TIME = "%Y-%m-%dT%H:%M:%S%.6fZ"
"""Times as texts: ISO 8601, UTC, microseconds."""
_DAY = 86_400_000_000
"""Microseconds of one."""
_FIRST_DAY, _LAST_DAY = (int(np.datetime64(day, "D").astype(int)) for day in ("0001-01-01", "9999-12-31"))
_LAID = np.dtype(
    {
        "names": ["date", "day", "second", "milli", "micro"],
        "formats": ["<u8", "<u4", "<u8", "<u4", "<u4"],
        "offsets": [0, 7, 11, 19, 23],
        "itemsize": len("yyyy-mm-ddThh:mm:ss.ffffffZ"),
    }
)


def encoded(changes: pl.DataFrame, format_: FileFormat) -> bytes:
    """Rows of a feed with all its columns: lines of JSON, csv with a header, or Parquet."""
    content = BytesIO()
    if format_ == "parquet":
        changes.write_parquet(content, compression="zstd")
    elif format_ == "json":
        changes.select(plain(changes, name) for name in changes.columns).write_ndjson(content)
    else:
        lists = pl.col(pl.List(pl.String)).list.join(",")
        changes.select(plain(changes, name) for name in changes.columns).with_columns(lists).write_csv(content)
    return content.getvalue()


def plain(changes: pl.DataFrame, name: str) -> pl.Expr:
    """A column as JSON can hold it: times and dates as ISO 8601, decimals as texts, so that they stay exact."""
    column, type_ = pl.col(name), changes.schema[name]
    if isinstance(type_, pl.Datetime):
        return pl.lit(times_as_text(changes[name]))
    if isinstance(type_, pl.Decimal | pl.Date):
        return column.cast(pl.String)
    if isinstance(type_, pl.Float64):
        # JSON knows neither NaN nor infinity.
        return pl.when(column.is_finite()).then(column).alias(name)
    return column


def times_as_text(times: pl.Series) -> pl.Series:
    """Times in microseconds as texts. Each day is formatted once and the rest looked up, which takes a third of the
    time."""
    moments = times.dt.epoch("us")
    first, last = moments.min(), moments.max()
    if not isinstance(first, int) or not isinstance(last, int) or not _are_near(first, last, len(times)):
        return times.dt.strftime(TIME)
    texts = _formatted(moments.fill_null(first).to_numpy(), first // _DAY, last // _DAY)
    found = pl.Series(times.name, texts)
    return found.set(times.is_null(), None) if times.has_nulls() else found


def _are_near(first: int, last: int, rows: int) -> bool:
    """Whether there are not more days than rows, and each has a year of four digits."""
    first, last = first // _DAY, last // _DAY
    return first >= _FIRST_DAY and last <= _LAST_DAY and last - first <= rows


def _formatted(moments: np.ndarray[Any, Any], first_day: int, last_day: int) -> pa.LargeStringArray:
    """`yyyy-mm-ddThh:mm:ss.ffffffZ` for each: numbers of four or eight bytes that are looked up and laid side by side,
    of which the second overlaps the first by a byte."""
    days = moments // _DAY
    rest = moments - days * _DAY
    days -= first_day
    seconds = rest // 1_000_000
    microseconds = (rest - seconds * 1_000_000).astype(np.uint32)
    thousands = microseconds // 1000
    names = np.datetime_as_string(np.arange(first_day, last_day + 1).astype("M8[D]")).tolist()
    lookup = _lookup_tables()
    laid = np.empty(len(moments), _LAID)
    laid["date"] = _words([name[:8] for name in names], "<u8")[days]
    laid["day"] = _words([name[7:] + "T" for name in names], "<u4")[days]
    laid["second"] = lookup["second"][seconds]
    laid["milli"] = lookup["milli"][thousands]
    laid["micro"] = lookup["micro"][microseconds - thousands * 1000]
    width = _LAID.itemsize
    offsets = np.arange(0, width * len(moments) + 1, width)
    return pa.LargeStringArray.from_buffers(len(moments), pa.py_buffer(offsets), pa.py_buffer(laid))


@lru_cache(1)
def _lookup_tables() -> dict[str, np.ndarray[Any, Any]]:
    """The texts of each second of a day, and of each of a thousand milliseconds and microseconds."""
    two = [f"{number:02}" for number in range(60)]
    return {
        "second": _words([f"{hour}:{minute}:{second}" for hour in two[:24] for minute in two for second in two], "<u8"),
        "milli": _words([f".{number:03}" for number in range(1000)], "<u4"),
        "micro": _words([f"{number:03}Z" for number in range(1000)], "<u4"),
    }


def _words(texts: list[str], kind: str) -> np.ndarray[Any, Any]:
    """Texts of as many ASCII letters as such a number has bytes, as numbers."""
    return np.array(texts, "S").view(kind)
