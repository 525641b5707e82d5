"""A stream's partitions as Dagster sees them: one definition for all its assets, from the start to just beyond now."""

from collections.abc import Iterable

import dagster as dg

from dedup_platform.stream import Stream


def partitions_definition(stream: Stream) -> dg.TimeWindowPartitionsDefinition:
    """Days or hours in UTC. They reach beyond now by `late.max_future`, since an event may be that far ahead."""
    kind = dg.DailyPartitionsDefinition if stream.partitions.granularity == "day" else dg.HourlyPartitionsDefinition
    ahead = -(-stream.late.max_future // stream.partitions.length)
    return kind(start_date=stream.partitions.start, timezone="UTC", end_offset=1 + ahead)


def last_known(stream: Stream) -> int:
    """The ordinal of the last partition that Dagster has a key for at this moment; before the start if it has none."""
    key = partitions_definition(stream).get_last_partition_key()
    return stream.partitions.ordinal_of(key) if key else stream.partitions.ordinal(stream.partitions.start) - 1


def ordinals(stream: Stream, keys: Iterable[str]) -> list[int]:
    """The ordinals of partition keys."""
    return [stream.partitions.ordinal_of(key) for key in keys]
