"""CSV as RFC 4180 has it, over bytes: the C parser finds where records end, the bytes themselves stay as they came.

The first record of a file is its header, unless the stream file names the columns; if it is unusable, all records are
malformed and it is the first of them. A record has as many fields as the header, else it is malformed, and so is one
with a NUL byte or invalid UTF-8. Lines end with LF, CRLF or CR; blank lines are no records. A quote that opens a field
and is not closed well makes one line malformed: reading goes on with the next line, so that it cannot swallow the rest.
"""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

from dedup_platform.sources.records import (
    AMBIGUOUS,
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    Content,
    Record,
    context_text,
    damaged,
    oversized,
)
from dedup_platform.sources.text.blocks import is_text
from dedup_platform.sources.text.lines import Lines
from dedup_platform.stream.format import CsvFormat

__all__ = ["USUAL", "Columns", "Dialect", "csv_content", "csv_facts", "csv_records", "header_of", "parsed"]


class Dialect(NamedTuple):
    """What stands between fields, and what those are between that hold it; empty if nothing is."""

    delimiter: str = ","
    quote: str = '"'

    @classmethod
    def of(cls, said: CsvFormat) -> "Dialect":
        """What a stream file says."""
        return cls(said.delimiter, said.quote)

    @property
    def facts(self) -> dict[str, str]:
        """What the contexts of records say of it: what is not as usual."""
        told = zip(self._asdict().items(), USUAL, strict=True)
        return {name: value for (name, value), usual in told if value != usual}


USUAL = Dialect()
"""That of a record unless the stream file or the record's context says something else."""

# The header stands in the context of each record; a longer one is no header.
_MAX_HEADER_BYTES = 64 * 1024

_Row = Sequence[Any]


def csv_records(lines: Lines, csv_format: CsvFormat | None = None, **facts: Any) -> Iterator[Record]:
    """The records of one file or message, each with its bytes without the line's end.

    Without columns the first one is the header, which is no record unless it is unusable. `facts` are for the records'
    contexts.
    """
    said = csv_format or CsvFormat()
    facts = csv_facts(said, **facts)
    dialect = Dialect.of(said)
    rows = _rows(lines, dialect)
    if said.comment:
        comment = said.comment.encode()
        rows = ((payload, row) for payload, row in rows if not payload.startswith(comment))
    if said.columns:
        yield from _records(rows, said.columns, facts | {"header": said.columns})
    else:
        for payload, _ in rows:
            facts["header"] = header = header_of(payload, dialect)
            yield from _records(rows if header else chain([(payload, None)], rows), header, facts)
    if lines.damage:
        yield damaged(lines.rest, lines.damage, **facts)


def csv_facts(said: CsvFormat, **facts: Any) -> dict[str, Any]:
    """What the contexts of all records say, whatever the columns are."""
    return {"format": "csv", **facts} | Dialect.of(said).facts


def csv_content(payload: bytes, header: Sequence[str] | None, dialect: Dialect = USUAL) -> Content:
    """The fields of one record, given its bytes and its file's header (None: it was unusable)."""
    rows = list(parsed(payload.splitlines(keepends=True), dialect, final=True))
    if len(rows) != 1 or not _is_text(payload):
        return MALFORMED_RECORD
    return Columns(header).content(rows[0][2])


