"""Changes as the content of a file."""

from functools import lru_cache
from io import BytesIO
from typing import Literal

import polars as pl

FileFormat = Literal["json", "csv", "parquet"]
ENDINGS: dict[FileFormat, str] = {"json": "json", "csv": "csv", "parquet": "parquet"}
TIME = "%Y-%m-%dT%H:%M:%S%.6fZ"
"""Times as texts: ISO 8601, UTC, microseconds."""
_DAY = 86_400_000_000
"""Microseconds of one."""
_THOUSAND = pl.Series([f"{number:03}" for number in range(1000)])


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
    """Times in microseconds as texts. Each day is formatted once and the rest looked up, which takes half the time."""
    moments = times.dt.epoch("us")
    days = moments // _DAY
    first, last = days.min(), days.max()
    if not isinstance(first, int) or not isinstance(last, int) or last - first > len(times):
        return times.dt.strftime(TIME)
    dates = (pl.int_range(first, last + 1, eager=True) * _DAY).cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT")
    seconds, part = moments % _DAY // 1_000_000, moments % 1_000_000
    parts = (
        dates.gather(days - first),
        _seconds_of_day().gather(seconds),
        _THOUSAND.gather(part // 1000),
        _THOUSAND.gather(part % 1000),
    )
    return pl.select(pl.concat_str(*map(pl.lit, parts), pl.lit("Z"))).to_series().alias(times.name)


@lru_cache(1)
def _seconds_of_day() -> pl.Series:
    """`hh:mm:ss.` of each."""
    two = [f"{number:02}" for number in range(60)]
    return pl.Series([f"{hour}:{minute}:{second}." for hour in two[:24] for minute in two for second in two])
