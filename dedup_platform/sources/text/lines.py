"""The lines of a file, block by block, in bounded memory, and what is left of a damaged file's last one."""

import codecs
import re
from collections.abc import Iterator

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import MAX_RECORD_BYTES

__all__ = ["Lines"]

_BLOCK = 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n?|\n")


def _marked(error: UnicodeError) -> tuple[str, int]:
    """In place of what cannot be decoded: what becomes a byte that is in no text."""
    assert isinstance(error, UnicodeDecodeError)
    return "\udcff", error.end


codecs.register_error("dedup_platform.marked", _marked)


def _in_utf_8(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("dedup_platform.marked")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "surrogateescape")
    yield decoder.decode(b"", final=True).encode("utf-8", "surrogateescape")


class Lines:
    """Iterates over lists of whole lines with their ends (LF, CRLF or CR), without the file's byte order mark.

    Of a line longer than MAX_RECORD_BYTES only a beginning comes, which is longer than that too. After the last list,
    `damage` says why the file could not be read to its end, and `rest` is the unfinished line before that.
    """

    def __init__(self, chunks: Iterator[bytes], encoding: str = "utf-8") -> None:
        """`encoding`: that of the chunks; the lines are in UTF-8, with a byte that is none where it was not obeyed."""
        self._chunks = chunks if encoding == "utf-8" else _in_utf_8(chunks, encoding)
        self._ended = False
        self.damage: DamageError | None = None
        self.rest = b""

    def __iter__(self) -> Iterator[list[bytes]]:
        return (block.splitlines(keepends=True) for block in self.blocks())

    def blocks(self) -> Iterator[bytes]:
        """The same lines, those that are read together in one piece. What is too long ends its block."""
        tail, mark, was_cut = b"", _BOM, False
        while was_cut or not self._ended:
            block = self._block(tail).removeprefix(mark)
            mark = b""
            end = self._end_of_lines(block)
            block, tail = block[:end], block[end:]
            was_cut = len(tail) > MAX_RECORD_BYTES
            if was_cut:
                block += tail
                tail = self._skip_line()
            if block:
                yield block
        self.rest = tail

    def _end_of_lines(self, block: bytes) -> int:
        """Where the line begins that may go on."""
        # A CRLF that two blocks share becomes a CR and a blank line, which is nothing.
        may_go_on = not self._ended or self.damage is not None
        return max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if may_go_on else len(block)

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