def header_of(payload: bytes, dialect: Dialect) -> list[str] | None:
    """The names of the columns in a file's first record; None if it is unusable."""
    [(_, _, row, _)] = parsed(payload.splitlines(keepends=True), dialect, final=True)
    if row is None or len(payload) > _MAX_HEADER_BYTES:
        return None
    # A name in another encoding must not cost the other columns: it is no field that a stream can name.
    return [name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace") for name in row]


def _records(
    rows: Iterator[tuple[bytes, _Row | None]], header: Sequence[str] | None, facts: dict[str, Any]
) -> Iterator[Record]:
    content = Columns(header).content
    context = context_text(**facts)
    for payload, row in rows:
        if len(payload) > MAX_RECORD_BYTES:
            yield oversized(payload, **facts)
        else:
            yield payload, content(row), context


class Columns:
    """Gives the fields of a row their names."""

    def __init__(self, header: Sequence[str] | None) -> None:
        self._names = header or ()
        self._ambiguous = {name: AMBIGUOUS for name, count in Counter(self._names).items() if count > 1}

    def content(self, row: _Row | None) -> Content:
        """The fields of a record, from the texts or whatever stands for them; None is a malformed one."""
        if row is None or len(row) != len(self._names):
            return MALFORMED_RECORD
        fields: dict[str, Any] = dict(zip(self._names, row, strict=True))
        return fields | self._ambiguous if self._ambiguous else fields


def _rows(lines: Lines, dialect: Dialect) -> Iterator[tuple[bytes, _Row | None]]:
    blocks = iter(lines)
    waiting: list[bytes] = []
    final = False
    while not final:
        final = not _extend(waiting, blocks)
        are_texts = _is_text(b"".join(waiting))
        read = 0
        for end, payload, row, _ in parsed(waiting, dialect, final and not lines.damage):
            read = end
            if row != []:  # a blank line
                yield payload, row if are_texts or _is_text(payload) else None
        waiting = waiting[read:]
    lines.rest = b"".join(waiting) + lines.rest


def _extend(lines: list[bytes], blocks: Iterator[list[bytes]]) -> bool:
    """Add at least as many bytes as there are; False if there were fewer. A long record is so looked at a few times."""
    missing = max(1, sum(map(len, lines)))
    for block in blocks:
        lines += block
        missing -= sum(map(len, block))
        if missing <= 0:
            return True
    return False


def parsed(lines: list[bytes], dialect: Dialect, final: bool) -> Iterator[tuple[int, bytes, _Row | None, int]]:
    """Each record: the number of the line after it, its bytes, its fields (None: malformed; none: a blank line), and up
    to which line it is known how records end.

    Unless these lines are the final ones, a record that could go on after them is left out.
    """
    start = base = 0
    reader = _reader(lines, dialect)
    while True:
        try:
            for row in reader:
                end = base + reader.line_num
                payload = lines[start] if end == start + 1 else _joined(lines[start:end])
                yield end, payload.rstrip(b"\r\n"), row, end
                start = end
            return
        except csv.Error:
            end = base + reader.line_num
            size = sum(map(len, lines[start:end]))
            is_long = size > MAX_RECORD_BYTES
            if end == len(lines) and not final and not is_long:
                return
            known = max(start + 1, end - 1)
            yield start + 1, lines[start].rstrip(b"\r\n"), None, known
            start += 1
            # A quote that one of these lines leaves open would lead to the same place, and is not followed there again.
            for start in range(start, known):  # noqa: B020  # it goes on from there
                size -= len(lines[start - 1])
                fields = _row_alone(lines[start], dialect)
                if fields is None and is_long and size <= MAX_RECORD_BYTES:
                    break
                yield start + 1, lines[start].rstrip(b"\r\n"), fields, known
            else:
                start = known
            if end > start:
                base, reader = start, _reader(lines, dialect, start)


def _row_alone(line: bytes, dialect: Dialect) -> _Row | None:
    """The fields of a record that is one line; None if it goes on or is malformed."""
    try:
        return next(_reader([line], dialect))
    except csv.Error:
        return None


def _joined(lines: list[bytes]) -> bytes:
    if sum(map(len, lines)) > MAX_RECORD_BYTES:
        raise csv.Error("a quoted field has no end")
    return b"".join(lines)


def _reader(lines: list[bytes], dialect: Dialect, start: int = 0) -> Any:
    csv.field_size_limit(sys.maxsize)  # Lines bounds the lines, and `parsed` the records
    texts = (lines[number].decode("utf-8", "surrogateescape") for number in range(start, len(lines)))
    if not dialect.quote:
        return csv.reader(texts, strict=True, delimiter=dialect.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(texts, strict=True, delimiter=dialect.delimiter, quotechar=dialect.quote)


def _is_text(payload: bytes) -> bool:
    """Whether it is UTF-8 without NUL."""
    return b"\0" not in payload and is_text(payload)
