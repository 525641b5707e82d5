"""JSON objects of many records, written by columns."""

from collections.abc import Mapping
from json.encoder import encode_basestring

import polars as pl

__all__ = ["json_objects"]


def json_objects(values: Mapping[str, tuple[pl.Series, str]]) -> pl.Series:
    """Objects without spaces and with sorted names, as binary values; at least one name. Of each name the JSON of the
    values, and what stands around them: nothing, or a quote."""
    parts: list[pl.Expr] = []
    before = "{"
    for name, (json, quote) in sorted(values.items()):
        parts += [pl.lit(before + encode_basestring(name) + ":" + quote), pl.lit(json)]
        before = quote + ","
    return pl.select(pl.concat_str(*parts, pl.lit(before[:-1] + "}")).cast(pl.Binary)).to_series()
