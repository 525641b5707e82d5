"""What records hold, one by one and a column at a time."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate, groupby
from typing import Any, Protocol

import polars as pl

from dedup_platform.sources.frame_sizes import rows_of
from dedup_platform.sources.records import Content, Fields, Record
from dedup_platform.sources.repeated import Repeated, Values
from dedup_platform.sources.texts import Texts, any_of, no_texts, texts_of
from dedup_platform.stream.paths import FieldPath

__all__ = [
    "Batch",
    "ColumnContents",
    "Contents",
    "EncodedContents",
    "JoinedContents",
    "ListedContents",
    "NamedField",
    "RecordColumns",
    "SeparateContents",
    "joined_contents",
    "listed",
]

_NO_FIELDS: Fields = {}


class NamedField(Protocol):
    """A field that a record has, itself or in what is nested in it."""

    @property
    def path(self) -> FieldPath:
        """Where it lies."""

    def find(self, fields: Fields, path: str) -> Any:
        """Its value in a record; of no concern is the path, which is that of a file."""

    def value(self, fields: Fields, path: str) -> Any:
        """The same, None if there is none."""


class Contents:
    """Those of some records in order."""

    @abstractmethod
    def __len__(self) -> int:
        """How many records there are."""

    @abstractmethod
    def __getitem__(self, place: int) -> Content:
        """What the record at a place, from 0, holds."""

    def __iter__(self) -> Iterator[Content]:
        return (self[place] for place in range(len(self)))

    @abstractmethod
    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        """The texts of each of these fields in every record.

        Of a record that is in doubt for any of them nothing is taken from columns: it is read alone, by `[place]`. A
        record that may have to be rejected for what it is must be in doubt, if it is not among `rejected`.
        """

    def first_alike(self, places: Sequence[int]) -> Sequence[int]:
        """For each of these places the first of them whose record is known to hold the same; that may be itself."""
        return places

    @property
    def names(self) -> Sequence[str] | None:
        """The names of all fields of every record that is not in doubt; None where they are not known or differ."""
        return None

    @property
    def rejected(self) -> Iterable[int]:
        """The places of records that are known to have no fields."""
        return ()

    @property
    def kind(self) -> object:
        """Contents of one kind, one behind the other, can be `joined`."""
        return self

    def joined(self, others: Sequence["Contents"]) -> "Contents":
        """These and others of their kind behind them, to be read together."""
        return JoinedContents([self, *others])


class ListedContents(Contents):
    """They are known one by one."""

    def __init__(self, contents: Sequence[Content]) -> None:
        self._contents = contents
        self._fields = [_NO_FIELDS if isinstance(content, str) else content for content in contents]

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, place: int) -> Content:
        return self._contents[place]

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        return [_texts_in(self._fields, field) for field in fields]

    @property
    def rejected(self) -> Iterable[int]:
        return (place for place, content in enumerate(self._contents) if isinstance(content, str))


class EncodedContents(Contents):
    """They are known by their bytes: a series of binary values, none longer than a record may be."""

    def __init__(self, payloads: pl.Series) -> None:
        self._payloads = payloads

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return self._content(self._payloads[place])

    def first_alike(self, places: Sequence[int]) -> Sequence[int]:
        asked = pl.DataFrame({"payload": self._payloads[places], "place": places})
        return asked.select(pl.col("place").first().over("payload")).to_series().to_list()

    def joined(self, others: Sequence[Contents]) -> Contents:
        joined = copy(self)
        joined._payloads = pl.concat(each._payloads for each in (self, *others) if isinstance(each, EncodedContents))
        return joined

    def batches(self, context: str) -> "Iterator[Batch]":
        """The records, each with this payload_context, so many together as may be in one frame."""
        rows = rows_of(len(context))
        for begin in range(0, len(self), rows):
            some = copy(self)
            some._payloads = self._payloads.slice(begin, rows)
            yield some._payloads, some, Repeated(context, len(some))

    @abstractmethod
    def _content(self, payload: bytes) -> Content:
        """What one record holds."""


class SeparateContents(EncodedContents):
    """They are read one by one, each when it is asked for: no more than one of them is held."""

    def __init__(self, payloads: pl.Series, read: Callable[[bytes], Content]) -> None:
        super().__init__(payloads)
        self._read = read

    def _content(self, payload: bytes) -> Content:
        return self._read(payload)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        values: list[list[Any]] = [[] for _ in fields]
        is_rejected = []
        for content in self:
            is_rejected.append(isinstance(content, str))
            of_record = _NO_FIELDS if isinstance(content, str) else content
            for column, field in zip(values, fields, strict=True):
                column.append(_value_in(of_record, field))
        rejected = pl.Series(is_rejected) if any(is_rejected) else None
        return [replace(told := texts_of(column), in_doubt=any_of((told.in_doubt, rejected))) for column in values]

    @property
    def kind(self) -> object:
        return self._read


class RecordColumns:
    """What records hold of some fields, read once, and the paths of the files that they are of."""

    def __init__(self, contents: Contents, fields: Sequence[NamedField], paths: Callable[[], pl.Series]) -> None:
        self._texts = dict(zip(fields, contents.texts(fields), strict=True)) if fields else {}
        self._paths = paths
        self.count = len(contents)

    def texts(self, field: NamedField) -> Texts:
        """The texts of one of these fields."""
        return self._texts[field]

    @property
    def paths(self) -> pl.Series:
        """The path of the file that each record is of."""
        return self._paths()

    @property
    def in_doubt(self) -> pl.Series | None:
        """The records that must be asked themselves, as `Texts` has them."""
        if not self._texts:  # nothing tells which are malformed
            return pl.Series([True]).new_from_index(0, self.count)
        return any_of(texts.in_doubt for texts in self._texts.values())


Batch = tuple["Sequence[bytes] | pl.Series", Contents, "Values[str] | pl.Series"]
"""Payloads, contents and payload_contexts of some records that were read together, at least one."""


def listed(records: Sequence[Record]) -> Batch:
    """Records that were read one by one."""
    payloads, contents, contexts = zip(*records, strict=True)
    return payloads, ListedContents(contents), contexts


class ColumnContents(Contents):
    """They are known by column; a single one is read when it is asked for.

    `column` gives the values of one of the `names` in every record: a Polars series of texts or booleans, or a list of
    what records hold. A path into a column asks for its values, too. Of columns of times there may be the `moments`
    that `Texts` has.
    """

    def __init__(
        self,
        names: Collection[str],
        column: Callable[[str], "Sequence[Any] | pl.Series"],
        payloads: "Sequence[bytes] | pl.Series",
        read: Callable[[bytes], Content],
        moments: Mapping[str, pl.Series] | None = None,
    ) -> None:
        self._moments = moments or {}
        self._names = names
        self._column = column
        self._payloads = payloads
        self._read = read

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return self._read(self._payloads[place])

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        return [self._texts(field) for field in fields]

    def column(self, name: str) -> "Sequence[Any] | pl.Series":
        """The value of a field in every record; None where there is none."""
        return self._column(name) if name in self._names else [None] * len(self)

    def _texts(self, field: NamedField) -> Texts:
        if field.path.plain:
            told = texts_of(self.column(field.path.plain))
            return replace(told, moments=self._moments.get(field.path.plain))
        there = [name for name in (field.path.name, field.path.top) if name is not None and name in self._names]
        if not there:
            return Texts(no_texts(len(self)))
        rows = zip(*map(self.column, there), strict=True)
        return _texts_in((dict(zip(there, row, strict=True)) for row in rows), field)


def joined_contents(parts: Iterable[Contents]) -> Contents:
    """Those of several, one after the other, as few parts as can be."""
    by_kind = (list(same) for _, same in groupby(parts, lambda part: part.kind))
    return JoinedContents([first.joined(others) if others else first for first, *others in by_kind])


class JoinedContents(Contents):
    """Those of several, one after the other."""

    def __init__(self, parts: Sequence[Contents]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, place: int) -> Content:
        number = bisect_right(self._ends, place)
        return self._parts[number][place - self._ends[number]]

    def first_alike(self, places: Sequence[int]) -> Sequence[int]:
        return self._parts[0].first_alike(places) if len(self._parts) == 1 else places

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        by_part = [part.texts(fields) for part in self._parts]
        return [self._joined(parts) for parts in zip(*by_part, strict=True)]

    @property
    def names(self) -> Sequence[str] | None:
        return self._parts[0].names if len(self._parts) == 1 else None

    @property
    def rejected(self) -> Iterable[int]:
        begins = (0, *self._ends)
        return (begin + place for begin, part in zip(begins, self._parts, strict=False) for place in part.rejected)

    def _joined(self, parts: Sequence[Texts]) -> Texts:
        if len(parts) == 1:
            return parts[0]
        values = pl.concat([part.values for part in parts])
        known = [part.moments for part in parts if part.moments is not None]
        moments = pl.concat(known) if len(known) == len(parts) else None
        if all(part.in_doubt is None for part in parts):
            return Texts(values, moments=moments)
        in_doubt = (
            pl.repeat(False, len(part.values), eager=True) if part.in_doubt is None else part.in_doubt for part in parts
        )
        return Texts(values, pl.concat(in_doubt), moments)


def _texts_in(records: Iterable[Fields], field: NamedField) -> Texts:
    return texts_of([_value_in(fields, field) for fields in records])


def _value_in(fields: Fields, field: NamedField) -> Any:
    return fields.get(field.path.plain) if field.path.plain else field.value(fields, "")
