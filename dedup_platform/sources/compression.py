"""The bytes of a file, decompressed while they are read; of a damaged file, all bytes before the damage."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from os import SEEK_END
from typing import BinaryIO, Protocol

import cramjam
import zstandard
from isal import isal_zlib

from dedup_platform.stream.source import MAX_UNPACKED_RATIO

__all__ = ["DamageError", "Packed", "decompressed", "most_unpacked"]

_BLOCK = 256 * 1024
# Small, because a decoder gives all that a piece holds at once: 2 KiB of zstd can be 64 MiB of zeros.
_PIECE = 2 * 1024
_SMALL = 4 * 2**20
"""Up to here a file may unpack to any number of times its size: the smaller, the more often they do."""
_ENDS_EARLY = "the compressed data ends too early"
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_HEADER_BYTES = 10
_MOST_HEADER_BYTES = 16 * 1024
_CHECKSUM, _EXTRA, _NAME, _COMMENT, _UNDEFINED_FLAGS = 2, 4, 8, 16, 0xE0
_IGZIP_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub takes it for an instance
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SNAPPY_MAGIC = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_PADDING = 0xFE
# What a chunk may take; writers of frames stop at 64 KiB, Hadoop's at 256 KiB.
_MAX_SNAPPY_CHUNK = 16 * 2**20
_ZSTD_SKIPPABLE = b"\x2a\x4d\x18"


class DamageError(Exception):
    """The rest of a file cannot be read. `offset` is the place in the file as it is stored, in bytes, where known."""

    def __init__(self, reason: str, offset: int | None) -> None:
        super().__init__(reason, offset)
        self.reason = reason
        self.offset = offset


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


_NewDecoder = Callable[[], _Decoder]


class _Igzip:
    """igzip, which gets the header of a member in one piece: where a long one comes in several it gives wrong bytes.

    It would also take flags that nobody has defined.
    """

    def __init__(self) -> None:
        self._decoder = isal_zlib.decompressobj(wbits=31)
        self._header: bytes | None = b""

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    @property
    def unused_data(self) -> bytes:
        return self._decoder.unused_data

    def decompress(self, data: bytes, /) -> bytes:
        if self._header is not None:
            data = self._header + data
            if not _has_whole_header(data):
                self._header = data
                return b""
            self._header = None
        return self._decoder.decompress(data)


def _has_whole_header(member: bytes) -> bool:
    """Whether a member of gzip is there with all of its header; an error of igzip if zlib had better read it."""
    if len(member) < _GZIP_HEADER_BYTES:
        return False
    flags, end = member[3], _GZIP_HEADER_BYTES
    if flags & _EXTRA:
        end += 2 + int.from_bytes(member[end : end + 2], "little")
    for text in (_NAME, _COMMENT):
        if flags & text:
            end = member.find(b"\0", end) + 1 or len(member) + 1
    end += flags & _CHECKSUM
    if flags & _UNDEFINED_FLAGS or len(member) > _MOST_HEADER_BYTES:
        raise _IGZIP_ERROR("its header is too long or unknown")
    return end <= len(member)


def most_unpacked(size: int, ratio: int) -> int:
    """How many bytes a file of this size may unpack to."""
    return max(_SMALL, ratio * size)


@dataclass(frozen=True)
class Packed:
    """An open file, which may be compressed; `most` is how many times its size it may unpack to."""

    file: BinaryIO
    name: str
    most: int = MAX_UNPACKED_RATIO

    def unpacked(self) -> Iterator[bytes]:
        """As `decompressed`; that it is too much is damage, too: else 40 KB could become twenty million records."""
        left = most_unpacked(self.file.seek(0, SEEK_END), self.most)
        self.file.seek(0)
        for chunk in decompressed(self.file, self.name):
            yield chunk[:left]
            if len(chunk) > left:
                reason = f"it unpacks to more than {self.most} times its size, which is source.max_unpacked_ratio"
                raise DamageError(reason, self.file.tell())
            left -= len(chunk)


def decompressed(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The content of an open file in chunks of any size; raises DamageError after the last byte that could be read.

    The first bytes decide between gzip, zstd, snappy's frames and plain. A name that ends in .gz, .zst or .sz promises
    compression: other content under it is damage. Hadoop's snappy begins by nothing of its own, so that only a name
    that ends in .snappy tells it.
    """
    start = file.read(len(_SNAPPY_MAGIC))
    file.seek(0)
    if decoders := _decoders_of(start[:4]):
        yield from _members(file, decoders)
    elif start == _SNAPPY_MAGIC:
        yield from _snappy_frames(file)
    elif start and name.lower().endswith(".snappy"):
        yield from _hadoop_snappy(file)
    elif promised := _promised(name):
        raise DamageError(f"its name promises {promised}, but its first bytes are not {promised}'s", 0)
    else:
        yield from iter(lambda: file.read(_BLOCK), b"")


