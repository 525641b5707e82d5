"""Ways over values of Avro, one of the same type in each of many data, by the primitives of `Cursor`."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import polars as pl

from dedup_platform.sources.avro.cursors import Asked, Cursor, Longs
from dedup_platform.sources.binary_columns import EncodedBytes, Places
from dedup_platform.sources.text.blocks import as_texts
from dedup_platform.sources.text.typed_texts import base64_texts, float_texts
from dedup_platform.sources.texts import Texts, quoted_texts

__all__ = [
    "PRIMITIVES",
    "Walk",
    "as_they_are",
    "texts_or_numbers",
    "walk_bytes",
    "walk_doubtful",
    "walk_enum",
    "walk_fixed",
    "walk_items",
    "walk_longs",
    "walk_map",
    "walk_record",
    "walk_union",
]

T = TypeVar("T")

Walk = Callable[[Cursor, Asked | None], None]
"""Goes with a cursor over the values of one type, and keeps what is asked for of them."""

Write = Callable[[pl.Series], pl.Series]
"""From values to their texts, or from texts to the JSON of what they are texts of."""

_Slices = tuple[EncodedBytes, Places, Longs]
"""Bytes, and where in them values begin and how long each is."""

_MOST_ITEMS = 256
_FEW = 64
"""Reading the lists of so many data alone costs no more than a step over them all."""


def walk_doubtful(cursor: Cursor, _: Asked | None) -> None:
    """Whatever is there is in doubt."""
    cursor.doubt()


def walk_record(fields: Mapping[str, Walk]) -> Walk:
    """Over a record's fields in order. A record that is asked for as a whole is in doubt."""

    def walk(cursor: Cursor, asked: Asked | None) -> None:
        if asked and asked.is_asked:
            cursor.doubt()
        for name, walk_field in fields.items():
            walk_field(cursor, asked.steps.get(name) if asked else None)

    return walk


def walk_union(branches: Sequence[Walk]) -> Walk:
    """Over the values of each branch together."""

    def walk(cursor: Cursor, asked: Asked | None) -> None:
        indexes = cursor.indexes(len(branches))
        for index, walk_branch in enumerate(branches):
            places = np.flatnonzero(indexes == index)
            if len(places):
                some = cursor.some(places)
                walk_branch(some, asked)
                cursor.go_on(places, some)

    return walk


def walk_items(walk_item: Walk) -> Walk:
    """Over the items of arrays. An array that is asked for is in doubt, and so is one that is longer than most."""

    def walk(cursor: Cursor, asked: Asked | None) -> None:
        if asked:
            cursor.doubt()
        _walk_blocks(cursor, walk_item)

    return walk


def walk_map(walk_value: Walk) -> Walk:
    """Over names and values."""

    def walk_item(cursor: Cursor, _: Asked | None) -> None:
        PRIMITIVES["string"](cursor, None)
        walk_value(cursor, None)

    return walk_items(walk_item)


def _walk_blocks(cursor: Cursor, walk_item: Walk) -> None:
    """Over blocks of items, one block and in it one item in all data at once."""
    items = np.zeros(len(cursor), np.int64)
    places = np.arange(len(cursor))
    while len(places):
        some = cursor.some(places)
        counts = _block(some)
        cursor.go_on(places, some)
        items[places] += counts
        some.doubt(items[places] > _MOST_ITEMS)
        has_items = (counts > 0) & ~some.in_doubt
        places, counts = places[has_items], counts[has_items]
        for number in range(counts.max(initial=0)):
            _walk_item(cursor, places[counts > number], walk_item)
        places = _sure(cursor, places)


def _walk_item(cursor: Cursor, places: Places, walk_item: Walk) -> None:
    places = _sure(cursor, places)
    some = cursor.some(places)
    if len(places) < _FEW:
        some.doubt()
    else:
        walk_item(some, None)
        cursor.go_on(places, some)


def _sure(cursor: Cursor, places: Places) -> Places:
    """Those that are not in doubt."""
    return places[~cursor.some(places).in_doubt]


def _block(cursor: Cursor) -> Longs:
    """How many items the next block has, at most one more than there may be."""
    counts = cursor.longs()
    with_size = np.flatnonzero(counts < 0)
    if len(with_size):
        some = cursor.some(with_size)
        some.longs()
        cursor.go_on(with_size, some)
    # The smallest number has no absolute value.
    return np.minimum(np.abs(np.maximum(counts, -_MOST_ITEMS - 1)), _MOST_ITEMS + 1)


