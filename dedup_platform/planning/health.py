"""Whether a stream is well: what is known of it + limits + now -> checks, each with what to type. Pure.

What could not be asked has no check: whoever shows the checks keeps what was so before.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dedup_platform.planning.circuit_breaker import NORMAL, Circuit, sentence

SOURCE, INGEST, LAG = "source_reachable", "ingest_circuit", "lag"
STALE, REJECTS, FRESHNESS = "stale_cells", "reject_share", "freshness"
SINK = "sink_circuit"
DESCRIPTIONS = {
    SOURCE: "The source can be asked what it has.",
    INGEST: "The ingest is tried as usual: its circuit is closed.",
    LAG: "Nothing has waited at the source, and no run has taken nothing in, for longer than health.max_lag.",
    STALE: "No stale cell has waited for longer than late.max_delay and health.max_stale.",
    REJECTS: "At most the share health.max_reject_ratio of all records is rejected.",
    FRESHNESS: "The newest events are younger than health.max_age, days that may be quiet not counted.",
    SINK: "The sink is written to as usual: its circuit is closed.",
}
"""Name of a check -> what holds where it passes."""
_A_DAY = timedelta(days=1)
_SECONDS = "%Y-%m-%d %H:%M:%S UTC"


@dataclass(frozen=True)
class Limits:
    """From where on a stream is not well; all from the stream file."""

    max_lag: timedelta
    max_stale: timedelta
    """How long a cell may stay stale: `late.max_delay` and what repairs may take."""
    max_reject_ratio: float
    max_age: timedelta | None = None
    quiet_days: frozenset[int] = frozenset()
    """Days of the week, 0 is Monday, on which nothing needs to come."""


@dataclass(frozen=True)
class AtSource:
    """What asking the source told."""

    amount: str
    """How much waits, in words; empty for nothing."""
    since: datetime | None
    """When the first of it came, as far as the source tells."""
    trouble: str | None = None
    """Why it could not be asked."""


@dataclass(frozen=True)
class AtWork:
    """An ingest that is at work, and since when it has published nothing, or begun."""

    run: str
    since: datetime


@dataclass(frozen=True)
class Oldest:
    """The stale cell that has waited for longest."""

    table: str
    partition: str
    waiting: timedelta


@dataclass(frozen=True)
class InTables:
    """What the tables tell."""

    oldest_stale: Oldest | None = None
    records: int = 0
    rejected: int = 0
    watermark: datetime | None = None
    """The latest arrival of any event."""
    newest_end: datetime | None = None
    """The end of the newest partition that holds events; None of the last one that there can be."""
    trouble: str | None = None
    """Why nobody can tell, nor repair anything."""


@dataclass(frozen=True)
class OfSink:
    """How a sink fares, and why its store cannot be asked, if that was tried."""

    circuit: Circuit
    trouble: str | None = None


@dataclass(frozen=True)
class Vitals:
    """What is known of a stream; None of what nobody asked."""

    circuit: Circuit = NORMAL
    source: AtSource | AtWork | None = None
    tables: InTables | None = None
    sinks: Mapping[str, OfSink] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """One thing that is as it should be, or is not."""

    name: str
    is_passed: bool
    what: str
    """What was found, in a sentence."""
    command: str = ""
    """What to type where it failed."""
    may_pass: bool = False
    """Whether a failure is tried again soon by itself, so that nobody need act yet."""
    sink: str | None = None
    """The sink that it is about; None for the stream itself."""

    @property
    def is_unhealthy(self) -> bool:
        """Whether somebody should act."""
        return not self.is_passed and not self.may_pass


def judged(stream: str, vitals: Vitals, limits: Limits, now: datetime) -> Iterator[Check]:
    """The checks of a stream, those left out whose matter is unknown."""
    run = f"dedup-platform run --stream {stream}"
    circuit = vitals.circuit
    source, known = vitals.source, vitals.tables
    if isinstance(source, AtSource):
        yield _source(source, circuit, run)
    yield _circuit(INGEST, circuit, "the ingest", f"dedup-platform batches accept {stream}" if circuit.batch else run)
    if isinstance(source, AtWork):
        yield _lag_of_work(source, limits, now, f"dedup-platform status --stream {stream}")
    elif source and not source.trouble:
        yield _lag(source, limits, now, run)
    if known and known.trouble:
        yield Check(STALE, False, known.trouble, "dedup-platform check")
    elif known:
        yield _stale(known, limits, now, run)
        yield _rejects(known, limits, f"dedup-platform rejected list {stream}")
        yield _freshness(known, limits, now, "dedup-platform check")
    for name, sink in vitals.sinks.items():
        yield _sink(name, sink, f"dedup-platform publish --stream {stream} --sink {name}")


def active_time(start: datetime, end: datetime, quiet_days: Collection[int]) -> timedelta:
    """How much of the time between two moments, in UTC, lies on days of the week that are not quiet."""
    if end <= start:
        return timedelta(0)
    first = start.replace(hour=0, minute=0, second=0, microsecond=0)
    weeks, days = divmod((end - first) // _A_DAY, 7)
    active = weeks * (7 - len(quiet_days)) * _A_DAY
    begin = first + weeks * 7 * _A_DAY
    for number in range(days + 1):
        day = begin + number * _A_DAY
        if day.weekday() not in quiet_days:
            active += min(end, day + _A_DAY) - day
    return active if start.weekday() in quiet_days else active - (start - first)


def _source(found: AtSource, circuit: Circuit, run: str) -> Check:
    if found.trouble is None:
        return Check(SOURCE, True, f"{found.amount} wait" if found.amount else "nothing waits")
    return Check(SOURCE, False, found.trouble, run, may_pass=circuit.state == "retrying")


def _circuit(name: str, circuit: Circuit, what: str, command: str, sink: str | None = None) -> Check:
    is_passed = circuit.state == "normal"
    return Check(
        name, is_passed, sentence(circuit, what), "" if is_passed else command, circuit.state == "retrying", sink
    )


def _sink(name: str, found: OfSink, command: str) -> Check:
    if found.circuit.state == "normal" and found.trouble:
        return Check(SINK, False, f"sink {name}: {found.trouble}", command, sink=name)
    return _circuit(SINK, found.circuit, f"sink {name}", command, name)


def _lag(found: AtSource, limits: Limits, now: datetime, run: str) -> Check:
    if not found.amount:
        return Check(LAG, True, "nothing waits")
    if found.since is None:
        return Check(LAG, True, f"{found.amount} wait; the source does not tell since when")
    what = f"{found.amount} wait, the first since {found.since:{_SECONDS}}"
    return _within(LAG, now - found.since, limits.max_lag, "health.max_lag", what, run)


def _lag_of_work(found: AtWork, limits: Limits, now: datetime, command: str) -> Check:
    what = f"run {found.run} ingests, and since {found.since:{_SECONDS}} it has taken nothing in"
    return _within(LAG, now - found.since, limits.max_lag, "health.max_lag", what, command)


def _stale(found: InTables, limits: Limits, now: datetime, run: str) -> Check:
    oldest = found.oldest_stale
    if oldest is None:
        return Check(STALE, True, "nothing is stale")
    what = f"a cell of {oldest.table} in {oldest.partition} is stale since {now - oldest.waiting:{_SECONDS}}"
    return _within(STALE, oldest.waiting, limits.max_stale, "late.max_delay and health.max_stale", what, run)


def _rejects(found: InTables, limits: Limits, command: str) -> Check:
    share = found.rejected / found.records if found.records else 0.0
    what = f"{found.rejected:,} of {found.records:,} records are rejected ({share:.1%})"
    if share <= limits.max_reject_ratio:
        return Check(REJECTS, True, what)
    return Check(REJECTS, False, f"{what}, more than health.max_reject_ratio {limits.max_reject_ratio:.1%}", command)


def _freshness(found: InTables, limits: Limits, now: datetime, command: str) -> Check:
    if found.watermark is None:
        return Check(FRESHNESS, True, "no event has come yet")
    at, what = found.watermark, f"the newest arrival was at {found.watermark:{_SECONDS}}"
    if found.newest_end and found.newest_end < at:
        # Newcomers that all are late keep no stream fresh.
        at, what = found.newest_end, f"no partition after {found.newest_end:{_SECONDS}} holds events"
    if limits.max_age is None:
        return Check(FRESHNESS, True, f"{what}; health.max_age sets no limit")
    age = active_time(at, now, limits.quiet_days)
    return _within(FRESHNESS, age, limits.max_age, "health.max_age", what, command)


def _within(name: str, age: timedelta, most: timedelta, limit: str, what: str, command: str) -> Check:
    if age <= most:
        return Check(name, True, what)
    return Check(name, False, f"{what}, longer than {limit} ({_shown(most)})", command)


def _shown(duration: timedelta) -> str:
    """`1 day, 2:00:00`, without what is less than a second."""
    return str(timedelta(seconds=round(duration.total_seconds())))
