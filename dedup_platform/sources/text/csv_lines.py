"""CSV a block at a time, so that no object is made of a record that is a line of its own and whose fields columns tell.

They are the records that `csv_records` gives, one by one. Where a quoted field goes on in the next line, or a quote
stands where it should not, those lines are read as there.
"""

import re
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from dedup_platform.sources.contents import Batch, Contents, NamedField, listed
from dedup_platform.sources.records import (
    AMBIGUOUS,
    MAX_RECORD_BYTES,
    Content,
    Record,
    context_text,
    damaged,
    oversized,
)
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.text.blocks import as_texts, split_lines
from dedup_platform.sources.text.csv_records import (
    Columns,
    Row,
    csv_content,
    csv_facts,
    header_of,
    is_plain_text,
    parsed,
)
from dedup_platform.sources.text.expressions import Expressions
from dedup_platform.sources.text.lines import Lines
from dedup_platform.sources.texts import Texts
from dedup_platform.stream.format import CsvFormat

__all__ = ["CsvContents", "csv_batches"]

_MANY = 50
"""So many lines are worth being read together."""
_MOST_SINGLES = 1000
_WINDOW = 1024
"""Of so many lines records are looked for first, and of twice as many if there is no end of one."""
_FIELD_STATES = 20

_Single = tuple[bytes, Row | None]
"""A payload and its fields; None: it is malformed."""


class CsvContents(Contents):
    """Records that are lines of their own, known by their bytes: a series of binary values, none too long."""

    def __init__(self, payloads: pl.Series, header: Sequence[str] | None, delimiter: str) -> None:
        self._payloads = payloads
        self._header = header
        self._delimiter = delimiter

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return csv_content(self._payloads[place], self._header, self._delimiter)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        places = Columns(self._header).content([_Place(number) for number in range(len(self._header or ()))])
        values = [] if isinstance(places, str) else [field.find(places, "") for field in fields]
        if not values or AMBIGUOUS in values:
            nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(self))
            return [Texts(nothing, nothing.is_null())] * len(fields)
        return self._texts(values, len(self._header or ()))

    @property
    def names(self) -> Sequence[str] | None:
        return self._header and list(dict.fromkeys(self._header))

    @property
    def kind(self) -> object:
        return (CsvContents, self._header and tuple(self._header), self._delimiter)

    def joined(self, others: Sequence[Contents]) -> Contents:
        payloads = [each._payloads for each in (self, *others) if isinstance(each, CsvContents)]
        return CsvContents(pl.concat(payloads), self._header, self._delimiter)

    def _texts(self, values: Sequence[Any], count: int) -> Sequence[Texts]:
        """The texts at some places of so many; a value that is none is absent."""
        expressions, quoted = Expressions(), f'(?:"[^"\\x00]*")+|[^"\\x00{re.escape(self._delimiter)}]*'
        found: dict[Any, tuple[int, str]] = {}
        for number in range(count):
            if number:
                expressions.add_literal(self._delimiter)
            place = _Place(number)
            is_taken = place in values
            found[place] = expressions.add(f"({'' if is_taken else '?:'}{quoted})", _FIELD_STATES, int(is_taken))
        groups, is_line = expressions.groups(as_texts(self._payloads))
        in_doubt = None if is_line.all() else ~is_line
        absent = pl.Series([None], dtype=pl.String).new_from_index(0, len(self))
        return [
            Texts(_unquoted(groups[at[0]][at[1]]) if (at := found.get(each)) else absent, in_doubt) for each in values
        ]


@dataclass(frozen=True)
class _Place:
    """That of a column in the file, from 0."""

    number: int


def csv_batches(lines: Lines, csv_format: CsvFormat | None = None) -> Iterator[Batch]:
    """The records of one file, those together that were read together."""
    said = csv_format or CsvFormat()
    reader = _Reader(said)
    for run in _runs(lines, said.delimiter):
        if isinstance(run, pl.Series):
            yield from reader.together(run)
        else:
            yield from reader.alone(*run)
    yield from reader.waiting()
    if lines.damage:
        yield listed([damaged(lines.rest, lines.damage, **reader.facts)])


