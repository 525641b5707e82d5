"""Binary encodings read at many places of some bytes at once, without an object for each value.

Places, sizes and values are arrays of the same length, one element for each record that is read. A value that is cut
short or too long is told by the place after it: it lies behind the place where the record ends.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

__all__ = ["BEYOND", "EncodedBytes", "Numbers", "Places", "zigzags"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]

_Number = TypeVar("_Number", bound=np.generic)

BEYOND = 2**62
"""A place behind every end."""
_VARINT_BYTES = 10
_INLINE = 12
_FIRST_BYTES = 4
_WORD_BYTES = 8
_VIEW = np.dtype([("size", "<i4"), ("first", "<u4"), ("rest", "<u8")])
"""A value of Arrow's binary views: its first four bytes, and the other ones if it has at most twelve. A longer one has
the number of its buffer there, which is 0, and its place in that."""
_FIRST_OF = np.array([2 ** (8 * min(size, _FIRST_BYTES)) - 1 for size in range(_INLINE + 1)], np.uint32)
_REST_OF = np.array([2 ** (8 * max(size - _FIRST_BYTES, 0)) - 1 for size in range(_INLINE + 1)], np.uint64)
"""What is left of these two of a value by its size."""
_MOST_BYTES = 2**31 - 1 - 2 * _INLINE


class EncodedBytes:
    """The bytes of some records, one behind the other; less than 2 GiB."""

    def __init__(self, data: bytes | pa.Buffer) -> None:
        self.end = memoryview(data).nbytes
        if self.end > _MOST_BYTES:
            raise ValueError(f"{self.end} bytes are more than can be read together")
        # Bytes behind the end, so that what begins before it can be read there.
        self._bytes = np.concatenate((np.frombuffer(data, np.uint8), np.zeros(2 * _INLINE, np.uint8)))

    @classmethod
    def of(cls, records: pl.Series) -> tuple["EncodedBytes", Places, Places]:
        """The bytes of binary values without nulls, and where each value begins and ends."""
        array = records.rechunk().to_arrow().cast(pa.large_binary())
        _, offsets, data = array.buffers()
        places = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
        return cls(data or b""), places[:-1], places[1:]

    def bytes_at(self, places: Places | slice) -> npt.NDArray[np.uint8]:
        """The byte at each place, which may be up to the end."""
        return self._bytes[places]

    def varints(self, places: Places) -> tuple[Numbers, Places]:
        """The numbers of up to 64 bits, 7 bits a byte and the lowest first, and the places after them."""
        first = self._bytes[places]
        numbers, after = first.astype(np.uint64) & np.uint64(0x7F), places + 1
        longer = np.flatnonzero(first >= 0x80)
        for length in range(2, _VARINT_BYTES + 1):
            if not len(longer):
                break
            following = self._bytes[np.minimum(after[longer], self.end)]
            numbers[longer] |= (following & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * (length - 1))
            after[longer] += 1
            if length == _VARINT_BYTES:
                after[longer[following > 1]] = BEYOND
            longer = longer[following >= 0x80]
        return numbers, after

    def fixed(self, places: Places | slice, dtype: type[_Number]) -> npt.NDArray[_Number]:
        """The numbers of 4 or 8 bytes, little-endian, at places up to the end."""
        number = np.dtype(dtype).newbyteorder("<")
        # A number at every byte: twice as fast as to take the bytes of each.
        count = len(self._bytes) - number.itemsize + 1
        return np.ndarray(count, number, self._bytes, strides=(1,))[places]

    def has(self, text: bytes, places: Places) -> npt.NDArray[np.bool_]:
        """Whether each place begins with these bytes. All must lie before the end."""
        has_all = np.ones(len(places), np.bool_)
        # Eight at a time; the last ones may be looked at twice.
        for at in sorted({*range(0, len(text) - _WORD_BYTES + 1, _WORD_BYTES), max(len(text) - _WORD_BYTES, 0)}):
            word = text[at : at + _WORD_BYTES]
            found = self.fixed(places + at, np.uint64)
            if len(word) < _WORD_BYTES:
                found &= np.uint64(2 ** (8 * len(word)) - 1)
            has_all &= found == int.from_bytes(word, "little")
        return has_all

    def slices(self, places: Places, sizes: Places) -> pl.Series:
        """So many bytes from each place on, as binary values. All must lie before the end."""
        return self._series(pa.binary_view(), places, sizes, None)

    def texts(self, places: Places, sizes: Places) -> pl.Series:
        """The same as texts, which they must be; null where a size is negative."""
        is_there = sizes >= 0
        if is_there.all():
            return self._series(pa.string_view(), places, sizes, None)
        validity = pa.py_buffer(np.packbits(is_there, bitorder="little"))
        return self._series(pa.string_view(), places, np.maximum(sizes, 0), validity)

    def _series(self, of_type: pa.DataType, places: Places, sizes: Places, validity: pa.Buffer | None) -> pl.Series:
        views = np.empty(len(places), _VIEW)
        views["size"], views["first"] = sizes, self.fixed(places, np.uint32)
        views["rest"] = places.astype(np.uint64) << np.uint64(32)
        short = np.flatnonzero(sizes <= _INLINE)
        if len(short):
            known = sizes[short]
            views["first"][short] &= _FIRST_OF[known]
            views["rest"][short] = self.fixed(places[short] + _FIRST_BYTES, np.uint64) & _REST_OF[known]
        buffers = [validity, pa.py_buffer(views), pa.py_buffer(self._bytes)]
        series = pl.from_arrow(pa.Array.from_buffers(of_type, len(places), buffers))
        assert isinstance(series, pl.Series)
        return series


def zigzags(numbers: Numbers) -> npt.NDArray[np.int64]:
    """The signed numbers that Avro and Protobuf write as these without a sign."""
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
