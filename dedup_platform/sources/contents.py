"""What records hold, one by one and a column at a time."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any

from dedup_platform.sources.records import Content, Fields

__all__ = ["ColumnContents", "Contents", "JoinedContents", "ListedContents"]

_NO_FIELDS: Fields = {}


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
    def column(self, name: str) -> Sequence[Any]:
        """The value of a field in every record; None where there is none, whyever."""

    @abstractmethod
    def fields(self, names: Collection[str]) -> Iterable[Fields]:
        """Those of every record, these at least: all of them that it has. None at all of one that is rejected."""

    @property
    @abstractmethod
    def rejected(self) -> Iterable[int]:
        """The places of records that have no fields."""


class ListedContents(Contents):
    """They are known one by one."""

    def __init__(self, contents: Sequence[Content]) -> None:
        self._contents = contents
        self._fields = [_NO_FIELDS if isinstance(content, str) else content for content in contents]

    def __len__(self) -> int:
        return len(self._contents)

    def __getitem__(self, place: int) -> Content:
        return self._contents[place]

    def column(self, name: str) -> Sequence[Any]:
        return [fields.get(name) for fields in self._fields]

    def fields(self, names: Collection[str]) -> Iterable[Fields]:  # noqa: ARG002  # they are at hand
        return self._fields

    @property
    def rejected(self) -> Iterable[int]:
        return (place for place, content in enumerate(self._contents) if isinstance(content, str))


class ColumnContents(Contents):
    """They are known by column; a single one is read when it is asked for."""

    def __init__(
        self,
        names: Collection[str],
        column: Callable[[str], Sequence[Any]],
        payloads: Sequence[bytes],
        read: Callable[[bytes], Content],
    ) -> None:
        self._names = names
        self._column = column
        self._payloads = payloads
        self._read = read

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return self._read(self._payloads[place])

    def column(self, name: str) -> Sequence[Any]:
        return self._column(name) if name in self._names else [None] * len(self)

    def fields(self, names: Collection[str]) -> Iterable[Fields]:
        there = [name for name in names if name in self._names]
        if not there:
            return [_NO_FIELDS] * len(self)
        return (dict(zip(there, row, strict=True)) for row in zip(*map(self._column, there), strict=True))

    @property
    def rejected(self) -> Iterable[int]:
        return ()


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

    def column(self, name: str) -> Sequence[Any]:
        return list(chain.from_iterable(part.column(name) for part in self._parts))

    def fields(self, names: Collection[str]) -> Iterable[Fields]:
        return chain.from_iterable(part.fields(names) for part in self._parts)

    @property
    def rejected(self) -> Iterable[int]:
        begins = (0, *self._ends)
        return (begin + place for begin, part in zip(begins, self._parts, strict=False) for place in part.rejected)
