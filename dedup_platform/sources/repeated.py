"""Values of many records that are one and the same, or follow one another, without a list of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Generic, TypeVar

__all__ = ["Repeated", "Values"]

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
