"""When the source first had a record: a field, the name of the file, or when the file was written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from dedup_platform.infer.columns import percent
from dedup_platform.infer.roles import arrival_times
from dedup_platform.infer.times import TimeColumn
from dedup_platform.planning.moments import in_microseconds, microseconds
from dedup_platform.sources.times import time_reader
from dedup_platform.stream import ISO_8601, Late

__all__ = ["Arrival", "arrival_in_topic", "arrival_of"]

MAX_FUTURE = Late().max_future
"""A record whose event is further ahead of its arrival is rejected."""
_MOST_LATE = timedelta(days=1)
_NAMES = (
    (r"(?<![0-9])([0-9]{8}T[0-9]{6})(?![0-9])", "%Y%m%dT%H%M%S"),
    (r"(?<![0-9])([0-9]{8}T[0-9]{4})(?![0-9])", "%Y%m%dT%H%M"),
)
_LATE = 0.99


@dataclass(frozen=True)
class Arrival:
    """What `arrival_time` should say (None: nothing), and why; `field` is the one that it names, if any."""

    value: Any
    evidence: str
    field: str | None = None


def arrival_of(
    times: Sequence[TimeColumn],
    event_time: TimeColumn,
    sources: Sequence[str],
    modified: Sequence[datetime],
    again: Any,
) -> Arrival:
    """What tells when a file's records arrived, and lies before no event by more than is allowed.

    `again` is what `event_time` says: the last resort, where all else would be before the event.
    """
    if told := _named(times, event_time):
        return told
    for pattern, time_format in _NAMES:
        read = time_reader(time_format, "UTC")
        named = [read(found[1]) if (found := re.search(pattern, each)) else None for each in sources]
        if _are_arrivals(pl.Series(named, dtype=pl.Int64), event_time.moments):
            return Arrival({"file_name": pattern, "format": time_format}, "by the file's name; soon after the events")
    written = pl.Series([microseconds(each) for each in modified], dtype=pl.Int64)
    ahead = ((written + in_microseconds(MAX_FUTURE)) < event_time.moments).mean() or 0.0
    if not ahead:
        return Arrival(None, "left out: when the file was written")
    evidence = f"the files are older than {percent(float(ahead))} of their events, so events count as arrived at once"  # type: ignore[arg-type]
    return Arrival(again, evidence)


def arrival_in_topic(times: Sequence[TimeColumn], event_time: TimeColumn) -> Arrival:
    """The same of messages."""
    broker = Arrival(None, "left out: when the broker had it, which takes message.timestamp.type=LogAppendTime")
    return _named(times, event_time) or broker


def _named(times: Sequence[TimeColumn], event_time: TimeColumn) -> Arrival | None:
    for each in arrival_times(times, event_time, MAX_FUTURE):
        field = each.main.field
        value = field if each.format == ISO_8601 else {"field": field, "format": each.format}
        return Arrival(value, "when the source had it; never before the event", field)
    return None


def _are_arrivals(named: pl.Series, events: pl.Series) -> bool:
    """Whether times follow their events soon, and are hardly ever before them."""
    if named.null_count():
        return False
    after = (named - events).drop_nulls()
    soon = (after >= -in_microseconds(MAX_FUTURE)) & (after <= in_microseconds(_MOST_LATE))
    return bool(len(after)) and bool((after >= -in_microseconds(MAX_FUTURE)).all()) and float(soon.mean() or 0) >= _LATE  # type: ignore[arg-type]
