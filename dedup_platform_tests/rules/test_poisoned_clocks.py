"""One producer whose clock is years off makes nobody else late, and holds up no partition and no sensor."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.lake.commits import Commit
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch

HONEST = [
    *(record("a", f"a{hour}", utc(f"2024-03-02T{hour:02}:00"), page="/", quantity=1) for hour in range(20)),
    record("b", "late", utc("2024-03-01T10:00"), utc("2024-03-02T10:00"), page="/", quantity=1),
]
AHEAD = record("x", "ahead", utc("2090-01-01T00:00"), utc("2024-03-02T10:00"))
IN_1970 = record("x", "1970", utc("1970-01-01T00:00"), utc("2024-03-02T10:00"))
AHEAD_IN_ALL = record("x", "both", utc("2090-01-01T00:00"), utc("2090-01-01T00:00"))
DAYS = [utc(day).toordinal() - utc("1970-01-01").toordinal() for day in ("2024-03-01", "2024-03-02")]


@pytest.fixture
def settled(tmp_path: Path, spark: SparkSession) -> "Settled":
    return Settled(tmp_path, spark)


class Settled:
    """Makes platforms, each with a lake of its own, that took in some records."""

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self._spark = spark
        self._folders: Iterator[Path] = (folder / str(number) for number in count())

    def __call__(self, *poison: Record) -> tuple[Platform, Stream, list[Commit]]:
        folder = next(self._folders)
        folder.mkdir()
        stream = make_stream(folder, start="2024-03-01")
        honest, poisoned = lay_out(HONEST, "honest.json"), lay_out(poison, "poison.json")
        write_batch(stream, [*honest, *poisoned], modified=utc("2024-03-02T20:00"))
        platform = temporary_platform(
            folder / "home", stream, self._spark, HeldClock(datetime.now(UTC)), in_process=True
        )
        return platform, stream, platform.ingest(stream.name)


def plans(platform: Platform) -> list[tuple[object, ...]]:
    """What is stale of the honest days, why, and whether it waits."""
    [plan, *_] = platform.plan("events")
    return [(each.cell, each.reason, each.rows, each.ready) for each in plan.stale if each.cell.partition in DAYS]


def late(platform: Platform) -> dict[int, dict[str, float | None]]:
    """All figures of each honest day, once all is repaired."""
    platform.repair("events")
    return {day: figures.plain() for day, figures in platform.figures.of("events", DAYS).items()}


@pytest.mark.parametrize("poison", [(AHEAD, IN_1970), (AHEAD_IN_ALL,)], ids=["event time", "arrival time, too"])
def test_a_poisoned_clock_makes_nobody_else_late(settled: Settled, poison: tuple[Record, ...]) -> None:
    (clean, _, _), (poisoned, stream, _) = settled(), settled(*poison)
    for minutes in (0, 2):
        for platform in (clean, poisoned):
            assert isinstance(platform.clock, HeldClock)
            platform.clock.advance(timedelta(minutes=minutes))
        assert plans(clean) == plans(poisoned)
    figures = late(clean)
    assert figures == late(poisoned)
    assert [each["late_rows"] for each in figures.values()] == [1, 0]
    assert not any(plan.stale for plan in poisoned.plan(stream.name))


def test_what_is_ahead_is_counted_by_its_source_and_rejected_alone(settled: Settled) -> None:
    platform, stream, [commit] = settled(AHEAD, IN_1970)
    assert platform.status(stream.name).rejected == 2
    assert commit.clocks is not None
    overall, [first, second] = commit.clocks.overall, commit.clocks.worst
    assert (overall.events, overall.ahead, overall.max) == (len(HONEST), 1, 86400.0)
    assert overall.p50 == 0.0
    assert overall.p99 == pytest.approx(86400, rel=0.01)
    assert (first.source, first.events, first.ahead, first.p50) == ("poison.json", 0, 1, None)
    assert (second.source, second.events, second.ahead) == ("honest.json", len(HONEST), 0)
