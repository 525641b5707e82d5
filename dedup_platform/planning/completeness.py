"""How far partitions have come: which may still get records that are not late, and which hold all that came. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from dedup_platform.planning.cells import closes

PartitionState = Literal["open", "closed", "settled"]
"""`open`: what arrives for it is not late yet. `closed`: it would be, by the watermark. `settled`: closed, and all that
was taken in for it is in all tables."""


@dataclass(frozen=True)
class Completeness:
    """The state of each partition (by ordinal, in order) and the watermark that says so."""

    watermark: datetime | None
    """The latest arrival of any event that was taken in, but no later than now; None before the first one."""
    states: Mapping[int, PartitionState]


def completeness(
    arrivals: Mapping[int, datetime | None],
    stale: Collection[int],
    length: timedelta,
    grace: timedelta,
    now: datetime,
) -> Completeness:
    """The states of the partitions that hold records (with the latest arrival in each) or are `stale`."""
    # A record from ahead of our clock tells of a wrong one, and must close nothing.
    known = [min(arrival, now) for arrival in arrivals.values() if arrival is not None]
    watermark = max(known, default=None)

    def state(partition: int) -> PartitionState:
        if watermark is None or watermark < closes(partition, length, grace):
            return "open"
        return "closed" if partition in stale else "settled"

    return Completeness(watermark, {partition: state(partition) for partition in sorted({*arrivals, *stale})})
