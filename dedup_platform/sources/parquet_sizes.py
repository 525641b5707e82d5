"""Rows of Parquet put together, or taken apart, to parts of a good size."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["gathered"]

_BYTES = 4 * 2**20
_ITEM_BYTES = 16
"""What an item of a list takes besides its bytes."""


def gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows in their order, at most so many together, and few where they are large.

    An error of the batches comes behind all rows before it.
    """
    waiting: list[pa.RecordBatch] = []
    count = size = 0
    try:
        for some, weight in (part for rows in batches for part in _parts(rows)):
            if waiting and (count + some.num_rows > most or size + weight > _BYTES):
                yield pa.concat_batches(waiting)
                waiting, count, size = [], 0, 0
            waiting.append(some)
            count += some.num_rows
            size += weight
    except (pa.ArrowException, OSError):
        if waiting:
            yield pa.concat_batches(waiting)
        raise
    if waiting:
        yield pa.concat_batches(waiting)


def _parts(rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Some rows in halves of halves, as long as they are too large, and how large each is."""
    size = _names(rows.schema) * rows.num_rows + sum(map(_size, rows.columns))
    if rows.num_rows > 1 and size > 2 * _BYTES:
        middle = rows.num_rows // 2
        yield from _parts(rows.slice(0, middle))
        yield from _parts(rows.slice(middle))
    elif rows.num_rows:
        yield rows, size


def _names(fields: pa.Schema | pa.StructType) -> int:
    return sum(len(field.name) for field in fields)


def _size(array: pa.Array) -> int:
    """About how many bytes an array takes, and the texts of what is in it."""
    return int(array.nbytes) + _beside(array)


def _beside(array: pa.Array) -> int:
    """What is not in an array's own bytes: its dictionary's values, and the texts of the items of its lists."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _beside(array.storage)
    if pa.types.is_dictionary(kind):
        return _repeated(array)
    if pa.types.is_struct(kind):
        return _names(kind) * len(array) + sum(map(_beside, array.flatten()))
    if pa.types.is_map(kind):
        begin, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
        return _ITEM_BYTES * (end - begin) + _beside(array.keys[begin:end]) + _beside(array.items[begin:end])
    if pa.types.is_nested(kind):
        items = array.flatten()
        return _ITEM_BYTES * len(items) + _beside(items)
    return 0


def _repeated(array: pa.DictionaryArray) -> int:
    """How many bytes the values have, each as often as it stands there."""
    if pa.types.is_primitive(array.dictionary.type):
        return 0
    return pc.sum(pc.binary_length(array.dictionary).take(array.indices)).as_py() or 0
