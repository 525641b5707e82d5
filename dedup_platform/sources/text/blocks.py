"""Blocks of whole lines as series, without an object for each line."""

import polars as pl

__all__ = ["as_texts", "is_text", "split_lines"]


def split_lines(block: bytes) -> pl.Series:
    """The lines of a block without their ends, as binary values; empty ones are left out."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = _split(block)
    is_there = lines.bin.size() > 0
    return lines if is_there.all() else lines.filter(is_there)


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


def _split(block: bytes) -> pl.Series:
    try:
        text = pl.Series([block.removesuffix(b"\n")], dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:  # somewhere it is no UTF-8
        return pl.Series(block.split(b"\n"), dtype=pl.Binary)
    return text.str.split("\n").explode().cast(pl.Binary)
