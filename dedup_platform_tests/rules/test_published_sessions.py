"""Sessions that other engines' tests and manuals publish, delivered batch by batch: one stream for each timeout."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch

Case = dict[str, Any]
Spanned = tuple[str, datetime, datetime, int]
UNITS = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}
ZERO = utc("2024-03-01T12:00")
DAY = timedelta(days=1)


def by_timeout(cases: Iterable[Case]) -> dict[str, list[Case]]:
    found = defaultdict(list)
    for case in cases:
        found[f"{case['timeout']}{case['unit']}"].append(case)
    return found


def batches(cases: list[Case]) -> list[list[Record]]:
    """The batches of several cases side by side; an entity of a case is an entity of its own."""
    merged = []
    for number in range(max(len(case["batches"]) for case in cases)):
        events = [
            record(
                f"{case['id']} {entity}", f"{number} {n}", ZERO + time * UNITS[case["unit"]], ZERO + (number + 1) * DAY
            )
            for case in cases
            for n, (entity, time) in enumerate(case["batches"][number] if number < len(case["batches"]) else [])
        ]
        merged.append(lay_out(events, f"{number}.json"))
    return merged


def test_published_sessions(published_sessions: list[Case], tmp_path: Path, spark: SparkSession) -> None:
    for timeout, cases in by_timeout(published_sessions).items():
        folder = tmp_path / timeout
        folder.mkdir()
        assert found_sessions(folder, spark, timeout, cases) == expected_sessions(cases)


def found_sessions(folder: Path, spark: SparkSession, timeout: str, cases: list[Case]) -> list[Spanned]:
    """What a platform says after all batches, with a repair after each."""
    stream = make_stream(folder, timeout=timeout, window="0s", start="2024-03-01")
    platform = temporary_platform(folder / "home", stream, spark, HeldClock(ZERO + 30 * DAY), in_process=True)
    for batch in batches(cases):
        write_batch(stream, batch)
        platform.ingest(stream.name)
        platform.repair(stream.name)
    sessions = platform.read(stream.name, "sessions").toArrow().to_pylist()
    return sorted((row["entity_id"], row["started_at"], row["ended_at"], row["event_count"]) for row in sessions)


def expected_sessions(cases: list[Case]) -> list[Spanned]:
    return sorted(
        (f"{case['id']} {entity}", ZERO + first * UNITS[case["unit"]], ZERO + last * UNITS[case["unit"]], count)
        for case in cases
        for entity, first, last, count in case["expected_sessions"]
    )
