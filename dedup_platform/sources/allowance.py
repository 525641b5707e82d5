"""How much the records of one file may count for: twice as much as it may unpack to, so that of text that comes first.

Where a file is packed inside, as those of Avro and Parquet are, or a long header of csv is told with each record, some
kilobytes could else be millions of records, or gigabytes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import overload

from dedup_platform.sources.batches import Delivered, RecordChunk, number_after, size_of
from dedup_platform.sources.compression import most_unpacked

__all__ = ["within_allowance"]

Rest = Callable[[int, str], Delivered]
"""The record that stands for the rest of a file, by the number of the first of it and the reason."""


@overload
def within_allowance(read: Iterable[Delivered], size: int, ratio: int, rest: Rest) -> Iterator[Delivered]: ...


@overload
def within_allowance(
    read: Iterable[Delivered | RecordChunk], size: int, ratio: int, rest: Rest
) -> Iterator[Delivered | RecordChunk]: ...


def within_allowance(
    read: Iterable[Delivered | RecordChunk], size: int, ratio: int, rest: Rest
) -> Iterator[Delivered | RecordChunk]:
    """The records of a file of this size, up to the last that it may have; then `rest`, if there are more.

    Records that were read together count as they do one by one, so that both ways end at the same one.
    """
    left, following = 2 * most_unpacked(size, ratio), 0
    for each in read:
        for part, taken in _sized(each, left):
            left -= taken
            if left < 0:
                reason = f"its records take more than twice {ratio} times its size, which is source.max_unpacked_ratio"
                yield rest(following, reason)
                return
            yield part
            following = number_after(part)


def _sized(each: Delivered | RecordChunk, left: int) -> Iterator[tuple[Delivered | RecordChunk, int]]:
    """What was read together as it is, if so much is left; else one by one."""
    if not isinstance(each, RecordChunk):
        yield each, size_of(each)
    elif each.size <= left:
        yield each, each.size
    else:
        yield from ((single, size_of(single)) for single in each.singles())
