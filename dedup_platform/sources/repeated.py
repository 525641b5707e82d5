"""Values of many records that are one and the same, or follow one another, without a list of them."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, repeat
from typing import Generic, TypeVar

import numpy as np
import polars as pl

__all__ = ["Repeated", "Runs", "Values", "repeated_each"]

T = TypeVar("T")


@dataclass(frozen=True)
class Repeated(Generic[T]):
    """One value for so many records, at least one."""

    value: T
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[T]:
        return repeat(self.value, self.count)


Values = Sequence[T] | Repeated[T]


class Runs(Generic[T]):
    """Values of many records, of which those in a row are mostly the same."""

    def __init__(self, parts: Iterable[Values[T]]) -> None:
        """Of some records after those of the part before."""
        runs = [run for part in parts for run in _runs(part)]
        self.values = [value for value, _ in runs]
        """One for each run."""
        self.counts = [count for _, count in runs]
        """How many records each run has."""
        self._ends = list(accumulate(self.counts))

    def __getitem__(self, place: int) -> T:
        """The value of the record at this place, from 0."""
        return self.values[bisect_right(self._ends, place)]


def _runs(part: Values[T]) -> Iterable[tuple[T, int]]:
    if isinstance(part, Repeated):
        return [(part.value, part.count)]
    return ((value, len(list(same))) for value, same in groupby(part))


def repeated_each(values: pl.Series, counts: Sequence[int]) -> pl.Series:
    """Each value as often as is said of it."""
    return values.gather(np.repeat(np.arange(len(values)), counts))
