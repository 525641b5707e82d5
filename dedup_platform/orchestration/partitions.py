"""A stream's partitions as Dagster sees them: one definition for all its assets, from the start to just beyond now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import dagster as dg

from dedup_platform.planning.cells import reach
from dedup_platform.planning.moments import utc_now
from dedup_platform.stream import Stream

AWAITED: Final = timedelta(days=1)
"""How far beyond the last partition that Dagster knows stale ones wait until it knows them, and so can show them."""


@dataclass(frozen=True)
class Listing:
    """The partitions that Dagster has keys for at a moment, `first` to `last`, and the last that it will have soon."""

    first: int
    last: int
    """Before `first` if Dagster has none."""
    awaited: int

    def __contains__(self, partition: int) -> bool:
        return self.first <= partition <= self.last

    def is_awaited(self, partition: int) -> bool:
        """Whether Dagster has a key for it, or will have one within a day or so."""
        return self.first <= partition <= max(self.last, self.awaited)


def partitions_definition(stream: Stream) -> dg.TimeWindowPartitionsDefinition:
    """Days or hours in UTC. They reach beyond now by `late.max_future`, since an event may be that far ahead."""
    kind = dg.DailyPartitionsDefinition if stream.partitions.granularity == "day" else dg.HourlyPartitionsDefinition
    return kind(start_date=stream.partitions.start, timezone="UTC", end_offset=1 + _ahead(stream))


def listing(stream: Stream) -> Listing:
    """What Dagster has keys for at this moment."""
    length = stream.partitions.length
    awaited = stream.partitions.ordinal(utc_now()) + _ahead(stream) + reach(AWAITED, length)
    return Listing(stream.partitions.ordinal(stream.partitions.start), last_known(stream), awaited)


def _ahead(stream: Stream) -> int:
    """How many partitions an event may lie beyond the present one."""
    return reach(stream.late.max_future, stream.partitions.length)


def last_known(stream: Stream) -> int:
    """The ordinal of the last partition that Dagster has a key for at this moment; before the start if it has none."""
    key = partitions_definition(stream).get_last_partition_key()
    return stream.partitions.ordinal_of(key) if key else stream.partitions.ordinal(stream.partitions.start) - 1


def ordinals(stream: Stream, keys: Iterable[str]) -> list[int]:
    """The ordinals of partition keys."""
    return [stream.partitions.ordinal_of(key) for key in keys]
