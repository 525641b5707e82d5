"""Columns of bytes: what is written of each row, worked out for all rows of a column at once. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Array",
    "Piece",
    "booleans",
    "constant",
    "distinct",
    "doubles",
    "fixed",
    "joined",
    "lengths",
    "or_else",
    "texts",
    "varint",
    "varints",
    "zigzag",
]

Array = Any
"""A `pyarrow.LargeBinaryArray`."""
Piece = Any
"""Bytes of each row, or a scalar: the same bytes of all. Null is no bytes."""

_BINARY = pa.large_binary()
_SEVEN, _LOW = np.uint64(7), np.uint64(0x7F)


def constant(content: bytes | None) -> Piece:
    """The same bytes of every row."""
    return pa.scalar(content, _BINARY)


def joined(pieces: Sequence[Piece], rows: int) -> Array:
    """The pieces of each row one after the other."""
    made = pc.binary_join_element_wise(*pieces, constant(b""), null_handling="replace", null_replacement=b"")
    return pa.repeat(made, rows) if isinstance(made, pa.Scalar) else made


def or_else(is_there: Any, piece: Piece, other: bytes | None) -> Piece:
    """A piece, and where it is not there other bytes."""
    return pc.if_else(is_there, piece, constant(other))


def lengths(content: Array) -> np.ndarray[Any, Any]:
    """How many bytes each row has; 0 of null."""
    return pc.binary_length(content).fill_null(0).to_numpy(zero_copy_only=False)


def fixed(matrix: np.ndarray[Any, Any], lead: bytes = b"") -> Array:
    """A row of a matrix of bytes for each row, behind the same bytes."""
    made = _behind(lead, *matrix.shape)
    made[:, len(lead) :] = matrix
    return _ragged(made, np.full(len(made), made.shape[1], np.int64))


def varints(numbers: np.ndarray[Any, Any], lead: bytes = b"") -> Array:
    """Whole numbers from 0 to 2**64 - 1, seven bits a byte, the lowest first; each behind the same bytes."""
    left = numbers.astype(np.uint64)
    width = max(1, -(-int(left.max(initial=0)).bit_length() // 7))
    made = _behind(lead, len(left), width)
    sizes = np.full(len(left), len(lead) + 1, np.int64)
    for place in range(len(lead), len(lead) + width):
        made[:, place] = left & _LOW
        left >>= _SEVEN
        goes_on = left > 0
        sizes += goes_on
        made[:, place] |= goes_on.astype(np.uint8) << 7
    return _ragged(made, sizes)


def varint(number: int) -> bytes:
    """One whole number, not below 0."""
    return bytes(varints(np.array([number]))[0].as_py())


def zigzag(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whole numbers as such that are not below 0, in the order 0, -1, 1, -2, 2 …"""
    signed = numbers.astype(np.int64)
    return ((signed << 1) ^ (signed >> 63)).view(np.uint64)


def texts(values: pl.Series) -> Array:
    """Texts in UTF-8; null is empty."""
    return values.cast(pl.String).fill_null("").cast(pl.Binary).to_arrow()


def doubles(values: pl.Series, lead: bytes) -> Array:
    """Eight bytes each, the lowest first; null is 0."""
    numbers = np.ascontiguousarray(values.fill_null(0.0).to_numpy(), "<f8")
    return fixed(numbers.view(np.uint8).reshape(-1, 8), lead)


def booleans(values: pl.Series, lead: bytes) -> Array:
    """A byte each, 0 or 1; null is 0."""
    return fixed(values.cast(pl.UInt8).fill_null(0).to_numpy().reshape(-1, 1), lead)


def distinct(lists: pl.Series, write: Callable[[list[str]], bytes]) -> Array:
    """Lists of columns' names, of which few differ: each different one is written once."""
    coded = lists.list.join(",").to_arrow().dictionary_encode()
    written = [write(text.split(",") if text else []) for text in coded.dictionary.to_pylist()]
    return pa.array(written, _BINARY).take(coded.indices)


def _behind(lead: bytes, rows: int, width: int) -> np.ndarray[Any, Any]:
    made = np.empty((rows, len(lead) + width), np.uint8)
    made[:, : len(lead)] = np.frombuffer(lead, np.uint8)
    return made


def _ragged(matrix: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> Array:
    """The first bytes of each row of a matrix, as many as it has."""
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    content = matrix[np.arange(matrix.shape[1]) < sizes[:, None]]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(_BINARY, len(sizes), buffers)
