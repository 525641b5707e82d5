"""Parquet: each row is a record, and its payload is the row as canonical JSON.

Nothing is rounded: numbers keep their digits, floats are the shortest text that reads back equal (NaN and infinities
are texts), times are ISO 8601 with all their decimals, in UTC with Z where the column has a time zone. Binary is
base64, a map is a list of [key, value].
"""

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from json.encoder import encode_basestring
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dedup_platform.sources.compression import DamageError, decompressed
from dedup_platform.sources.json_records import json_content
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, context_text, damaged, oversized

__all__ = ["parquet_records"]

_ROWS = 1024


def parquet_records(file: BinaryIO, name: str) -> Iterator[Record]:
    """The records of one open file; one that is compressed as a whole is unpacked into a temporary file first."""
    context = context_text(format="parquet")
    try:
        with _unpacked(file, name) as unpacked:
            for payload in _payloads(unpacked):
                if len(payload) > MAX_RECORD_BYTES:
                    yield oversized(payload, format="parquet")
                else:
                    yield payload, json_content(payload), context
    except DamageError as damage:
        yield damaged(b"", damage, format="parquet")


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


def _payloads(file: BinaryIO) -> Iterator[bytes]:
    try:
        # Not pre-buffered: only the pages that are being read are in memory.
        parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)
        for batch in parquet.iter_batches(batch_size=_ROWS):
            for text in _objects(batch.schema.names, batch.columns, batch.num_rows):
                # Invalid UTF-8 comes out as it went in, and makes the record malformed.
                yield text.encode("utf-8", "surrogateescape")
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamageError(" ".join(str(error).split()), None) from None


def _objects(names: list[str], columns: list[pa.Array], count: int) -> Iterator[str]:
    """The JSON objects of some rows, with sorted names."""
    ordered = sorted(zip(names, columns, strict=True), key=lambda pair: pair[0])
    labels = [encode_basestring(name) + ":" for name, _ in ordered]
    texts = [_texts(column) for _, column in ordered]
    for row in zip(*texts, strict=True) if texts else ((),) * count:
        yield "{" + ",".join(map(str.__add__, labels, row)) + "}"


def _texts(array: pa.Array) -> list[str]:
    """The JSON of each value."""
    values = _valid_texts(array)
    if array.null_count == 0:
        return values
    return [value if valid else "null" for value, valid in zip(values, pc.is_valid(array).to_pylist(), strict=True)]


def _valid_texts(array: pa.Array) -> list[str]:
    """The JSON of each value that is not null; anything for the nulls."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _texts(array.storage)
    if pa.types.is_dictionary(kind):
        return _texts(array.dictionary_decode())
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return list(_objects(names, array.flatten(), len(array)))
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        lists = array.cast(pa.list_(entry))
        pairs = zip(*(_texts(part) for part in lists.flatten().flatten()), strict=True)
        return _lists(lists, [f"[{key},{value}]" for key, value in pairs])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array, _texts(array.flatten()))
    return _scalars(array)


def _lists(array: pa.Array, items: list[str]) -> list[str]:
    following = iter(items)
    lengths = pc.list_value_length(array).fill_null(0).to_pylist()
    return ["[" + ",".join(islice(following, length)) + "]" for length in lengths]


def _scalars(array: pa.Array) -> list[str]:
    kind = array.type
    if pa.types.is_null(kind):
        return ["null"] * len(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return _cast(array, pa.string())
    if pa.types.is_floating(kind):
        return [text if text[-1].isdigit() else f'"{text}"' for text in _cast(array, pa.string())]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [
            encode_basestring(value.decode("utf-8", "surrogateescape")) for value in _cast(array, pa.large_binary())
        ]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [f'"{base64.b64encode(value).decode()}"' for value in _cast(array, pa.large_binary())]
    if pa.types.is_timestamp(kind) and kind.tz:
        array = array.cast(pa.timestamp(kind.unit, "UTC"))
    return [f'"{text}"' for text in _cast(array, pa.string())]


def _cast(array: pa.Array, kind: pa.DataType) -> list[Any]:
    filler = b"" if pa.types.is_large_binary(kind) else "0"
    return [filler if value is None else value for value in array.cast(kind).to_pylist()]
