"""How far the clocks of producers are from the source's: the skew `arrival_time` - `event_time` of each source.

Skews are counted in histogram bins that grow with them, so that counts of many files and tasks can be added up, and the
percentiles of the sum are right to 1 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from dedup_platform.sources.records import EVENT_TIME_IN_FUTURE

SHOWN = 20
"""So many sources are told apart."""

_GROWTH = 1.02
_MILLISECOND = 1000.0
"""Skews below are 0."""


@dataclass(frozen=True)
class Observed:
    """The clock of one source partition, as some of its records show it."""

    source: str
    source_partition: int
    rejected: Mapping[str, int]
    """Reason -> records that are no events."""
    skews: Mapping[int, int]
    """Bin of `skew_bin` -> events."""
    longest: float | None
    """The largest skew in seconds; None without events."""


@dataclass(frozen=True)
class Skew:
    """What records tell about a clock, in seconds; `source` is empty if it is about all. None without events."""

    source: str
    source_partition: int
    events: int
    p50: float | None
    p99: float | None
    max: float | None
    ahead: int
    """Records whose event time is after their arrival, those included that were rejected for it."""


@dataclass(frozen=True)
class Clocks:
    """The skew of a batch, and of the `SHOWN` sources that are furthest from 0, worst first."""

    overall: Skew
    worst: tuple[Skew, ...]


def skew_seconds() -> pl.Expr:
    """The skew of rows of `raw_events`; null for rejected ones."""
    return (pl.col("arrival_time") - pl.col("event_time")).dt.total_microseconds() / 1e6


def skew_bin() -> pl.Expr:
    """The bucket that the skew falls into: 0 below a millisecond, negative where the event is ahead."""
    microseconds = (pl.col("arrival_time") - pl.col("event_time")).dt.total_microseconds()
    size = (microseconds.abs() / _MILLISECOND).clip(lower_bound=1).log(_GROWTH).floor().cast(pl.Int32)
    return pl.when(microseconds.abs() < _MILLISECOND).then(0).otherwise((size + 1) * microseconds.sign().cast(pl.Int32))


def clocks(observed: Iterable[Observed]) -> Clocks:
    """What a batch tells about the clocks of its sources."""
    by_source: dict[tuple[str, int], list[Observed]] = {}
    for each in observed:
        by_source.setdefault((each.source, each.source_partition), []).append(each)
    skews = [_skew(*place, parts) for place, parts in by_source.items()]
    overall = _skew("", 0, [each for parts in by_source.values() for each in parts])
    return Clocks(overall, tuple(sorted(skews, key=_badness)[:SHOWN]))


def _skew(source: str, source_partition: int, parts: Iterable[Observed]) -> Skew:
    skews: Counter[int] = Counter()
    in_future, longest = 0, list[float]()
    for part in parts:
        skews.update(part.skews)
        in_future += part.rejected.get(EVENT_TIME_IN_FUTURE, 0)
        longest += [] if part.longest is None else [part.longest]
    ahead = in_future + sum(count for bucket, count in skews.items() if bucket < 0)
    p50, p99 = _quantile(skews, 0.5), _quantile(skews, 0.99)
    return Skew(source, source_partition, skews.total(), p50, p99, max(longest, default=None), ahead)


def _badness(skew: Skew) -> tuple[float, float, str, int]:
    furthest = max(abs(skew.p50 or 0), abs(skew.p99 or 0), abs(skew.max or 0))
    return -skew.ahead, -furthest, skew.source, skew.source_partition


def _quantile(skews: Mapping[int, int], share: float) -> float | None:
    """The skew, in seconds, that this share of events does not pass."""
    left = share * sum(skews.values())
    for bucket, count in sorted(skews.items()):
        left -= count
        if left <= 0:
            return _seconds(bucket)
    return None


def _seconds(bucket: int) -> float:
    """The middle of a bucket."""
    size = _GROWTH ** (abs(bucket) - 0.5) / 1000 if bucket else 0.0
    return round(math.copysign(size, bucket), 6)
