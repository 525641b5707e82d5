"""How much the records of one file may count for: twice as much as it may unpack to, so that of text that comes first.

Where a file is packed inside, as those of Avro and Parquet are, or a long header of csv is told with each record, some
kilobytes could else be millions of records, or gigabytes.
"""

from collections.abc import Iterable, Iterator

from dedup_platform.sources.batches import Delivered, RecordChunk, size_of
from dedup_platform.sources.compression import DamageError, most_unpacked

__all__ = ["within_allowance"]


def within_allowance(
    delivered: Iterable[Delivered | RecordChunk], size: int, ratio: int
) -> Iterator[Delivered | RecordChunk]:
    """The records of a file of this size, up to the last that it may have. DamageError if there are more.

    Records that were read together count as they do one by one, so that both ways end at the same one.
    """
    left = 2 * most_unpacked(size, ratio)
    for each in delivered:
        for part in [each] if _size(each) <= left else _singles(each):
            left -= _size(part)
            if left < 0:
                reason = f"its records take more than twice {ratio} times its size, which is source.max_unpacked_ratio"
                raise DamageError(reason, None)
            yield part


def _size(each: Delivered | RecordChunk) -> int:
    return each.size if isinstance(each, RecordChunk) else size_of(each)


def _singles(each: Delivered | RecordChunk) -> Iterable[Delivered]:
    return each.singles() if isinstance(each, RecordChunk) else [each]
