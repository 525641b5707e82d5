"""JSON that is stepped through as it is read, by brackets, commas and quotes: in bounded memory and linear time.

What a value says is not looked at, only where it ends. Python's own decoder wants all of a text at once.
"""

import json
import re
from collections.abc import Iterator

from dedup_platform.sources.compression import DamageError
from dedup_platform.sources.records import MAX_RECORD_BYTES

__all__ = ["BrokenTextError", "JsonScanner"]

_BLOCK = 256 * 1024
_LARGEST_BLOCK = 4 * 2**20
_MAX_NAME_BYTES = 64 * 1024
_BOM = b"\xef\xbb\xbf"

_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_LETTERS = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WORD = re.compile(rb'[^ \t\r\n,:\[\]{}"]*+')
_NO_BRACKETS = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_TO_BRACKET = re.compile(_NO_BRACKETS.pattern + rb"[\[\]{}]", re.DOTALL)


class BrokenTextError(Exception):
    """What comes next is not what JSON has there, or the text ends in it."""


class JsonScanner:
    """A place in the text of a file, which only goes on. At the end, `damage` says why it may not be the file's.

    From `keep` on, what is passed is kept: all of it, or a beginning that is longer than MAX_RECORD_BYTES.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._data = b""
        self._at = 0
        self._kept_from: int | None = None
        self._beginning = b""
        self.damage: DamageError | None = None
        self.ends_of_lines = 0
        """How many were passed between values, at least; for others to set back."""
        self.is_at_line = False
        """Whether one of them is right before this place."""
        while len(self._data) < len(_BOM) and self._read_on():
            pass
        self._data = self._data.removeprefix(_BOM)

    def keep(self) -> None:
        """Keep what is passed from here on, and nothing before."""
        self._kept_from, self._beginning = self._at, b""

    @property
    def kept(self) -> bytes:
        """What was passed since `keep`."""
        return self._beginning or self._data[self._kept_from : self._at]

    def peek(self) -> bytes:
        """The next byte that is no space; none at the end."""
        while True:
            space = _SPACE.match(self._data, self._at)
            assert space  # it may be empty
            if space[0]:
                self.is_at_line = b"\n" in space[0]
                self.ends_of_lines += self.is_at_line
            self._at = space.end()
            if self._at < len(self._data) or not self._read_on():
                return self._data[self._at : self._at + 1]

    def take(self, byte: bytes) -> None:
        """Pass this byte, which must be the next that is no space."""
        if self.peek() != byte:
            raise BrokenTextError
        self._at += 1

    def elements(self) -> Iterator[bytes]:
        """The values of the list that comes next, each as it is kept. It is passed at the end."""
        self.take(b"[")
        is_first = True
        while self.peek() != b"]":
            if not is_first:
                self.take(b",")
                self.peek()
            is_first = False
            self.keep()
            self.pass_value()
            yield self.kept
        self.keep()
        self.take(b"]")

    def to_member(self, name: str) -> bool:
        """Go to the value of this name, in an object that is entered; False behind the object, which has none more."""
        while (byte := self.peek()) != b"}":
            if byte == b",":
                self.take(b",")
                self.peek()
            found = self._name()
            self.take(b":")
            if found == name:
                return True
            self.pass_value()
        self.take(b"}")
        return False

    def pass_value(self) -> None:
        """Pass the value that comes next."""
        byte = self.peek()
        if byte == b'"':
            self._pass_string()
        elif byte in (b"{", b"["):
            self._at += 1
            self.pass_brackets(1)
        else:
            self._pass_word()

    def pass_brackets(self, depth: int) -> None:
        """Pass the ends of so many objects and lists, and all that is in them."""
        while depth:
            begin = self._at
            found = _TO_BRACKET.match(self._data, self._at)
            self._at = found.end() if found else self._end_of(_NO_BRACKETS)
            self.ends_of_lines += self._data.find(b"\n", begin, self._at) >= 0
            if found:
                depth += 1 if self._data[self._at - 1] in b"[{" else -1
                continue
            if self._at < len(self._data):
                self._pass_string()
            elif not self._read_on():
                raise BrokenTextError

    def pass_line(self) -> None:
        """Pass the rest of the line, with its end."""
        while (end := self._data.find(b"\n", self._at)) < 0:
            self._at = len(self._data)
            if not self._read_on():
                return
        self._at = end + 1

    def pass_rest(self) -> None:
        """Pass what is left of the text, as far as it would be kept."""
        while True:
            self._at = len(self._data)
            if len(self.kept) > MAX_RECORD_BYTES or not self._read_on():
                return

    def _pass_string(self) -> None:
        self._at += 1
        while True:
            self._at = self._end_of(_LETTERS)
            if self._data[self._at : self._at + 1] == b'"':
                self._at += 1
                return
            if not self._read_on():
                raise BrokenTextError

    def _pass_word(self) -> None:
        is_there = False
        while True:
            end = self._end_of(_WORD)
            is_there |= end > self._at
            self._at = end
            if end < len(self._data) or not self._read_on():
                break
        if not is_there:
            raise BrokenTextError

    def _name(self) -> str:
        while (found := _STRING.match(self._data, self._at)) is None:
            if self._data[self._at : self._at + 1] not in (b'"', b"") or len(self._data) - self._at > _MAX_NAME_BYTES:
                raise BrokenTextError
            if not self._read_on():
                raise BrokenTextError
        self._at = found.end()
        try:
            return str(json.loads(found[0]))
        except ValueError:
            raise BrokenTextError from None

    def _end_of(self, pattern: re.Pattern[bytes]) -> int:
        """Where a pattern that may be empty ends, from here."""
        found = pattern.match(self._data, self._at)
        assert found
        return found.end()

    def _read_on(self) -> bool:
        """Read about as much again as is kept; False at the end. What is long is so looked at a few times."""
        if self._kept_from is not None and self._at - self._kept_from > MAX_RECORD_BYTES:
            self._beginning = self._beginning or self._data[self._kept_from : self._at][: MAX_RECORD_BYTES + 1]
            self._kept_from = self._at
        begin = self._at if self._kept_from is None else self._kept_from
        parts = [self._data[begin:]]
        wanted = min(max(_BLOCK, len(parts[0])), _LARGEST_BLOCK)
        try:
            while wanted > 0 and (chunk := next(self._chunks, None)) is not None:
                parts.append(chunk)
                wanted -= len(chunk)
        except DamageError as damage:
            self.damage = damage
            self._chunks = iter(())
        self._data = b"".join(parts)
        self._at -= begin
        self._kept_from = None if self._kept_from is None else 0
        return len(parts) > 1
