"""JSON records that are told apart by their quotes: where no string has an escape, quotes say where each one ends.

The first record that is laid out in a new way is judged as one that is read alone. Others are laid out alike if they
have as many quotes and the same bytes between their values. So the places of all values follow from those of some
quotes, which are found for all records at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from dedup_platform.sources.binary_columns import EncodedBytes, Places
from dedup_platform.sources.contents import NamedField
from dedup_platform.sources.text.json_pieces import NUMBER, Slot, is_sample, pieces_of, taken_by_kind, values_in

__all__ = ["JsonLayouts", "LaidOut"]

_FEW = 100
"""So many records pay for another layout."""
_MOST_LAYOUTS = 128
_STRIDE = 7919

_QUOTE = b'"'
_FIRST_IN_STRINGS = 0x20
_NULL = -1
_WORD = rf"^(?:{NUMBER}|true|false|null)$"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LaidOut:
    """What layouts tell of some records."""

    texts: Sequence[pl.Series]
    """Of each field its texts; null where it is null or absent, and in a record of no known layout."""
    is_known: Bools
    """Which records have a known layout."""


class JsonLayouts:
    """The layouts that records have had so far. Made for those of one stream."""

    def __init__(self) -> None:
        self._known: dict[tuple[NamedField, ...], list[_Layout]] = {}

    def read(self, records: pl.Series, fields: Sequence[NamedField]) -> LaidOut:
        """The texts of each field in each of some records, given as texts or null."""
        fields = tuple(fields)
        quoted = _QuotedRecords(records, len(fields))
        self._known[fields] = taken_by_kind(
            quoted, self._known.get(fields, ()), lambda sample: _layout_of(sample, fields), _MOST_LAYOUTS, _FEW
        )
        return quoted.laid_out()


class _QuotedRecords:
    """Some records, where their quotes are, and where the values of fields are in those whose layout is known."""

    def __init__(self, records: pl.Series, fields: int) -> None:
        self._records = records
        self.data, self.begins, self.ends = EncodedBytes.of(records.fill_null(""))
        content = self.data.bytes_at(slice(0, self.data.end))
        self._quotes = np.flatnonzero(content == ord(_QUOTE))
        self._first_quotes = np.searchsorted(self._quotes, self.begins)
        # The number of quotes of each record that waits for its layout, else 0.
        self._waiting = np.diff(self._first_quotes, append=len(self._quotes))
        self._waiting[np.searchsorted(self.ends, _odd(content), "right")] = 0
        self._sampled = 0
        self._is_known = np.zeros(len(records), np.bool_)
        self._begins = np.zeros((fields, len(records)), np.int64)
        self._sizes = np.full((fields, len(records)), _NULL, np.int64)

    @property
    def has_many(self) -> bool:
        return int(np.count_nonzero(self._waiting)) >= _FEW

    def sample(self) -> str:
        waiting = np.flatnonzero(self._waiting)
        self._sampled = int(waiting[_STRIDE % len(waiting)])
        record: str = self._records[self._sampled]
        return record

    def leave_sample(self) -> None:
        self._waiting[self._sampled] = 0

    def take(self, layout: "_Layout") -> int:
        rows, begins, sizes = layout.slots_in(self, np.flatnonzero(self._waiting == layout.quotes))
        for field, slot in layout.fields:
            self._begins[field, rows], self._sizes[field, rows] = begins[slot], sizes[slot]
        self._is_known[rows] = True
        self._waiting[rows] = 0
        return len(rows)

    def quotes_at(self, rows: Places, number: int) -> Places:
        """Where each of some records has its quote of this number, from 0."""
        return self._quotes[self._first_quotes[rows] + number]

    def laid_out(self) -> LaidOut:
        """What is known now."""
        return LaidOut(list(map(self.data.texts, self._begins, self._sizes)), self._is_known)


def _odd(content: npt.NDArray[np.uint8]) -> Places:
    """Where escapes are, and what cannot stand in a string."""
    is_odd = content == ord(b"\\")
    if len(content) and content.min() < _FIRST_IN_STRINGS:
        is_odd |= content < _FIRST_IN_STRINGS
    return np.flatnonzero(is_odd) if is_odd.any() else np.empty(0, np.int64)


class _Layout:
    """Texts and slots in turns, from a record's beginning to its end. The quotes around a slot are in the texts."""

    def __init__(self, record: str, fields: Sequence[NamedField]) -> None:
        pieces = pieces_of(record, has_lists=False)
        self._texts, self._words = [b""], list[int]()
        for piece in pieces:
            if isinstance(piece, str):
                self._texts[-1] += piece.encode()
            elif piece.is_quoted:
                self._texts[-1] += _QUOTE
                self._texts.append(_QUOTE)
            else:
                self._texts.append(b"")
                self._words.append(piece.number)
        self._text_sizes = np.array([len(text) for text in self._texts])[:, None]
        quotes = [text.count(_QUOTE) for text in self._texts]
        self._quotes_before = np.cumsum([0, *quotes[:-1]]).tolist()
        self.quotes = sum(quotes)
        values = values_in(pieces, fields)
        self.fields = [(field, value.number) for field, value in enumerate(values) if isinstance(value, Slot)]
        self.is_telling = all(quotes[1:-1]) and not any(isinstance(value, dict | list) for value in values)
        """Whether quotes tell where all slots are, and slots what the fields are."""

    def slots_in(self, records: _QuotedRecords, rows: Places) -> tuple[Places, Places, Places]:
        """Which of some records with as many quotes are laid out so; where their slots begin, and their sizes, -1 for
        null: a row for each slot."""
        begins = np.stack(list(self._begins(records, rows)))
        ends = begins + self._text_sizes
        are_in_turns = (begins[1:] >= ends[:-1]).all(axis=0) & (ends[-1] == records.ends[rows])
        rows, begins, ends = _those(are_in_turns, rows, begins, ends)
        # From here on all that is looked at lies in its record.
        are_equal = [records.data.has(text, places) for text, places in zip(self._texts, begins, strict=True)]
        rows, begins, ends = _those(np.logical_and.reduce(are_equal), rows, begins, ends)
        return self._with_words(records.data, rows, ends[:-1], begins[1:] - ends[:-1])

    def _begins(self, records: _QuotedRecords, rows: Places) -> Iterator[Places]:
        """Where each text begins."""
        yield records.begins[rows]
        for text, quotes_before in zip(self._texts[1:], self._quotes_before[1:], strict=True):
            before = text.find(_QUOTE)
            if before < 0:
                yield records.ends[rows] - len(text)
            else:
                yield records.quotes_at(rows, quotes_before) - before

    def _with_words(
        self, data: EncodedBytes, rows: Places, begins: Places, sizes: Places
    ) -> tuple[Places, Places, Places]:
        """Those whose slots without quotes hold numbers and words that JSON has."""
        are_words = np.ones(len(rows), np.bool_)
        for slot in self._words:
            words = data.texts(begins[slot], sizes[slot])
            are_words &= words.str.contains(_WORD).to_numpy()
            sizes[slot, (words == "null").to_numpy()] = _NULL
        return _those(are_words, rows, begins, sizes)


def _those(are_meant: Bools, rows: Places, begins: Places, others: Places) -> tuple[Places, Places, Places]:
    """Some records and columns of theirs without those that are not meant."""
    if are_meant.all():
        return rows, begins, others
    return rows[are_meant], begins[:, are_meant], others[:, are_meant]


def _layout_of(record: str, fields: Sequence[NamedField]) -> _Layout | None:
    """The layout of a record, if quotes tell of its fields and it is not malformed."""
    if not is_sample(record):
        return None
    layout = _Layout(record, fields)
    return layout if layout.is_telling else None
