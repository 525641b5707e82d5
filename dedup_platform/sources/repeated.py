"""Values of many records that are one and the same, or follow one another, without a list of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeVar

import numpy as np
import polars as pl

__all__ = ["Repeated", "Values", "repeated_each"]

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


def repeated_each(values: pl.Series, counts: Sequence[int]) -> pl.Series:
    """Each value as often as is said of it."""
    return values.gather(np.repeat(np.arange(len(values)), counts))
