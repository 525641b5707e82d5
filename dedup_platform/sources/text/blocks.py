"""Blocks of whole lines as series, without an object for each line."""

import numpy as np
import polars as pl

from dedup_platform.sources.binary_columns import EncodedBytes

__all__ = ["as_texts", "is_text", "split_lines"]

_LINE_END = ord("\n")
_IS_SPACE = np.array([bytes([code]).isspace() for code in range(256)])


def split_lines(block: bytes, has_blank: bool = True) -> pl.Series:
    """The lines of a block without their ends, as binary values, but no empty ones, and if so told no blank ones."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    data = EncodedBytes(block)
    ends = np.append(np.flatnonzero(data.bytes_at(slice(0, data.end)) == _LINE_END), data.end)
    begins = np.concatenate(([0], ends[:-1] + 1))
    is_line = ends > begins
    if not has_blank:
        may_be_blank = np.flatnonzero(is_line & _IS_SPACE[data.bytes_at(begins)])
        is_line[may_be_blank] = [not block[begins[place] : ends[place]].isspace() for place in may_be_blank]
    return data.slices(begins[is_line], (ends - begins)[is_line])


def as_texts(lines: pl.Series) -> pl.Series:
    """Binary values as texts; null where one is no UTF-8, or null."""
    try:
        return lines.cast(pl.String)
    except pl.exceptions.ComputeError:
        known = [line if line is not None and is_text(line) else None for line in lines]
        return pl.Series(known, dtype=pl.Binary).cast(pl.String)


def is_text(line: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
