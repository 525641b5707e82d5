"""What records hold, one by one and a column at a time."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
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


class ColumnContents(Contents):
    """They are known by column; a single one is read when it is asked for."""

    def __init__(
        self, column: Callable[[str], Sequence[Any]], payloads: Sequence[bytes], read: Callable[[bytes], Content]
    ) -> None:
        self._column = column
        self._payloads = payloads
        self._read = read

    def __len__(self) -> int:
        return len(self._payloads)

    def __getitem__(self, place: int) -> Content:
        return self._read(self._payloads[place])

    def column(self, name: str) -> Sequence[Any]:
        return self._column(name)


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
