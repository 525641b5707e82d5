"""Avro object container files: each datum is a record, and its payload is the datum as canonical JSON.

The schema stands in the file, so a payload in Avro's own encoding could not be read without it. A block that is cut
short, does not end as the file's blocks do, cannot be unpacked, or holds something else than its records is damage:
the rest of the file is one rejected record.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import cramjam
import zstandard

from dedup_platform.sources.avro.blocks import FACTS, Block, BlockColumns, MalformedBlockError, record_of
from dedup_platform.sources.avro.datum import MOST_EMPTY, MalformedDatumError, datum_reader
from dedup_platform.sources.compression import DamageError, Packed
from dedup_platform.sources.contents import Batch, listed
from dedup_platform.sources.frame_sizes import MAX_BYTES
from dedup_platform.sources.pieces import MAX_PIECE_BYTES, Pieces, zigzag
from dedup_platform.sources.records import Record, damaged
from dedup_platform.stream.schemas import avro_record

__all__ = ["avro_batches", "avro_records"]

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
_ALONE = 1024


def avro_records(content: Packed) -> Iterator[Record]:
    """The records of one open file, which may be compressed as a whole too."""
    pieces = Pieces(content.unpacked())
    try:
        container = _Container(pieces)
        for block in container.blocks():
            yield from map(record_of, container.data(block))
    except DamageError as damage:
        yield damaged(pieces.rest, damage, **FACTS)


def avro_batches(content: Packed) -> Iterator[Batch]:
    """The same records, those together that were read together."""
    pieces = Pieces(content.unpacked())
    try:
        yield from _batches(_Container(pieces))
    except DamageError as damage:
        yield listed([damaged(pieces.rest, damage, **FACTS)])


def _batches(container: "_Container") -> Iterator[Batch]:
    columns = BlockColumns(container.schema, container.read)
    try:
        yield from _gathered(container, columns)
        yield from columns.batches()
    except MalformedBlockError as malformed:
        container.pieces.rest = malformed.rest
        raise malformed.block.damage from None


def _gathered(container: "_Container", columns: BlockColumns) -> Iterator[Batch]:
    """The records of all blocks but the last few, which then are gathered."""
    try:
        for block in container.blocks():
            if not columns.add(block):
                yield from columns.batches()
                yield from _alone(map(record_of, container.data(block)))
            elif columns.are_many:
                yield from columns.batches()
    except DamageError:
        yield from columns.batches()
        raise


def _alone(records: Iterator[Record]) -> Iterator[Batch]:
    """Records that are read one by one, some of them together. DamageError behind those before it."""
    waiting: list[Record] = []
    size = 0
    try:
        for record in records:
            waiting.append(record)
            size += len(record[0])
            if len(waiting) == _ALONE or size >= MAX_BYTES:
                yield listed(waiting)
                waiting, size = [], 0
    except DamageError:
        if waiting:
            yield listed(waiting)
        raise
    if waiting:
        yield listed(waiting)


class _Container:
    """An open file behind its header."""

    def __init__(self, pieces: Pieces) -> None:
        if pieces.take(len(_MAGIC)) != _MAGIC:
            raise pieces.damage("it is no Avro file")
        metadata = _metadata(pieces)
        self.pieces = pieces
        try:
            self.schema = avro_record(metadata.get(b"avro.schema", b""))
            self.read = datum_reader(self.schema)
        except ValueError as error:
            raise pieces.damage(f"its schema {error}") from None
        self._unpack = _unpacker(pieces, metadata)
        self._sync = pieces.take(_SYNC_BYTES)

    def blocks(self) -> Iterator[Block]:
        """Its blocks, unpacked."""
        pieces = self.pieces
        while not pieces.are_at_end:
            count = _long(pieces)
            if count < 0:
                raise pieces.damage(f"a block cannot hold {count} records")
            content = pieces.take(_long(pieces))
            if pieces.take(_SYNC_BYTES) != self._sync:
                raise pieces.damage("a block does not end as the file's blocks do")
            malformed = pieces.damage("a record of the block before is not what the schema says")
            yield Block(self._unpack(content), count, malformed)

    def data(self, block: Block) -> Iterator[dict[str, Any]]:
        """The data of a block, read one by one."""
        at = 0
        for number in range(block.count):
            if number == MOST_EMPTY and not at:
                raise self.pieces.damage(f"the block before cannot hold {block.count} records without bytes")
            begin = at
            try:
                fields, at = self.read(block.content, begin)
            except MalformedDatumError:
                self.pieces.rest = block.content[begin:]
                raise block.damage from None
            yield fields
        if at != len(block.content):
            self.pieces.rest = block.content[at:]
            raise self.pieces.damage(f"the block before holds more than its {block.count} records")


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
