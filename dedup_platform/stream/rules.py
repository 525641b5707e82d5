"""The rules of a stream: partitions, what a duplicate is, what a session is, late events, how long history is kept."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema, model_validator

from dedup_platform.stream.values import (
    ColumnName,
    Count,
    Duration,
    FieldName,
    FieldNames,
    Part,
    PositiveDuration,
)

__all__ = [
    "Aggregate",
    "Claims",
    "Deduplicate",
    "Health",
    "Late",
    "Maintenance",
    "Partitions",
    "Reject",
    "Retries",
    "Sessions",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
_LENGTHS = {"day": timedelta(days=1), "hour": timedelta(hours=1)}
_Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_DAYS: tuple[_Day, ...] = get_args(_Day)
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
    """How long a partition is: a UTC day or hour."""
    start: Annotated[datetime, BeforeValidator(_utc), WithJsonSchema({"title": "date", "type": "string"})]
    """The beginning of the first one. Events before it are rejected."""

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
    """The columns in which copies agree; `entity_id` is one of them."""
    window: Duration = timedelta(days=1)
    """Copies are at most so far apart in event time."""


class Aggregate(Part):
    """One column of the sessions: `function` over `attribute`. In a stream file: `{sum: amount}`."""

    function: Literal["count", "sum", "min", "max", "first", "last"]
    """What is made of the attribute's values, in the order of events; null counts as no value."""
    attribute: FieldName
    """The attribute."""

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
    """The longest gap within a session; a longer one ends it."""
    aggregates: dict[ColumnName, Aggregate] = Field(default_factory=dict)
    """More columns of sessions: name of the column -> a function of an attribute."""


class Late(Part):
    """How late events are handled: when they count as late, and when and how much a repair recomputes."""

    grace: Duration = timedelta(hours=1)
    """An event is late that arrives longer than this after its partition's end."""
    settle: Duration = timedelta(seconds=60)
    """A repair waits until nothing arrived for so long."""
    max_delay: Duration = timedelta(minutes=15)
    """The longest wait of a repair, also where something arrives all the time."""
    min_rows: Annotated[Count, Field(ge=1)] = 1
    """A repair waits for so many new rows, up to `max_delay`."""
    max_future: Duration = timedelta(minutes=10)
    """An event that is further ahead of its arrival is rejected."""
    horizon: PositiveDuration | None = None
    """An event that is older than this when it arrives is rejected; without it none is too old."""
    max_partitions_per_run: Annotated[Count, Field(ge=1)] = 31
    """A run repairs at most so many partitions, unless they are linked."""
    max_runs_per_tick: Annotated[Count, Field(ge=1)] = 10
    """A tick of the sensor asks for at most so many runs."""

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
    """A snapshot stays for so long after the next one was committed."""
    min_snapshots: Annotated[Count, Field(ge=1)] = 10
    """So many of the newest snapshots stay, however old they are."""
    orphan_age: Annotated[Duration, AfterValidator(_outlasts_runs)] = timedelta(days=3)
    """Files that nothing refers to stay until they are so old."""


class Retries(Part):
    """How an ingest that failed is tried again: after a growing pause, then, once it opened, after a cool-down."""

    max_attempts: Annotated[Count, Field(ge=1)] = 3
    """After so many failures in a row the circuit opens."""
    backoff: PositiveDuration = timedelta(seconds=1)
    """The first pause; each later one is twice as long."""
    max_backoff: PositiveDuration = timedelta(minutes=5)
    """The longest pause."""
    cool_down: PositiveDuration = timedelta(minutes=5)
    """How long an open circuit waits for its first probe; each probe that fails doubles it."""
    max_cool_down: PositiveDuration = timedelta(hours=1)
    """The longest of these waits."""

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
    """Whether such a request is left to that process, or worked on beside it."""


class Reject(Part):
    """When a batch is held: `min_records` of it or more cannot become events, and they are more than `max_ratio`."""

    max_ratio: Annotated[float, Strict(), Field(ge=0, lt=1)]
    """The largest share of a batch that may be rejected, from 0 to below 1."""
    min_records: Annotated[Count, Field(ge=1)] = 100
    """A batch is held only if at least so many of its records would be rejected."""


def _not_all(value: tuple[_Day, ...]) -> tuple[_Day, ...]:
    if len({*value}) == len(_DAYS):
        raise ValueError("names every day, so nothing would ever have to come; leave max_age out for that")
    return value


class Health(Part):
    """From where on a stream is not well, so that its checks fail and an alert is sent."""

    max_lag: Duration = timedelta(hours=1)
    """How long what waits at the source may wait."""
    max_stale: Duration = timedelta(hours=1)
    """How long a stale cell may wait, beyond `late.max_delay`."""
    max_reject_ratio: Annotated[float, Strict(), Field(ge=0, le=1)] = 0.1
    """The share of all records that may be rejected."""
    max_age: PositiveDuration | None = None
    """How old the newest events may be; without it they may be of any age."""
    quiet_days: Annotated[tuple[_Day, ...], AfterValidator(_not_all)] = ()
    """Days of the week, in UTC, that do not count in that age."""

    @property
    def quiet_weekdays(self) -> frozenset[int]:
        """`quiet_days` as Python counts them: 0 is Monday."""
        return frozenset(map(_DAYS.index, self.quiet_days))
