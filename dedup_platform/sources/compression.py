"""The bytes of a file, decompressed while they are read; of a damaged file, all bytes before the damage."""

import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import zstandard

__all__ = ["DamageError", "decompressed"]

_BLOCK = 256 * 1024
# Small, because a decoder gives all that a piece holds at once: 2 KiB of zstd can be 64 MiB of zeros.
_PIECE = 2 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
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


def decompressed(file: BinaryIO, name: str) -> Iterator[bytes]:
    """The content of an open file in chunks of any size; raises DamageError after the last byte that could be read.

    The first bytes decide between gzip, zstd and plain. A name that ends in .gz or .zst promises compression: other
    content under it is damage.
    """
    start = file.read(4)
    file.seek(0)
    decoder = _decoder_of(start)
    if decoder:
        yield from _members(file, decoder)
    elif promised := _promised(name):
        raise DamageError(f"its name promises {promised}, but its first bytes are not {promised}'s", 0)
    else:
        yield from iter(lambda: file.read(_BLOCK), b"")


def _decoder_of(start: bytes) -> Callable[[], _Decoder] | None:
    if start.startswith(_GZIP_MAGIC):
        return lambda: zlib.decompressobj(wbits=31)
    if start == _ZSTD_MAGIC or (start[1:] == _ZSTD_SKIPPABLE and start[0] & 0xF0 == 0x50):
        return lambda: zstandard.ZstdDecompressor().decompressobj()
    return None


def _promised(name: str) -> str | None:
    endings = {".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
    return next((kind for ending, kind in endings.items() if name.lower().endswith(ending)), None)


def _members(file: BinaryIO, new_decoder: Callable[[], _Decoder]) -> Iterator[bytes]:
    """All members (gzip) or frames (zstd), one after the other.

    A decoder that fails keeps what it had decoded of its last piece to itself. So after a failure that part of the
    file is read again from the start, byte by byte where it failed: every byte before the damage comes out.
    """
    given = 0
    try:
        for chunk in _decode(file, new_decoder, bytewise_from=None):
            given += len(chunk)
            yield chunk
    except DamageError as damage:
        file.seek(0)
        seen = 0
        for chunk in _decode(file, new_decoder, bytewise_from=damage.offset):
            seen += len(chunk)
            if seen > given:
                yield chunk
        raise  # bytewise it fails too, at the exact offset


def _decode(file: BinaryIO, new_decoder: Callable[[], _Decoder], bytewise_from: int | None) -> Iterator[bytes]:
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
            except (zlib.error, zstandard.ZstdError) as error:
                raise DamageError(str(error), begin) from None
            piece = decoder.unused_data
            if content:
                yield content
    if not decoder.eof:
        raise DamageError("the compressed data ends too early", offset)
