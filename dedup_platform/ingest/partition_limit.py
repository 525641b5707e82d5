"""How many partitions the records of one input may lie in: each costs files in every table, however few its records.

Who sends a thousand bytes with a hundred times in them would else make thousands of files.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl

from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.sources.records import TOO_MANY_PARTITIONS
from dedup_platform.stream import Stream

__all__ = ["within_limit"]

RECORDS_A_PARTITION = 10
"""Before a record that lies in one partition more: then what a file costs is its records, however many partitions."""
_INPUT = ("source", "source_partition")
_ORDINAL, _AT, _COUNT = "_ordinal", "_at", "_count"


def within_limit(frames: Iterable[pl.DataFrame], stream: Stream) -> Iterator[pl.DataFrame]:
    """The same records of `raw_events`; rejected are those that lie in one partition too many.

    Counted is each file, and each topic partition's share of a task, in the order of its records: they may lie in
    `source.max_partitions` partitions, or in one for every RECORDS_A_PARTITION of them. From the first record that
    lies in one more, those stay that lie in partitions of the records before it. The reason names the setting.
    """
    most = stream.source.max_partitions
    ordinal = partition_ordinal(pl.col("event_time"), stream.partitions.length)
    inputs = defaultdict[tuple[str, int], _Input](_Input)
    for frame in frames:
        placed = frame.select(*_INPUT, ordinal.alias(_ORDINAL))
        # In the order of their first records; those of one input follow one another.
        groups = placed.with_row_index(_AT).group_by(placed.columns, maintain_order=True)
        refused, begins = [], dict[tuple[str, int], int]()
        for source, part, place, at, count in groups.agg(pl.col(_AT).first(), pl.len().alias(_COUNT)).iter_rows():
            begin = begins.setdefault((source, part), at - inputs[source, part].records)
            if place is not None and not inputs[source, part].lets_in(place, at - begin, most):
                refused.append((source, part, place))
            inputs[source, part].records += count
        yield _rejected(frame, placed, refused, stream, f"{TOO_MANY_PARTITIONS}{most}") if refused else frame


@dataclass
class _Input:
    """What was seen of a file or a topic partition."""

    records: int = 0
    partitions: set[int] = field(default_factory=set)
    is_full: bool = False

    def lets_in(self, partition: int, before: int, most: int) -> bool:
        """Whether records of this partition stay, the first of which comes after `before` others of the input."""
        if partition in self.partitions:
            return True
        self.is_full |= len(self.partitions) >= max(most, before // RECORDS_A_PARTITION)
        if not self.is_full:
            self.partitions.add(partition)
        return not self.is_full


def _rejected(
    frame: pl.DataFrame, placed: pl.DataFrame, refused: list[tuple[str, int, int]], stream: Stream, reason: str
) -> pl.DataFrame:
    """The frame with the records of some partitions of some inputs rejected."""
    gone = pl.DataFrame(refused, schema=placed.schema, orient="row").with_columns(_gone=True)
    is_gone = placed.join(gone, on=placed.columns, how="left", maintain_order="left")["_gone"].fill_null(value=False)
    nulls = (
        pl.when(is_gone).then(None).otherwise(pl.col(name)).alias(name)
        for name in ("entity_id", "event_id", "event_time", *stream.attributes)
    )
    told = pl.when(is_gone).then(pl.lit(reason)).otherwise(pl.col("rejection_reason")).alias("rejection_reason")
    return frame.with_columns(*nulls, told)
