"""CSV a block at a time, so that no object is made of a record that is a line of its own and whose fields columns tell.

They are the records that `csv_records` gives, one by one. Where a quoted field goes on in the next line, or a quote
stands where it should not, those lines are read as there.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from dedup_platform.sources.contents import Batch, EncodedContents, NamedField, listed
from dedup_platform.sources.records import AMBIGUOUS, MAX_RECORD_BYTES, Content, bounded, context_text, damaged
from dedup_platform.sources.text.blocks import as_texts, split_lines
from dedup_platform.sources.text.csv_records import Columns, Dialect, csv_content, csv_facts, header_of, parsed
from dedup_platform.sources.text.expressions import Expressions
from dedup_platform.sources.text.lines import Lines
from dedup_platform.sources.texts import Texts, no_texts
from dedup_platform.stream.format import CsvFormat

__all__ = ["CsvContents", "csv_batches"]

_WINDOW = 1024
"""Of so many lines records are looked for first, and of twice as many if there is no end of one."""
_FIELD_STATES = 20


class CsvContents(EncodedContents):
    """Those of csv records that are in files with the same header."""

    def __init__(self, payloads: pl.Series, header: Sequence[str] | None, dialect: Dialect) -> None:
        super().__init__(payloads)
        self._header = header
        self._dialect = dialect

    def _content(self, payload: bytes) -> Content:
        return csv_content(payload, self._header, self._dialect)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        places = Columns(self._header).content([_Place(number) for number in range(len(self._header or ()))])
        values = [] if isinstance(places, str) else [field.find(places, "") for field in fields]
        if not values or AMBIGUOUS in values:
            nothing = no_texts(len(self))
            return [Texts(nothing, nothing.is_null())] * len(fields)
        return self._texts(values, len(self._header or ()))

    @property
    def names(self) -> Sequence[str] | None:
        return self._header and list(dict.fromkeys(self._header))

    @property
    def kind(self) -> object:
        return (CsvContents, self._header and tuple(self._header), self._dialect)

    def _texts(self, values: Sequence[Any], count: int) -> Sequence[Texts]:
        """The texts at some places of so many; a value that is none is absent."""
        expressions, field = Expressions(), _field(self._dialect, r"\x00", r"\r\n\x00")
        found: dict[Any, tuple[int, str]] = {}
        for number in range(count):
            if number:
                expressions.add_literal(self._dialect.delimiter)
            place = _Place(number)
            is_taken = place in values
            found[place] = expressions.add(f"({'' if is_taken else '?:'}{field})", _FIELD_STATES, int(is_taken))
        groups, is_line = expressions.groups(as_texts(self._payloads))
        in_doubt = None if is_line.all() else ~is_line
        absent = no_texts(len(self))
        quote = self._dialect.quote
        return [
            Texts(_unquoted(groups[at[0]][at[1]], quote) if (at := found.get(each)) else absent, in_doubt)
            for each in values
        ]


@dataclass(frozen=True)
class _Place:
    """That of a column in the file, from 0."""

    number: int


def csv_batches(lines: Lines, csv_format: CsvFormat | None = None) -> Iterator[Batch]:
    """The records of one file, those together that were read together."""
    said = csv_format or CsvFormat()
    facts, dialect = csv_facts(said), Dialect.of(said)
    header: Sequence[str] | None = said.columns
    is_begun = header is not None
    for payloads in _payloads(lines, dialect):
        if said.comment:
            payloads = payloads.filter(~payloads.bin.starts_with(said.comment.encode()))
        if not is_begun and len(payloads):
            header, is_begun = header_of(payloads[0], dialect), True
            facts |= {"header": header}
            payloads = payloads[1:] if header else payloads
        if len(payloads):
            yield from _batches(payloads, header, facts | {"header": header}, dialect)
    if lines.damage:
        yield listed([damaged(lines.rest, lines.damage, **facts)])


def _batches(
    payloads: pl.Series, header: Sequence[str] | None, facts: dict[str, Any], dialect: Dialect
) -> Iterator[Batch]:
    context = context_text(**facts)
    if (payloads.bin.size() <= MAX_RECORD_BYTES).all():
        yield from CsvContents(payloads, header, dialect).batches(context)
    else:  # they are few
        read = partial(csv_content, header=header, dialect=dialect)
        yield listed([bounded(payload, read, context, facts) for payload in payloads])


def _payloads(lines: Lines, dialect: Dialect) -> Iterator[pl.Series]:
    """The records of a file, header and all, those of some lines together."""
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
        payloads, waiting = _taken_apart(b"".join(parts), dialect, is_end and not lines.damage)
        if len(payloads):
            yield payloads
    lines.rest = waiting + lines.rest


def _taken_apart(block: bytes, dialect: Dialect, final: bool) -> tuple[pl.Series, bytes]:
    """The records of a block of lines, and what of it may go on, unless these are the final ones."""
    payloads = split_lines(block)
    quote = dialect.quote.encode()
    if not quote or quote not in block or _are_records(payloads, dialect).all():
        return payloads, b""
    lines = block.splitlines(keepends=True)
    are_records = _are_records(pl.Series([line.rstrip(b"\r\n") for line in lines], dtype=pl.Binary), dialect)
    odd = [*(~are_records).arg_true(), len(lines)]
    taken: list[bytes] = []
    at, window = 0, _WINDOW
    while at < len(lines):
        following = odd[bisect_left(odd, at)]
        taken += [line.rstrip(b"\r\n") for line in lines[at:following]]
        at = following
        read = 0
        for end, payload, row, known in parsed(lines[at : at + window], dialect, final and at + window >= len(lines)):
            read = end
            if row != []:  # a blank line
                taken.append(payload)
            if known <= end and odd[bisect_left(odd, at + end)] > at + end:
                break
        if not read and at + window >= len(lines):
            break
        at, window = at + read, _WINDOW if read else 2 * window
    return pl.Series([each for each in taken if each], dtype=pl.Binary), b"".join(lines[at:])


def _are_records(lines: pl.Series, dialect: Dialect) -> pl.Series:
    """Which lines are, beyond doubt, a record of their own where a record begins by them."""
    field = f"(?:{_field(dialect)})"
    return as_texts(lines).str.contains(rf"^{field}(?:{re.escape(dialect.delimiter)}{field})*\z").fill_null(False)


def _field(dialect: Dialect, not_quoted: str = "", not_plain: str = "") -> str:
    """What matches a field, quoted or not, of all characters but these."""
    delimiter, quote = map(re.escape, dialect)
    quoted = f"(?:{quote}[^{quote}{not_quoted}]*{quote})+|" if quote else ""
    return f"{quoted}[^{quote}{delimiter}{not_plain}]*"


def _unquoted(texts: pl.Series, quote: str) -> pl.Series:
    """Fields from how they stand in a line."""
    is_quoted = texts.str.starts_with(quote)
    if not quote or not is_quoted.any():
        return texts
    inner = texts.str.strip_prefix(quote).str.strip_suffix(quote).str.replace_all(2 * quote, quote, literal=True)
    return inner.zip_with(is_quoted.fill_null(False), texts)
