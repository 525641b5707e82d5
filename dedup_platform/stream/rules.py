"""The rules of a stream: partitions, what a duplicate is, what a session is, late events, how long history is kept."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator

from dedup_platform.stream.values import (
    ColumnName,
    Count,
    Duration,
    FieldName,
    FieldNames,
    Part,
    PositiveDuration,
)

__all__ = ["Aggregate", "Claims", "Deduplicate", "Late", "Maintenance", "Partitions", "Reject", "Retries", "Sessions"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
_LENGTHS = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_FUNCTIONS = ("count", "sum", "min", "max", "first", "last")


def _utc(value: Any) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError("is no date; write one like 2026-01-31") from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise ValueError("is no date; write one like 2026-01-31")
    start = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if start < _EPOCH:
        raise ValueError("is too early; partitions start at 1970-01-01 or later")
    return start


class Partitions(Part):
    """The event-time partitions: UTC days or hours from `start` on, counted from 1970-01-01 (as Iceberg does)."""

    granularity: Literal["day", "hour"]
    start: Annotated[datetime, BeforeValidator(_utc)]

    @model_validator(mode="after")
    def _start_is_a_boundary(self) -> "Partitions":
        if (self.start - _EPOCH) % self.length:
            raise ValueError(f"start must be the beginning of a UTC {self.granularity}, not {self.start.isoformat()}")
        return self

    @property
    def length(self) -> timedelta:
        """How long one partition is."""
        return _LENGTHS[self.granularity]

    def ordinal(self, moment: datetime) -> int:
        """The days (or hours) from 1970-01-01 to the partition that holds `moment`."""
        return (moment - _EPOCH) // self.length

    def start_of(self, ordinal: int) -> datetime:
        """The first moment of a partition; OverflowError if no time can be in it."""
        return _EPOCH + ordinal * self.length

    def bounds(self, first: int, last: int) -> tuple[datetime, datetime | None]:
        """From when until when partitions that follow one another last; None if they hold the last time that there is.

        The end is not theirs any more. Where no event can be (before 1970, after the year 9999) there is no partition:
        the bounds of such are empty.
        """
        final = self.ordinal(_LAST_MOMENT)
        if last < 0 or first > final:
            return _EPOCH, _EPOCH
        return self.start_of(max(first, 0)), self.start_of(last + 1) if last < final else None

    def key(self, ordinal: int) -> str:
        """The partition's key in Dagster: `2026-01-31`, or `2026-01-31-13:00` for hours."""
        start = self.start_of(ordinal).isoformat()
        return start[:10] if self.granularity == "day" else f"{start[:10]}-{start[11:16]}"

    def ordinal_of(self, key: str) -> int:
        """The partition of a Dagster key; ValueError if it is none."""
        text = key if self.granularity == "day" else f"{key[:10]}T{key[11:]}"
        try:
            ordinal = self.ordinal(datetime.fromisoformat(text).replace(tzinfo=UTC))
        except ValueError:
            raise ValueError(f"{key!r} is no key of a {self.granularity} partition") from None
        if self.key(ordinal) != key:
            raise ValueError(f"{key!r} is no key of a {self.granularity} partition")
        return ordinal


class Deduplicate(Part):
    """Records with the same `key`, at most `window` of event time apart, are one event: the first to arrive."""

    key: FieldNames = ("entity_id", "event_id")
    window: Duration = timedelta(days=1)


class Aggregate(Part):
    """One column of the sessions: `function` over `attribute`. In a stream file: `{sum: amount}`."""

    function: Literal["count", "sum", "min", "max", "first", "last"]
    attribute: FieldName

    @model_validator(mode="before")
    @classmethod
    def _spelling(cls, value: Any) -> Any:
        if isinstance(value, Aggregate) or (isinstance(value, dict) and value.keys() == {"function", "attribute"}):
            return value
        if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _FUNCTIONS:
            allowed = ", ".join(_FUNCTIONS)
            raise ValueError(f"must be one function and an attribute, like {{sum: amount}}; allowed: {allowed}")
        [(function, attribute)] = value.items()
        return {"function": function, "attribute": attribute}


class Sessions(Part):
    """A gap longer than `timeout` between two events of an entity ends a session."""

    timeout: PositiveDuration
    aggregates: dict[ColumnName, Aggregate] = Field(default_factory=dict)


class Late(Part):
    """How late events are handled: when they count as late, and when and how much a repair recomputes."""

    grace: Duration = timedelta(hours=1)
    settle: Duration = timedelta(seconds=60)
    max_delay: Duration = timedelta(minutes=15)
    min_rows: Annotated[Count, Field(ge=1)] = 1
    max_future: Duration = timedelta(minutes=10)
    horizon: PositiveDuration | None = None
    max_partitions_per_run: Annotated[Count, Field(ge=1)] = 31
    max_runs_per_tick: Annotated[Count, Field(ge=1)] = 10

    @model_validator(mode="after")
    def _delay_covers_settle(self) -> "Late":
        if self.max_delay < self.settle:
            raise ValueError("max_delay, the longest wait, must be at least settle, the quiet period")
        return self


def _outlasts_runs(value: timedelta) -> timedelta:
    if value < timedelta(days=1):
        raise ValueError("must be at least 1d: a run that is at work may still need what is younger")
    return value


class Maintenance(Part):
    """How long upkeep leaves old snapshots, and files that nothing refers to, where they are."""

    snapshot_age: Annotated[Duration, AfterValidator(_outlasts_runs)] = timedelta(days=7)
    min_snapshots: Annotated[Count, Field(ge=1)] = 10
    orphan_age: Annotated[Duration, AfterValidator(_outlasts_runs)] = timedelta(days=3)


class Retries(Part):
    """How an ingest that failed is tried again: after a growing pause, then, once it opened, after a cool-down."""

    max_attempts: Annotated[Count, Field(ge=1)] = 3
    backoff: PositiveDuration = timedelta(seconds=1)
    max_backoff: PositiveDuration = timedelta(minutes=5)
    cool_down: PositiveDuration = timedelta(minutes=5)
    max_cool_down: PositiveDuration = timedelta(hours=1)

    @model_validator(mode="after")
    def _longest_are_longest(self) -> "Retries":
        if self.max_backoff < self.backoff:
            raise ValueError("max_backoff, the longest pause, must be at least backoff, the first one")
        if self.max_cool_down < self.cool_down:
            raise ValueError("max_cool_down, the longest one, must be at least cool_down, the first one")
        return self


class Claims(Part):
    """What becomes of a request for what another process is at: left to that process, or worked on beside it."""

    on_repeat: Literal["drop", "process"] = "drop"


class Reject(Part):
    """When a batch is held: `min_records` of it or more cannot become events, and they are more than `max_ratio`."""

    max_ratio: Annotated[float, Strict(), Field(ge=0, lt=1)]
    min_records: Annotated[Count, Field(ge=1)] = 100
