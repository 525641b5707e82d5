"""JSON lines a block at a time, so that no object is made of a record whose fields columns tell.

They are the records that `json_records` gives, one by one.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from dedup_platform.sources.contents import Batch, Contents, NamedField, listed
from dedup_platform.sources.records import (
    MAX_RECORD_BYTES,
    Content,
    bounded,
    context_text,
    damaged,
)
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.text.json_shapes import JsonShapes
from dedup_platform.sources.text.lines import Lines
from dedup_platform.sources.texts import Texts

__all__ = ["JsonContents", "json_batches"]

_FACTS = {"format": "json"}
_SPACES = " \t\v\f"


class JsonContents(Contents):
    """Records known by their bytes: a series of binary values, none longer than a record may be."""

    def __init__(self, payloads: pl.Series, shapes: JsonShapes) -> None:
        self._payloads = payloads
        self._shapes = shapes

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return json_content(self._payloads[place])

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        return self._shapes.texts(_texts(self._payloads), fields)

    @property
    def kind(self) -> object:
        return self._shapes

    def joined(self, others: Sequence[Contents]) -> Contents:
        payloads = [each._payloads for each in (self, *others) if isinstance(each, JsonContents)]
        return JsonContents(pl.concat(payloads), self._shapes)


def json_batches(lines: Lines, shapes: JsonShapes) -> Iterator[Batch]:
    """The records of one file, those together that were read together; `shapes` are those of its stream."""
    context = context_text(**_FACTS)
    for block in lines.blocks():
        if len(block) > MAX_RECORD_BYTES:
            there = (line for line in block.splitlines() if line and not line.isspace())
            yield from (listed([bounded(payload, json_content, context, _FACTS)]) for payload in there)
        elif len(payloads := _payloads(block)):
            yield payloads, JsonContents(payloads, shapes), Repeated(context, len(payloads))
    if lines.damage:
        yield listed([damaged(lines.rest, lines.damage, **_FACTS)])


def _payloads(block: bytes) -> pl.Series:
    """The lines of a block that are not blank, without their ends."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = _split(block)
    lines = lines.filter(lines.bin.size() > 0)
    may_be_blank = ~lines.bin.starts_with(b"{")
    if not may_be_blank.any():
        return lines
    blank = [place for place in may_be_blank.arg_true() if lines[place].isspace()]
    return lines.filter(~pl.Series([False]).new_from_index(0, len(lines)).scatter(blank, True)) if blank else lines


def _split(block: bytes) -> pl.Series:
    try:
        text = pl.Series([block], dtype=pl.Binary).cast(pl.String)
    except pl.exceptions.ComputeError:  # somewhere it is no UTF-8
        return pl.Series(block.split(b"\n"), dtype=pl.Binary)
    return text.str.split("\n").explode().cast(pl.Binary)


def _texts(payloads: pl.Series) -> pl.Series:
    """Payloads as texts; null where they are none."""
    try:
        return payloads.cast(pl.String)
    except pl.exceptions.ComputeError:
        known = [payload if _is_text(payload) else None for payload in payloads]
        return pl.Series(known, dtype=pl.Binary).cast(pl.String)


def _is_text(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