def _leaf(read: Callable[[Cursor], T], texts_of: Callable[[T], Texts], json_of: Write) -> Walk:
    def walk(cursor: Cursor, asked: Asked | None) -> None:
        values = read(cursor)
        if asked and asked.is_asked:
            texts = texts_of(values)
            asked.found(cursor.rows, texts, json_of(texts.values) if asked.is_written else None)

    return walk


def as_they_are(texts: pl.Series) -> pl.Series:
    """The JSON of numbers and booleans."""
    return texts


def texts_or_numbers(texts: pl.Series) -> pl.Series:
    """The JSON of texts that may be Numbers: then they are nothing but digits."""
    quoted = quoted_texts(texts)
    are_numbers = texts.str.contains("^-?[0-9]+$")
    return quoted.zip_with(~are_numbers, texts) if are_numbers.any() else quoted


def _floats_or_texts(texts: pl.Series) -> pl.Series:
    """The JSON of floats: NaN and the infinities are texts."""
    are_numbers = texts.str.contains("[0-9]$")
    return texts if are_numbers.all() else texts.zip_with(are_numbers, quoted_texts(texts))


def walk_longs(texts_of: Callable[[Longs], Texts], json_of: Write) -> Walk:
    """Over whole numbers."""
    return _leaf(Cursor.longs, texts_of, json_of)


def walk_enum(symbols: Sequence[str]) -> Walk:
    """Over the places of symbols, at least one."""
    names = pl.Series(symbols, dtype=pl.String)
    return _leaf(lambda cursor: cursor.indexes(len(names)), lambda indexes: Texts(names[indexes]), quoted_texts)


def walk_bytes(texts_of: Write, json_of: Write, most: int | None = None) -> Walk:
    """Over bytes behind their size; in doubt if they are more than `most`."""

    def read(cursor: Cursor) -> _Slices:
        begins, sizes = cursor.skip(cursor.longs())
        if most is not None:
            cursor.doubt(sizes > most)
            sizes = np.minimum(sizes, most)
        return cursor.data, begins, sizes

    return _leaf(read, lambda values: Texts(texts_of(_sliced(values))), json_of)


def walk_fixed(size: int, texts_of: Write, json_of: Write) -> Walk:
    """Over so many bytes."""
    return _leaf(
        lambda cursor: (cursor.data, *cursor.skip(np.full(len(cursor), size))),
        lambda values: Texts(texts_of(_sliced(values))),
        json_of,
    )


def _floats(dtype: type[np.floating]) -> Walk:
    size = np.dtype(dtype).itemsize
    return _leaf(
        lambda cursor: cursor.data.fixed(cursor.skip(np.full(len(cursor), size))[0], dtype),
        lambda values: Texts(float_texts(values.astype(dtype, copy=False))),
        _floats_or_texts,
    )


def _sliced(slices: _Slices) -> pl.Series:
    data, begins, sizes = slices
    return data.slices(begins, sizes)


def _strings(cursor: Cursor) -> pl.Series:
    texts = as_texts(cursor.data.slices(*cursor.skip(cursor.longs())))
    if texts.null_count():
        cursor.doubt(texts.is_null().to_numpy())
    return texts


def _booleans(cursor: Cursor) -> pl.Series:
    begins, _ = cursor.skip(np.ones(len(cursor), np.int64))
    values = cursor.data.bytes_at(begins)
    cursor.doubt(values > 1)
    return pl.Series(values == 1)


def _whole_numbers(numbers: Longs) -> Texts:
    return Texts(pl.Series(numbers).cast(pl.String))


PRIMITIVES: dict[str, Walk] = {
    "null": lambda _, __: None,
    "boolean": _leaf(_booleans, lambda values: Texts(values.cast(pl.String)), as_they_are),
    "int": walk_longs(_whole_numbers, as_they_are),
    "long": walk_longs(_whole_numbers, as_they_are),
    "float": _floats(np.float32),
    "double": _floats(np.float64),
    "bytes": walk_bytes(base64_texts, quoted_texts),
    "string": _leaf(_strings, Texts, quoted_texts),
}
"""Over the types without parts or names, by what they are called."""
