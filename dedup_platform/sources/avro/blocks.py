"""Blocks of Avro files read together, without an object for each value."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from dedup_platform.sources.avro.columns import DatumColumns
from dedup_platform.sources.avro.datum import MOST_EMPTY, DatumReader, MalformedDatumError
from dedup_platform.sources.avro.skipping import skipping
from dedup_platform.sources.binary_columns import EncodedBytes
from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.contents import Batch, ColumnContents, listed
from dedup_platform.sources.frame_sizes import MAX_ROWS
from dedup_platform.sources.interleaved import interleaved
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, bounded, context_text
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.text.json_objects import json_objects
from dedup_platform.sources.text.json_records import canonical, json_content
from dedup_platform.sources.texts import Texts

__all__ = ["FACTS", "Block", "BlockColumns", "MalformedBlockError", "record_of"]

FACTS = {"format": "avro", "encoding": "json"}

_BYTES, _ROWS = 2**20, 16384
_MOST_BYTES, _MOST_ROWS = 2**26, 2**20
"""Of a block that is read together with others."""
_MOST_FIELDS = 1000
_JSON_BYTES, _PUNCTUATION = 2**24, 8
_CONTEXT = context_text(**FACTS)


@dataclass(frozen=True)
class Block:
    """The data of one block, and the damage that it is if one of them is not what the schema says."""

    content: bytes
    count: int
    damage: DamageError


class MalformedBlockError(Exception):
    """A datum of a block is not what the schema says; it begins the rest of the block."""

    def __init__(self, block: Block, rest: bytes) -> None:
        super().__init__()
        self.block = block
        self.rest = rest


class BlockColumns:
    """Gathers blocks of one schema, and reads them together."""

    def __init__(self, schema: Mapping[str, Any], read: DatumReader) -> None:
        self._read = read
        self._skip = skipping(schema)
        self._names = [field["name"] for field in schema["fields"]]
        self._rows_at_once = max(1, min(MAX_ROWS, _JSON_BYTES // _least_json(schema)))
        self._columns = _columns_of(schema)
        self._blocks: list[Block] = []
        self._begins: list[list[int]] = []

    def add(self, block: Block) -> bool:
        """Gather a block, if it can be read together with others."""
        is_usual = 0 < block.count <= min(_MOST_ROWS, max(len(block.content), MOST_EMPTY))
        is_usual &= len(block.content) <= _MOST_BYTES
        begins = self._begins_in(block) if self._columns and is_usual else None
        if begins is None:
            return False
        self._blocks.append(block)
        self._begins.append(begins)
        return True

    @property
    def are_many(self) -> bool:
        """Whether so much is gathered that it should be read."""
        size = sum(len(block.content) for block in self._blocks)
        return size >= _BYTES or sum(map(len, self._begins)) >= _ROWS

    def batches(self) -> Iterator[Batch]:
        """The records of the blocks that are gathered, which then are no more. MalformedBlockError behind those before
        the first one that is none."""
        blocks, begins = self._blocks, self._begins
        self._blocks, self._begins = [], []
        if blocks:
            yield from self._read_together(blocks, begins)

    def _begins_in(self, block: Block) -> list[int] | None:
        """Where its data begin, if they fill it."""
        skip, content, at = self._skip, block.content, 0
        begins = []
        try:
            for _ in range(block.count):
                begins.append(at)
                at = skip(content, at)
        except (IndexError, RecursionError, ValueError):
            return None
        return begins if at == len(content) else None

    def _read_together(self, blocks: Sequence[Block], begins: Sequence[Sequence[int]]) -> Iterator[Batch]:
        data = _data(blocks, begins)
        for begin in range(0, len(data), self._rows_at_once):
            some = data.slice(begin, self._rows_at_once)
            read = yield from self._some(some)
            if read < len(some):
                raise _malformed(blocks, begins, begin + read)

    def _some(self, data: pl.Series) -> Generator[Batch, None, int]:
        """The records of some data, and how many of these are what the schema says."""
        assert self._columns
        fields, in_doubt = self._columns.written(data, self._names)
        payloads = json_objects({name: (json, "") for name, (_, json) in zip(self._names, fields, strict=True)})
        is_sure = payloads.bin.size() <= MAX_RECORD_BYTES
        is_sure = is_sure if in_doubt is None else is_sure & ~in_doubt
        alone, end = self._alone(data, (~is_sure).arg_true())
        sure = is_sure[:end].arg_true()
        parts = [(sure, self._batch(payloads[sure], [texts for texts, _ in fields], sure))] if len(sure) else []
        if alone:
            parts.append(((~is_sure[:end]).arg_true(), listed(alone)))
        if parts:
            yield interleaved(parts)
        return end

    def _alone(self, data: pl.Series, places: pl.Series) -> tuple[list[Record], int]:
        """The records of data that are read one by one, and the place of the first that is none, behind all if each is
        one."""
        records: list[Record] = []
        for place in places:
            try:
                fields, _ = self._read(data[place], 0)
            except MalformedDatumError:
                return records, place
            records.append(record_of(fields))
        return records, len(data)

    def _batch(self, payloads: pl.Series, fields: Sequence[Texts], sure: pl.Series) -> Batch:
        told = dict(zip(self._names, fields, strict=True))
        moments = {name: each.moments[sure] for name, each in told.items() if each.moments is not None}
        contents = ColumnContents(self._names, lambda name: told[name].values[sure], payloads, json_content, moments)
        return payloads, contents, Repeated(_CONTEXT, len(payloads))


def record_of(fields: Mapping[str, Any]) -> Record:
    """The record of one datum."""
    payload = canonical(fields).encode()
    return bounded(payload, lambda _: fields, _CONTEXT, FACTS)


def _least_json(schema: Mapping[str, Any]) -> int:
    """About how many bytes the JSON of a record may have besides those of its datum: names and symbols."""
    types = [field["type"] for field in schema["fields"]]
    kinds = [kind for each in types for kind in (each if isinstance(each, list) else [each])]
    named = (schema["__named_schemas"].get(kind) if isinstance(kind, str) else kind for kind in kinds)
    symbols = (max(map(len, each.get("symbols") or [""])) for each in named if each)
    return sum(len(field["name"]) + _PUNCTUATION for field in schema["fields"]) + sum(symbols) + _PUNCTUATION


def _columns_of(schema: Mapping[str, Any]) -> DatumColumns | None:
    """What reads data together; None if they have parts, no fields, or so many that each datum is sooner read alone."""
    if len(schema["fields"]) > _MOST_FIELDS:
        return None
    try:
        columns = DatumColumns(schema)
    except (RecursionError, ValueError):
        return None
    return columns if columns.are_plain and schema["fields"] else None


def _data(blocks: Sequence[Block], begins: Sequence[Sequence[int]]) -> pl.Series:
    """The data of some blocks, as binary values."""
    starts = np.cumsum([0, *(len(block.content) for block in blocks)])
    places = np.concatenate([start + np.array(each) for start, each in zip(starts, begins, strict=False)])
    content = EncodedBytes(b"".join([block.content for block in blocks]))
    return content.slices(places, np.diff(places, append=content.end))


def _malformed(blocks: Sequence[Block], begins: Sequence[Sequence[int]], place: int) -> MalformedBlockError:
    """The error of the datum at a place among those of some blocks."""
    for block, each in zip(blocks, begins, strict=True):
        if place < len(each):
            return MalformedBlockError(block, block.content[each[place] :])
        place -= len(each)
    raise IndexError(place)
