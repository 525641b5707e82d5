"""Binary encodings read at many places of some bytes at once, without an object for each value.

Places, sizes and values are arrays of the same length, one element for each record that is read. A value that is cut
short or too long is told by the place after it: it lies behind the place where the record ends.
"""

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

__all__ = ["BEYOND", "EncodedBytes", "Numbers", "Places", "zigzags"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint64]

BEYOND = 2**62
"""A place behind every end."""
_VARINT_BYTES = 10
_INLINE = 12
_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("buffer", "<i4"), ("offset", "<i4")])
"""A value of Arrow's binary views. One of at most 12 bytes has them in the place of the last three fields."""
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

    def fixed(self, places: Places, dtype: type[np.generic]) -> npt.NDArray[np.generic]:
        """The numbers of 4 or 8 bytes, little-endian, at places up to the end."""
        size = np.dtype(dtype).itemsize
        windows = np.lib.stride_tricks.sliding_window_view(self._bytes, size)
        return windows[places].view(np.dtype(dtype).newbyteorder("<")).reshape(len(places))

    def slices(self, places: Places, sizes: Places) -> pl.Series:
        """So many bytes from each place on, as binary values. All must lie before the end."""
        views = np.empty(len(places), _VIEW)
        views["size"], views["buffer"], views["offset"] = sizes, 0, places
        views["prefix"] = self.fixed(places, np.uint32)
        short = np.flatnonzero(sizes <= _INLINE)
        inline = np.lib.stride_tricks.sliding_window_view(self._bytes, _INLINE)[places[short]]
        inline[np.arange(_INLINE) >= sizes[short, None]] = 0
        views.view(np.uint8).reshape(len(places), _VIEW.itemsize)[short, 4:] = inline
        buffers = [None, pa.py_buffer(views), pa.py_buffer(self._bytes)]
        series = pl.from_arrow(pa.Array.from_buffers(pa.binary_view(), len(places), buffers))
        assert isinstance(series, pl.Series)
        return series


def zigzags(numbers: Numbers) -> npt.NDArray[np.int64]:
    """The signed numbers that Avro and Protobuf write as these without a sign."""
    return (numbers >> np.uint64(1)).view(np.int64) ^ -(numbers & np.uint64(1)).view(np.int64)