class _Reader:
    """Makes records of what follows one another in a file, the first of which may be its header."""

    def __init__(self, said: CsvFormat) -> None:
        self.facts = csv_facts(said)
        """What the contexts of records say so far."""
        self._said = said
        self._comment = said.comment.encode() if said.comment else None
        self._singles: list[Record] = []
        self._header: Sequence[str] | None = None
        self._context: str | None = None
        if said.columns:
            # What tells of damage does not name them: nothing of it is to be read.
            self._start(said.columns)

    def together(self, payloads: pl.Series) -> Iterator[Batch]:
        """Records, in order, from lines that are one each."""
        if self._comment:
            payloads = payloads.filter(~payloads.bin.starts_with(self._comment))
        if self._context is None and len(payloads):
            self._start_by(payloads[0])
            payloads = payloads[1:]
        if len(payloads):
            yield from self.waiting()
            contents = CsvContents(payloads, self._header, self._said.delimiter)
            yield payloads, contents, Repeated(self._context or "", len(payloads))

    def alone(self, payload: bytes, row: Row | None) -> Iterator[Batch]:
        """A record that was read alone; it waits for others."""
        if self._comment and payload.startswith(self._comment):
            return
        if self._context is None:
            self._start_by(payload)
        elif len(payload) > MAX_RECORD_BYTES:
            self._singles.append(oversized(payload, **self._shared))
        else:
            self._singles.append((payload, Columns(self._header).content(row), self._context))
        if len(self._singles) >= _MOST_SINGLES:
            yield from self.waiting()

    def waiting(self) -> Iterator[Batch]:
        """The records that wait."""
        if self._singles:
            yield listed(self._singles)
            self._singles = []

    def _start_by(self, payload: bytes) -> None:
        self._start(header_of(payload, self._said.delimiter))
        self.facts = self._shared

    def _start(self, header: Sequence[str] | None) -> None:
        self._header = header
        self._shared = self.facts | {"header": header}
        self._context = context_text(**self._shared)


def _runs(lines: Lines, delimiter: str) -> Iterator[pl.Series | _Single]:
    """The records of a file, header and all: lines that are one each as a series, others alone."""
    blocks = lines.blocks()
    waiting = b""
    is_end = False
    while not is_end:
        parts = [waiting]
        size = 0
        while size < max(1, len(waiting)) and not is_end:
            block = next(blocks, b"")
            is_end = not block
            parts.append(block)
            size += len(block)
        waiting = yield from _runs_of(b"".join(parts), delimiter, is_end and not lines.damage)
    lines.rest = waiting + lines.rest


def _runs_of(block: bytes, delimiter: str, final: bool) -> Generator[pl.Series | _Single, None, bytes]:
    """The same of some lines; what is left may go on, unless these are the final ones."""
    if b'"' not in block and len(block) <= MAX_RECORD_BYTES:
        if len(run := split_lines(block)):
            yield run
        return b""
    lines = block.splitlines(keepends=True)
    odd = [*_odd_lines(lines, delimiter), len(lines)]
    at, window = 0, _WINDOW
    while at < len(lines):
        following = odd[bisect_left(odd, at)]
        if following - at >= _MANY:
            yield split_lines(b"".join(lines[at:following]))
            at = following
            continue
        read = 0
        for end, payload, row in parsed(lines[at : at + window], delimiter, final and at + window >= len(lines)):
            read = end
            if row != []:  # a blank line
                yield payload, row if is_plain_text(payload) else None
            if odd[bisect_left(odd, at + end)] - (at + end) >= _MANY:
                break
        if not read and at + window >= len(lines):
            break
        at, window = at + read, _WINDOW if read else 2 * window
    return b"".join(lines[at:])


def _odd_lines(lines: Sequence[bytes], delimiter: str) -> Sequence[int]:
    """The places of lines that are no record of their own, or not beyond doubt."""
    if sum(map(len, lines)) > MAX_RECORD_BYTES:
        return range(len(lines))
    field = f'(?:(?:"[^"]*")+|[^"{re.escape(delimiter)}]*)'
    texts = as_texts(pl.Series([line.rstrip(b"\r\n") for line in lines], dtype=pl.Binary))
    is_record = texts.str.contains(rf"^{field}(?:{re.escape(delimiter)}{field})*\z").fill_null(False)
    odd: Sequence[int] = (~is_record).arg_true().to_list()
    return odd


def _unquoted(texts: pl.Series) -> pl.Series:
    """Fields from how they stand in a line."""
    is_quoted = texts.str.starts_with('"')
    if not is_quoted.any():
        return texts
    inner = texts.str.strip_prefix('"').str.strip_suffix('"').str.replace_all('""', '"', literal=True)
    return inner.zip_with(is_quoted.fill_null(False), texts)
