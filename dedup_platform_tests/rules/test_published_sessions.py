"""Sessions that other engines' tests and manuals publish, delivered batch by batch: one stream for each timeout."""

import json
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.testing import HeldClock, Record, lay_out, make_stream, record, temporary_platform, utc, write_batch

CASES = json.loads((Path(__file__).parents[1] / "cases" / "session_cases.json").read_text(encoding="utf-8"))["cases"]
UNITS = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}
ZERO = utc("2024-03-01T12:00")
DAY = timedelta(days=1)


def by_timeout() -> dict[str, list[dict]]:
    cases = defaultdict(list)
    for case in CASES:
        cases[f"{case['timeout']}{case['unit']}"].append(case)
    return cases


def batches(cases: list[dict]) -> list[list[Record]]:
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


@pytest.mark.parametrize("timeout", by_timeout())
def test_published_sessions(timeout: str, tmp_path: Path, spark: SparkSession) -> None:
    cases = by_timeout()[timeout]
    stream = make_stream(tmp_path, timeout=timeout, window="0s", start="2024-03-01")
    platform = temporary_platform(tmp_path / "home", stream, spark, HeldClock(ZERO + 30 * DAY))
    for batch in batches(cases):
        write_batch(stream, batch)
        platform.ingest(stream.name)
        platform.repair(stream.name)
    sessions = platform.read(stream.name, "sessions").toArrow().to_pylist()
    found = sorted((row["entity_id"], row["started_at"], row["ended_at"], row["event_count"]) for row in sessions)
    assert found == sorted(
        (f"{case['id']} {entity}", ZERO + first * UNITS[case["unit"]], ZERO + last * UNITS[case["unit"]], count)
        for case in cases
        for entity, first, last, count in case["expected_sessions"]
    )
