"""Avro object container files: each datum is a record, and its payload is the datum as canonical JSON.

The schema stands in the file, so a payload in Avro's own encoding could not be read without it. A block that is cut
short, does not end as the file's blocks do, cannot be unpacked, or holds something else than its records is damage:
the rest of the file is one rejected record.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Protocol

import cramjam
import zstandard

from dedup_platform.sources.avro.datum import DatumReader, MalformedDatumError, datum_reader
from dedup_platform.sources.compression import DamageError, decompressed
from dedup_platform.sources.pieces import MAX_PIECE_BYTES, Pieces, zigzag
from dedup_platform.sources.records import MAX_RECORD_BYTES, Record, context_text, damaged, oversized
from dedup_platform.sources.text.json_records import canonical
from dedup_platform.stream.schemas import avro_record

__all__ = ["avro_records"]

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_UNPACKING_ERRORS = (
    cramjam.DecompressionError,
    EOFError,
    OSError,
    ValueError,
    lzma.LZMAError,
    zlib.error,
    zstandard.ZstdError,
)
_FACTS = {"format": "avro", "encoding": "json"}


def avro_records(file: BinaryIO, name: str) -> Iterator[Record]:
    """The records of one open file, which may be compressed as a whole too."""
    context = context_text(**_FACTS)
    pieces = Pieces(decompressed(file, name))
    try:
        for fields in _data(pieces):
            payload = canonical(fields).encode()
            if len(payload) > MAX_RECORD_BYTES:
                yield oversized(payload, **_FACTS)
            else:
                yield payload, fields, context
    except DamageError as damage:
        yield damaged(pieces.rest, damage, **_FACTS)


def _data(pieces: Pieces) -> Iterator[dict[str, Any]]:
    if pieces.take(len(_MAGIC)) != _MAGIC:
        raise pieces.damage("it is no Avro file")
    metadata = _metadata(pieces)
    read, unpack = _reader(pieces, metadata), _unpacker(pieces, metadata)
    sync = pieces.take(_SYNC_BYTES)
    while not pieces.are_at_end:
        count, block = _long(pieces), pieces.take(_long(pieces))
        if pieces.take(_SYNC_BYTES) != sync:
            raise pieces.damage("a block does not end as the file's blocks do")
        yield from _block(pieces, read, count, unpack(block))


def _long(pieces: Pieces) -> int:
    return zigzag(pieces.take_varint())


def _metadata(pieces: Pieces) -> dict[bytes, bytes]:
    metadata = {}
    while count := _long(pieces):
        if count < 0:
            _long(pieces)
        for _ in range(abs(count)):
            name = pieces.take(_long(pieces))
            metadata[name] = pieces.take(_long(pieces))
    return metadata


def _reader(pieces: Pieces, metadata: dict[bytes, bytes]) -> DatumReader:
    try:
        return datum_reader(avro_record(metadata.get(b"avro.schema", b"")))
    except ValueError as error:
        raise pieces.damage(f"its schema {error}") from None


def _block(pieces: Pieces, read: DatumReader, count: int, block: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    for _ in range(count):
        begin = at
        try:
            fields, at = read(block, begin)
        except MalformedDatumError:
            pieces.rest = block[begin:]
            raise pieces.damage("a record of the block before is not what the schema says") from None
        yield fields
    if at != len(block):
        pieces.rest = block[at:]
        raise pieces.damage(f"the block before holds more than its {count} records")


def _unpacker(pieces: Pieces, metadata: dict[bytes, bytes]) -> Callable[[bytes], bytes]:
    codec = metadata.get(b"avro.codec", b"null").decode(errors="replace")
    if codec not in _CODECS:
        raise pieces.damage(f"its codec is {codec}; allowed: {', '.join(_CODECS)}")

    def unpack(block: bytes) -> bytes:
        try:
            unpacked = _CODECS[codec](block)
        except _UNPACKING_ERRORS as error:
            raise pieces.damage(f"the block before cannot be unpacked: {error}") from None
        if len(unpacked) > MAX_PIECE_BYTES:
            raise pieces.damage(f"the block before is larger than {MAX_PIECE_BYTES} bytes")
        return unpacked

    return unpack


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _unpack_all(decompressor: _Decompressor, block: bytes) -> bytes:
    unpacked = decompressor.decompress(block, MAX_PIECE_BYTES + 1)
    if not decompressor.eof and len(unpacked) <= MAX_PIECE_BYTES:
        raise ValueError("it ends too early")
    return unpacked


def _unpack_snappy(block: bytes) -> bytes:
    """Snappy without frames, and behind it the checksum of what it holds."""
    packed, checksum = block[:-4], block[-4:]
    if cramjam.snappy.decompress_raw_len(packed) > MAX_PIECE_BYTES:
        raise ValueError("it is too large")
    unpacked = bytes(cramjam.snappy.decompress_raw(packed))
    if zlib.crc32(unpacked).to_bytes(4) != checksum:
        raise ValueError("its checksum is wrong")
    return unpacked


def _unpack_zstandard(block: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(block, read_across_frames=True) as reader:
        return reader.read(MAX_PIECE_BYTES + 1)


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda block: _unpack_all(zlib.decompressobj(wbits=-15), block),
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
    "bzip2": lambda block: _unpack_all(bz2.BZ2Decompressor(), block),
    "xz": lambda block: _unpack_all(lzma.LZMADecompressor(), block),
}
