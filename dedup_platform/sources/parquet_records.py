"""Parquet: each row is a record, and its payload is the row as canonical JSON.

Nothing is rounded: numbers keep their digits, floats are the shortest text that reads back equal (NaN and infinities
are texts), times are ISO 8601 with all their decimals, in UTC with Z where the column has a time zone. Binary is
base64, a map is a list of [key, value].
"""

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dedup_platform.sources.compression import DamageError, decompressed
from dedup_platform.sources.contents import Batch, ColumnContents, listed
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, bounded, context_text, damaged
from dedup_platform.sources.text.json_records import json_content

__all__ = ["parquet_batches", "parquet_records"]

_ROWS = 1024
_FACTS = {"format": "parquet"}
_BYTES = pa.large_binary()
_MUST_BE_ESCAPED = r'["\\\x00-\x1f]'


def parquet_records(file: BinaryIO, name: str) -> Iterator[Record]:
    """The records of one open file; one that is compressed as a whole is unpacked into a temporary file first."""
    for batch in parquet_batches(file, name):
        yield from zip(*batch, strict=True)


def parquet_batches(file: BinaryIO, name: str) -> Iterator[Batch]:
    """The same records, those together that were read together."""
    try:
        with _unpacked(file, name) as unpacked:
            for rows in _rows(unpacked):
                yield _batch(rows)
    except DamageError as damage:
        yield listed([damaged(b"", damage, **_FACTS)])


@contextmanager
def _unpacked(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    is_plain = file.read(4) == b"PAR1"
    file.seek(0)
    if is_plain:
        yield file
        return
    with tempfile.TemporaryFile() as unpacked:
        for chunk in decompressed(file, name):
            unpacked.write(chunk)
        unpacked.seek(0)
        yield unpacked


@dataclass(frozen=True)
class _Rows:
    """Some rows, a column at a time."""

    columns: dict[str, pa.Array]
    """Of values without parts: their texts, but booleans as they are. None at all where some have parts."""
    payloads: pa.Array

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "_Rows":
        names, columns = rows.schema.names, [_unwrapped(column) for column in rows.columns]
        if len(set(names)) < len(names) or any(pa.types.is_nested(column.type) for column in columns):
            return cls({}, _objects(names, [_json(column) for column in columns], rows.num_rows))
        texts = [_texts(column) for column in columns]
        values = [_json_of_texts(column.type, each) for column, each in zip(columns, texts, strict=True)]
        named = zip(names, columns, texts, strict=True)
        known = {name: column if pa.types.is_boolean(column.type) else each for name, column, each in named}
        return cls(known, _objects(names, values, rows.num_rows))

    @property
    def are_plain(self) -> bool:
        """Whether columns say all that payloads say: none would be malformed."""
        try:
            self.payloads.cast(pa.large_string())
        except pa.ArrowInvalid:  # no UTF-8
            return False
        return bool(self.columns)

    def column(self, name: str) -> list[Any]:
        """What the JSON of each row has of a field, numbers as their text."""
        values: list[Any] = self.columns[name].to_pylist()
        return values


def _rows(file: BinaryIO) -> Iterator[_Rows]:
    try:
        # Not pre-buffered: only the pages that are being read are in memory.
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)
        # Invalid UTF-8 comes out as it went in, and makes the record malformed.
        yield from map(_Rows.of, parquet.iter_batches(batch_size=_ROWS))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamageError(" ".join(str(error).split()), None) from None


def _batch(rows: _Rows) -> Batch:
    context = context_text(**_FACTS)
    payloads: list[bytes] = rows.payloads.to_pylist()
    if max(map(len, payloads), default=0) > MAX_RECORD_BYTES or not rows.are_plain:
        return listed([bounded(payload, json_content, context, _FACTS) for payload in payloads])
    return payloads, ColumnContents(rows.columns, rows.column, payloads, json_content), [context] * len(payloads)


def _objects(names: list[str], values: list[pa.Array], count: int) -> pa.Array:
    """The JSON objects of some rows, with sorted names, from the JSON of their values."""
    if not values:
        return pa.array([b"{}"] * count, _BYTES)
    parts: list[Any] = []
    for name, each in sorted(zip(names, values, strict=True), key=lambda pair: pair[0]):
        parts += [("," if parts else "{") + encode_basestring(name) + ":", each]
    return _joined(*parts, "}")


def _json(array: pa.Array) -> pa.Array:
    """The JSON of each value."""
    array = _unwrapped(array)
    if not pa.types.is_nested(array.type):
        return _json_of_texts(array.type, _texts(array))
    return _or_null(array, _json_of_parts(array))


def _json_of_parts(array: pa.Array) -> pa.Array:
    """The JSON of each value that is not null; anything for the nulls."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _objects([field.name for field in kind], [_json(part) for part in array.flatten()], len(array))
    if pa.types.is_map(kind):
        lists = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        keys, values = (_json(part) for part in lists.flatten().flatten())
        return _lists(lists, _joined("[", keys, ",", values, "]"))
    return _lists(array, _json(array.flatten()))


def _json_of_texts(kind: pa.DataType, texts: pa.Array) -> pa.Array:
    """The JSON of values without parts, by their type and their texts."""
    known = texts.cast(_BYTES)
    if pa.types.is_floating(kind):
        known = pc.if_else(pc.match_substring_regex(known, "[0-9]$"), known, _joined('"', known, '"'))
    elif not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        known = _joined('"', _escaped(known) if _is_text(kind) else known, '"')
    return _or_null(texts, known)


def _or_null(array: pa.Array, json: pa.Array) -> pa.Array:
    """The JSON of an array's values, for nulls, too."""
    return pc.if_else(array.is_valid(), json, pa.scalar(b"null", _BYTES)) if array.null_count else json


def _lists(array: pa.Array, items: pa.Array) -> pa.Array:
    following = iter(items.to_pylist())
    lengths = pc.list_value_length(array).fill_null(0).to_pylist()
    return pa.array([b"[" + b",".join(islice(following, length)) + b"]" for length in lengths], _BYTES)


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts as they stand between the quotes of JSON."""
    odd = pc.match_substring_regex(texts, _MUST_BE_ESCAPED).fill_null(False)
    if not odd.true_count:
        return texts
    escaped = [
        encode_basestring(text.decode("utf-8", "surrogateescape"))[1:-1].encode("utf-8", "surrogateescape")
        for text in texts.filter(odd).to_pylist()
    ]
    return pc.replace_with_mask(texts, odd, pa.array(escaped, _BYTES))


def _joined(*parts: "pa.Array | str") -> pa.Array:
    """The parts of each row one behind the other; null where one of them is."""
    typed = [pa.scalar(part.encode(), _BYTES) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*typed, pa.scalar(b"", _BYTES))


def _texts(array: pa.Array) -> pa.Array:
    """The text of each value without parts, null for null."""
    kind = array.type
    if _is_text(kind):
        return array.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        values = (None if value is None else base64.b64encode(value).decode() for value in array.to_pylist())
        return pa.array(values, pa.large_string())
    if pa.types.is_timestamp(kind) and kind.tz:
        # What is UTC here is none of a place's time: Arrow would ask for its rules, a value at a time.
        texts = array.cast(pa.timestamp(kind.unit)).cast(pa.string()).cast(_BYTES)
        return _joined(texts, "Z").cast(pa.large_string())
    return array.cast(pa.string()).cast(pa.large_string())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _unwrapped(array: pa.Array) -> pa.Array:
    """The values themselves, of extension types and dictionaries."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _unwrapped(array.storage)
    return _unwrapped(array.dictionary_decode()) if pa.types.is_dictionary(array.type) else array
