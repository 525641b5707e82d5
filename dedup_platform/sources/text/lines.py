"""The lines of a file, block by block, in bounded memory, and what is left of a damaged file's last one."""

import re
from collections.abc import Iterator

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import MAX_RECORD_BYTES

__all__ = ["Lines"]

_BLOCK = 256 * 1024
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n?|\n")


class Lines:
    """Iterates over lists of whole lines with their ends (LF, CRLF or CR), without the file's byte order mark.

    Of a line longer than MAX_RECORD_BYTES only a beginning comes, which is longer than that too. After the last list,
    `damage` says why the file could not be read to its end, and `rest` is the unfinished line before that.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._ended = False
        self.damage: DamageError | None = None
        self.rest = b""

    def __iter__(self) -> Iterator[list[bytes]]:
        tail, mark, was_cut = b"", _BOM, False
        while was_cut or not self._ended:
            lines = self._block(tail).removeprefix(mark).splitlines(keepends=True)
            mark = b""
            tail = lines.pop() if lines and self._is_unfinished(lines[-1]) else b""
            was_cut = len(tail) > MAX_RECORD_BYTES
            if was_cut:
                lines.append(tail)
                tail = self._skip_line()
            if lines:
                yield lines
        self.rest = tail

    def _is_unfinished(self, line: bytes) -> bool:
        # A CRLF that two blocks share becomes a CR and a blank line, which is nothing.
        may_go_on = not self._ended or self.damage is not None
        return may_go_on and not line.endswith((b"\n", b"\r"))

    def _block(self, tail: bytes) -> bytes:
        """`tail` and at least as much again: so a long line is looked at a few times, not once a block."""
        parts, size, wanted = [tail], len(tail), max(_BLOCK, 2 * len(tail))
        while size < wanted and not self._ended:
            chunk = self._chunk()
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)

    def _chunk(self) -> bytes:
        try:
            return next(self._chunks)
        except StopIteration:
            self._ended = True
        except DamageError as damage:
            self._ended, self.damage = True, damage
        return b""

    def _skip_line(self) -> bytes:
        while not self._ended:
            block = self._block(b"")
            if end := _LINE_END.search(block):
                return block[end.end() :]
        return b""
