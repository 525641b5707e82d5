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
from json.encoder import encode_basestring
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dedup_platform.sources.compression import DamageError, Packed
from dedup_platform.sources.contents import Batch, ColumnContents, listed
from dedup_platform.sources.parquet_pages import largest_row
from dedup_platform.sources.parquet_sizes import gathered
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, bounded, context_text, damaged
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.text.json_objects import json_objects
from dedup_platform.sources.text.json_records import json_content
from dedup_platform.sources.texts import MUST_BE_ESCAPED

__all__ = ["parquet_batches", "parquet_records"]

_FEW_ROWS, _ROWS, _BATCH_BYTES = 1024, 8192, 4 * 2**20
_MOST_BYTES = 32 * 2**20
"""So much is asked for at once, if all rows are as large as one may be."""
_MOST_ITEMS = MAX_RECORD_BYTES // 2 + 1
"""A list with more makes a record too long: each has one letter at least, and a comma."""
_YEAR_9999 = 253_370_764_800_000_000
"""Microseconds between 1970 and the first moment of it."""
_FACTS = {"format": "parquet"}
_NO_PARQUET = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises for a file that breaks a rule of Parquet: the last, for a name of something that is no UTF-8."""
_BYTES = pa.large_binary()
_ARE_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


def parquet_records(content: Packed) -> Iterator[Record]:
    """The records of one open file; one that is compressed as a whole is unpacked into a temporary file first."""
    for batch in parquet_batches(content):
        yield from zip(*batch, strict=True)


def parquet_batches(content: Packed) -> Iterator[Batch]:
    """The same records, those together that were read together."""
    try:
        with _unpacked(content) as unpacked:
            for rows in _rows(unpacked):
                yield _batch(rows)
    except DamageError as damage:
        yield listed([damaged(b"", damage, **_FACTS)])


@contextmanager
def _unpacked(content: Packed) -> Iterator[BinaryIO]:
    is_plain = content.file.read(4) == b"PAR1"
    content.file.seek(0)
    if is_plain:
        yield content.file
        return
    with tempfile.TemporaryFile() as unpacked:
        for chunk in content.unpacked():
            unpacked.write(chunk)
        unpacked.seek(0)
        yield unpacked


@dataclass(frozen=True)
class _Rows:
    """Some rows, a column at a time."""

    columns: dict[str, pl.Series]
    """Of values without parts: their texts, but booleans as they are. None at all where some have parts."""
    payloads: pl.Series
    moments: dict[str, pl.Series]
    """Of columns of times in UTC: what `Texts` says of them."""

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "_Rows":
        names, columns = rows.schema.names, [_unwrapped(column) for column in rows.columns]
        texts = [] if _have_parts(names, columns) else [_texts(column) for column in columns]
        # What is no UTF-8 makes a record malformed, and Polars takes for granted that there is none.
        if not texts or not all(map(_is_utf8, texts)):
            return cls({}, _series(_objects(names, [_json(column) for column in columns], rows.num_rows)), {})
        typed = {name: _quoted(column.type, each) for name, column, each in zip(names, columns, texts, strict=True)}
        known = zip(names, columns, texts, strict=True)
        told = {name: _series(column if pa.types.is_boolean(column.type) else each) for name, column, each in known}
        moments = {name: _moments(each) for name, each in zip(names, columns, strict=True) if _is_moment(each.type)}
        return cls(told, json_objects(typed), moments)

    def column(self, name: str) -> pl.Series:
        """What the JSON of each row has of a field, numbers as their text."""
        return self.columns[name]


def _rows(file: BinaryIO) -> Iterator[_Rows]:
    done = 0
    try:
        for rows in _read(file):
            yield _Rows.of(rows)
            done += rows.num_rows
    except _NO_PARQUET as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield from _rest(file, done)


def _rest(file: BinaryIO, done: int) -> Iterator[_Rows]:
    """What can be read of a damaged file behind the rows that are done, a few at a time, up to the damage."""
    try:
        for rows in _read(file, _FEW_ROWS):
            if rows.num_rows > done:
                yield _Rows.of(rows.slice(done))
            done = max(0, done - rows.num_rows)
    except _NO_PARQUET as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamageError(" ".join(str(error).split()), None) from None


def _read(file: BinaryIO, at_once: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows, so many at once or as many as make a good batch. Invalid UTF-8 comes out as it went in."""
    file.seek(0)
    # Not pre-buffered: only the pages that are being read are in memory.
    parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)
    rows_at_once = at_once or _rows_a_batch(parquet.metadata)
    bounded = max(1, min(rows_at_once, _MOST_BYTES // max(1, largest_row(file))))
    return gathered(parquet.iter_batches(bounded), rows_at_once)


def _rows_a_batch(metadata: pq.FileMetaData) -> int:
    """As many rows as fit, by the mean size of the rows of the group whose rows are largest."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    largest = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(_FEW_ROWS, min(_ROWS, _BATCH_BYTES // max(largest, 1)))


def _batch(rows: _Rows) -> Batch:
    context, payloads = context_text(**_FACTS), rows.payloads
    if not rows.columns or _longest(payloads) > MAX_RECORD_BYTES:
        return listed([bounded(payload, json_content, context, _FACTS) for payload in payloads])
    contents = ColumnContents(rows.columns, rows.column, payloads, json_content, rows.moments)
    return payloads, contents, Repeated(context, len(payloads))


def _longest(payloads: pl.Series) -> int:
    longest = payloads.bin.size().max()
    assert isinstance(longest, int)
    return longest


def _is_moment(kind: pa.DataType) -> bool:
    """Whether values are times in UTC in units whose texts tell all of them."""
    return bool(pa.types.is_timestamp(kind) and kind.tz and kind.unit in ("ms", "us"))


def _moments(times: pa.Array) -> pl.Series:
    """Microseconds since 1970, null where the text of a time may not be one."""
    ticks = _series(times.cast(pa.int64()))
    unit = {"ms": 1_000, "us": 1}[times.type.unit]
    return pl.select(pl.when(pl.lit(ticks).is_between(0, _YEAR_9999 // unit)).then(pl.lit(ticks) * unit)).to_series()


def _have_parts(names: list[str], columns: list[pa.Array]) -> bool:
    """Whether rows are more than one value for each of their names."""
    return len(set(names)) < len(names) or any(pa.types.is_nested(column.type) for column in columns)


def _is_utf8(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _series(array: pa.Array) -> pl.Series:
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series


def _quoted(kind: pa.DataType, texts: pa.Array) -> tuple[pl.Series, str]:
    """The JSON of values, as far as it stands between quotes, if all do."""
    if pa.types.is_floating(kind):
        return _series(_json_of_texts(kind, texts).cast(pa.large_string())), ""
    known = _series(texts)
    if _is_text(kind) and known.str.contains(MUST_BE_ESCAPED).any():
        known = _series(_escaped(texts.cast(_BYTES)).cast(pa.large_string()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return known.fill_null("null"), ""
    if not texts.null_count:
        return known, '"'
    return pl.select(pl.concat_str(pl.lit('"'), pl.lit(known), pl.lit('"')).fill_null("null")).to_series(), ""


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
        lists = _shortened(lists)
        keys, values = (_json(part) for part in lists.flatten().flatten())
        return _lists(lists, _joined("[", keys, ",", values, "]"))
    lists = _shortened(array)
    return _lists(lists, _json(lists.flatten()))


def _shortened(lists: pa.Array) -> pa.Array:
    """The same lists; of those with too many items, the first that make their record too long anyway."""
    longest = pc.max(pc.list_value_length(lists)).as_py() or 0
    return pc.list_slice(lists, 0, _MOST_ITEMS, return_fixed_size_list=False) if longest > _MOST_ITEMS else lists


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
    lengths = pc.list_value_length(array).fill_null(0).cast(pa.int64())
    ends = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    return _joined("[", pc.binary_join(pa.LargeListArray.from_arrays(ends, items), pa.scalar(b",", _BYTES)), "]")


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts as they stand between the quotes of JSON."""
    odd = pc.match_substring_regex(texts, MUST_BE_ESCAPED).fill_null(False)
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
    if any(is_kind(kind) for is_kind in _ARE_BYTES):
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
