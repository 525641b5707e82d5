"""Changes as the content of a file."""

from io import BytesIO
from typing import Literal

import polars as pl

FileFormat = Literal["json", "csv", "parquet"]
ENDINGS: dict[FileFormat, str] = {"json": "json", "csv": "csv", "parquet": "parquet"}
TIME = "%Y-%m-%dT%H:%M:%S%.6fZ"
"""Times as texts: ISO 8601, UTC, microseconds."""


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
        return column.dt.strftime(TIME)
    if isinstance(type_, pl.Decimal | pl.Date):
        return column.cast(pl.String)
    if isinstance(type_, pl.Float64):
        # JSON knows neither NaN nor infinity.
        return pl.when(column.is_finite()).then(column).alias(name)
    return column
