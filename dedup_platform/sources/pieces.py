"""A file's content taken piece by piece, where each piece tells how long the next one is."""

from collections.abc import Iterator
from contextlib import suppress

from dedup_platform.sources.compression import DamageError

__all__ = ["MAX_PIECE_BYTES", "VARINT_BYTES", "Pieces", "read_varint", "zigzag"]

# A piece is in memory as a whole. Writers of Avro end a block after 16 to 64 KB, a message has an end anyway.
MAX_PIECE_BYTES = 256 * 2**20
VARINT_BYTES = 10


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number of up to 64 bits at a place, 7 bits a byte and the lowest first, and the place after it.

    IndexError if the bytes end in it, ValueError if it is longer.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80 and shift < 7 * VARINT_BYTES:
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
        self._damage: DamageError | None = None
        self._waiting = b""
        self._at = 0
        self._place = 0
        self.rest = b""
        """What was taken and could not be understood, for whoever takes it to set."""

    @property
    def are_at_end(self) -> bool:
        """Whether nothing is left."""
        return not self._has(1)

    def ahead(self, size: int) -> bytes:
        """What comes next, at most so many bytes, and less only before the end or damage. It is not taken."""
        with suppress(DamageError):
            self._has(size)
        return self._waiting[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """The next so many bytes."""
        if not 0 <= size <= MAX_PIECE_BYTES:
            raise self.damage(f"a part of it cannot have {size} bytes")
        if not self._has(size):
            self.rest = self._waiting[self._at :]
            raise self.damage("it ends too early")
        begin, self._at = self._at, self._at + size
        self._place += size
        return self._waiting[begin : self._at]

    def take_beginning(self, size: int, most: int) -> bytes:
        """The next so many bytes, of which no more than `most` are kept; the others are never in memory together."""
        if not most < size <= MAX_PIECE_BYTES:
            return self.take(size)
        place = self._place
        beginning = self.take(most)
        missing = size - most
        while missing and self._has(1):
            passed = min(missing, len(self._waiting) - self._at)
            self._at += passed
            self._place += passed
            missing -= passed
        if missing:
            self.rest, self._place = beginning, place
            raise self.damage("it ends too early")
        return beginning

    def take_varint(self) -> int:
        """The number that comes next."""
        self._has(VARINT_BYTES)
        try:
            number, end = read_varint(self._waiting, self._at)
        except (IndexError, ValueError):
            self.rest = self._waiting[self._at : self._at + VARINT_BYTES]
            raise self.damage("a number is cut short or too long") from None
        self.take(end - self._at)
        return number

    def damage(self, reason: str) -> DamageError:
        """The error that says so of this place."""
        return DamageError(f"at byte {self._place} of its content: {reason}", None)

    def _has(self, size: int) -> bool:
        length = len(self._waiting) - self._at
        if length >= size:
            return True
        if self._damage:
            raise self._damage
        parts = [self._waiting[self._at :]]
        try:
            while length < size and (chunk := next(self._chunks, None)) is not None:
                parts.append(chunk)
                length += len(chunk)
        except DamageError as damage:
            self._damage = damage
            raise
        finally:
            self._waiting, self._at = b"".join(parts), 0
        return length >= size
