"""How many partitions the records of one input may lie in: each costs files in every table, however few its records.

Who sends a thousand bytes with a hundred times in them would else make thousands of files.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import polars as pl

from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.sources.records import TOO_MANY_PARTITIONS
from dedup_platform.stream import Stream

__all__ = ["within_limit"]

_INPUT = ("source", "source_partition")
_ORDINAL = "_ordinal"


def within_limit(frames: Iterable[pl.DataFrame], stream: Stream) -> Iterator[pl.DataFrame]:
    """The same records of `raw_events`; rejected are those that lie in one partition too many.

    Counted is each file, and each topic partition's share of a task, in the order of its records: those in the first
    `source.max_partitions` partitions stay. The reason names the limit.
    """
    most = stream.source.max_partitions
    ordinal = partition_ordinal(pl.col("event_time"), stream.partitions.length)
    seen = defaultdict[tuple[str, int], set[int]](set)
    for frame in frames:
        placed = frame.select(*_INPUT, ordinal.alias(_ORDINAL))
        refused = [
            (source, part, place)
            for source, part, place in placed.drop_nulls(_ORDINAL).unique(maintain_order=True).iter_rows()
            if not _is_let_in(seen[source, part], place, most)
        ]
        yield _rejected(frame, placed, refused, stream, f"{TOO_MANY_PARTITIONS}{most}") if refused else frame


def _is_let_in(seen: set[int], place: int, most: int) -> bool:
    if place not in seen and len(seen) >= most:
        return False
    seen.add(place)
    return True


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
