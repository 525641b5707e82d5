"""Cells, the unit of recomputation: their neighbours, their time, and sets of them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dedup_platform.planning.moments import EPOCH

_NEVER = datetime.max.replace(tzinfo=UTC)


NO_ENTITY = -1
"""The bucket of rows without an entity (Iceberg's null bucket)."""


class Cell(NamedTuple):
    """The unit of recomputation: a partition's ordinal (days or hours since 1970) and a bucket."""

    partition: int
    bucket: int


Cells = frozenset[Cell]


def reach(distance: timedelta, length: timedelta) -> int:
    """How many partitions on can be touched by something within this distance: 1 day reaches 1 daily partition on."""
    return -(-distance // length)


def closes(partition: int, length: timedelta, grace: timedelta) -> datetime:
    """When what arrives for a partition begins to be late: at its end and the grace, or never if no time is so late."""
    try:
        return EPOCH + (partition + 1) * length + grace
    except OverflowError:
        return _NEVER


def neighbours(cell: Cell, reach: int) -> Iterator[Cell]:
    """The other cells of the same bucket, at most `reach` partitions before or after this one."""
    for partition in range(cell.partition - reach, cell.partition + reach + 1):
        if partition != cell.partition:
            yield Cell(partition, cell.bucket)


def grown(cells: Iterable[Cell], around: int) -> Cells:
    """These cells and those at most `around` partitions before or after them."""
    return frozenset(Cell(cell.partition + step, cell.bucket) for cell in cells for step in range(-around, around + 1))


def contiguous(partitions: Iterable[int]) -> Iterator[tuple[int, ...]]:
    """Cut a set of ordinals into its contiguous ranges, in order."""
    current: list[int] = []
    for partition in sorted(set(partitions)):
        if current and partition != current[-1] + 1:
            yield tuple(current)
            current = []
        current.append(partition)
    if current:
        yield tuple(current)


def rectangles(cells: Iterable[Cell]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Cells as few pairs (partitions, buckets) that hold all combinations."""
    by_bucket: dict[int, set[int]] = defaultdict(set)
    for partition, bucket in cells:
        by_bucket[bucket].add(partition)
    by_partitions: dict[tuple[int, ...], list[int]] = {}
    for bucket, partitions in by_bucket.items():
        by_partitions.setdefault(tuple(sorted(partitions)), []).append(bucket)
    for partitions_of, buckets in by_partitions.items():
        yield partitions_of, tuple(sorted(buckets))
