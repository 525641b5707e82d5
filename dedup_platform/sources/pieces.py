"""A file's content taken piece by piece, where each piece tells how long the next one is."""

from collections.abc import Iterator

from dedup_platform.sources.compression import DamageError

__all__ = ["MAX_PIECE_BYTES", "Pieces", "read_varint", "zigzag"]

# A piece is in memory as a whole. Writers of Avro end a block after 16 to 64 KB, a message has an end anyway.
MAX_PIECE_BYTES = 256 * 2**20
_VARINT_BYTES = 10


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number of up to 64 bits at a place, 7 bits a byte and the lowest first, and the place after it.

    IndexError if the bytes end in it, ValueError if it is longer.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < 7 * _VARINT_BYTES:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
    if byte >= 0x80 or number >> 64:
        raise ValueError("a number has more than 64 bits")
    return number, at + 1


def zigzag(number: int) -> int:
    """The signed number that Avro and Protobuf write as this one without a sign."""
    return (number >> 1) ^ -(number & 1)


class Pieces:
    """The pieces of a content that comes in chunks. What cannot be taken raises DamageError.

    An error's place is one in the content: where that is in a compressed file is not known.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._waiting = b""
        self._place = 0
        self.rest = b""
        """What was taken and could not be understood, for whoever takes it to set."""

    @property
    def are_at_end(self) -> bool:
        """Whether nothing is left."""
        return not self._has(1)

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        if not 0 <= size <= MAX_PIECE_BYTES:
            raise self.damage(f"a part of it cannot have {size} bytes")
        if not self._has(size):
            self.rest = self._waiting
            raise self.damage("it ends too early")
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        self._place += size
        return taken

    def take_varint(self) -> int:
        """The number that comes next."""
        self._has(_VARINT_BYTES)
        try:
            number, size = read_varint(self._waiting, 0)
        except (IndexError, ValueError):
            self.rest = self._waiting[:_VARINT_BYTES]
            raise self.damage("a number is cut short or too long") from None
        self.take(size)
        return number

    def damage(self, reason: str) -> DamageError:
        """The error that says so of this place."""
        return DamageError(f"at byte {self._place} of its content: {reason}", None)

    def _has(self, size: int) -> bool:
        parts, length = [self._waiting], len(self._waiting)
        while length < size and (chunk := next(self._chunks, None)) is not None:
            parts.append(chunk)
            length += len(chunk)
        self._waiting = b"".join(parts)
        return length >= size