def _decoders_of(start: bytes) -> Sequence[_NewDecoder]:
    if start.startswith(_GZIP_MAGIC):
        return (_Igzip, _zlib)  # igzip is twice as fast
    if start == _ZSTD_MAGIC or (start[1:] == _ZSTD_SKIPPABLE and start[0] & 0xF0 == 0x50):
        return (_zstd,)
    return ()


def _zlib() -> _Decoder:
    return zlib.decompressobj(wbits=31)


def _zstd() -> _Decoder:
    return zstandard.ZstdDecompressor().decompressobj()


def _promised(name: str) -> str | None:
    endings = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd", ".sz": "snappy", ".snappy": "snappy"}
    return next((kind for ending, kind in endings.items() if name.lower().endswith(ending)), None)


def _snappy_frames(file: BinaryIO) -> Iterator[bytes]:
    """The content of each chunk, which has a checksum."""
    offset = 0
    while header := file.read(4):
        size = int.from_bytes(header[1:], "little")
        chunk = file.read(size)
        if len(header) + len(chunk) < 4 + size or len(header) < 4:
            raise DamageError(_ENDS_EARLY, offset + len(header) + len(chunk))
        # The format lets a reader pass over kinds that it does not know; one wrong bit would so lose records unseen.
        if 0x80 <= header[0] < _SNAPPY_PADDING:
            raise DamageError(f"{header[0]} is no kind of chunk", offset)
        yield _unpacked(cramjam.snappy.decompress, _SNAPPY_MAGIC + header + chunk, offset)
        offset += 4 + size


def _hadoop_snappy(file: BinaryIO) -> Iterator[bytes]:
    """The content of each chunk: blocks say how much they hold, and their chunks how long they are."""
    offset = missing = 0
    while header := file.read(4):
        size = int.from_bytes(header)
        if len(header) < 4:
            raise DamageError(_ENDS_EARLY, offset + len(header))
        if not missing:
            missing = size
            offset += 4
            continue
        if size > _MAX_SNAPPY_CHUNK:
            raise DamageError(f"a chunk cannot have {size} bytes", offset)
        chunk = file.read(size)
        if len(chunk) < size:
            raise DamageError(_ENDS_EARLY, offset + 4 + len(chunk))
        content = _unpacked(_unpack_raw, chunk, offset)
        if len(content) > missing:
            raise DamageError("a block holds more than it says", offset)
        yield content
        missing -= len(content)
        offset += 4 + size
    if missing:
        raise DamageError(_ENDS_EARLY, offset)


def _unpack_raw(chunk: bytes) -> cramjam.Buffer:
    if cramjam.snappy.decompress_raw_len(chunk) > _MAX_SNAPPY_CHUNK:
        raise cramjam.DecompressionError("a chunk holds too much")
    return cramjam.snappy.decompress_raw(chunk)


def _unpacked(unpack: Callable[[bytes], cramjam.Buffer], chunk: bytes, offset: int) -> bytes:
    try:
        return bytes(unpack(chunk))
    except cramjam.DecompressionError as error:
        raise DamageError(str(error), offset) from None


def _members(file: BinaryIO, decoders: Sequence[_NewDecoder]) -> Iterator[bytes]:
    """All members (gzip) or frames (zstd), one after the other; of several decoders the last says what is damaged.

    A decoder that fails keeps what it had decoded of its last piece to itself. So after a failure that part of the
    file is read again from the start, byte by byte where it failed: every byte before the damage comes out.
    """
    given = 0
    damage: DamageError | None = None
    *_, exact = decoders
    for new_decoder, is_bytewise in (*((each, False) for each in decoders), (exact, True)):
        file.seek(0)
        seen = 0
        try:
            for chunk in _decode(file, new_decoder, damage.offset if damage and is_bytewise else None):
                seen += len(chunk)
                if seen > given:
                    yield chunk[given - seen :]
                    given = seen
            return
        except DamageError as error:
            damage = error
    assert damage  # bytewise it fails too, at the exact offset
    raise damage


def _decode(file: BinaryIO, new_decoder: _NewDecoder, bytewise_from: int | None) -> Iterator[bytes]:
    """Decoded pieces; each piece is one byte from that offset on. The error's offset is where its piece began."""
    decoder = new_decoder()
    offset = 0
    while piece := file.read(_PIECE if bytewise_from is None or offset < bytewise_from else 1):
        begin, offset = offset, offset + len(piece)
        while piece:
            if decoder.eof:
                piece = piece.lstrip(b"\0")  # gzip members may be padded to a block of a tape or a device
                if not piece:
                    break
                decoder = new_decoder()
            try:
                content = decoder.decompress(piece)
            except (_IGZIP_ERROR, zlib.error, zstandard.ZstdError) as error:
                raise DamageError(str(error), begin) from None
            piece = decoder.unused_data
            if content:
                yield content
    if not decoder.eof:
        raise DamageError(_ENDS_EARLY, offset)
