"""JSON lines a block at a time, so that no object is made of a record whose fields columns tell.

They are the records that `json_records` gives, one by one.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from dedup_platform.sources.contents import Batch, EncodedContents, NamedField, listed
from dedup_platform.sources.records import (
    MAX_RECORD_BYTES,
    Content,
    bounded,
    context_text,
    damaged,
)
from dedup_platform.sources.text.blocks import as_texts, split_lines
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.text.json_shapes import JsonShapes
from dedup_platform.sources.text.lines import Lines
from dedup_platform.sources.texts import Texts

__all__ = ["JsonContents", "json_batches"]

_FACTS = {"format": "json"}


class JsonContents(EncodedContents):
    """Those of JSON records."""

    def __init__(self, payloads: pl.Series, shapes: JsonShapes) -> None:
        super().__init__(payloads)
        self._shapes = shapes

    def _content(self, payload: bytes) -> Content:
        return json_content(payload)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        return self._shapes.texts(as_texts(self._payloads), fields)

    @property
    def kind(self) -> object:
        return self._shapes


def json_batches(lines: Lines, shapes: JsonShapes) -> Iterator[Batch]:
    """The records of one file, those together that were read together; `shapes` are those of its stream."""
    context = context_text(**_FACTS)
    for block in lines.blocks():
        if len(block) > MAX_RECORD_BYTES:
            there = (line for line in block.splitlines() if line and not line.isspace())
            yield from (listed([bounded(payload, json_content, context, _FACTS)]) for payload in there)
        elif len(payloads := split_lines(block, has_blank=False)):
            yield from JsonContents(payloads, shapes).batches(context)
    if lines.damage:
        yield listed([damaged(lines.rest, lines.damage, **_FACTS)])
