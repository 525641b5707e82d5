"""`verify` judges tables as they were at one moment, whoever commits while it looks."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.ledger import Ledger
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, temporary_platform, utc, write_batch

NOON = utc("2024-01-01T12:00")


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        pytest.param(Ledger, "sync", marks=pytest.mark.thorough),
        pytest.param(Ledger, "records_read", marks=pytest.mark.thorough),
        (Lakehouse, "read"),
    ],
)
def test_a_writer_that_commits_after_a_step_is_no_false_alarm(
    kind: type, step: str, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(tmp_path)
    platform = temporary_platform(tmp_path / "home", stream, spark, HeldClock(datetime.now(UTC)))

    def deliver(source: str) -> None:
        write_batch(stream, lay_out([record("a", "1", NOON)], source), modified=NOON)
        platform.ingest("events")
        platform.repair("events")

    def then_another_writes(*args: Any) -> Any:
        monkeypatch.setattr(kind, step, original)
        result = original(*args)
        deliver("a copy.json")
        return result

    deliver("1.json")
    original = getattr(kind, step)
    monkeypatch.setattr(kind, step, then_another_writes)
    assert platform.verify("events") == []
    assert platform.read("events", "duplicate_events").count() == 1
    assert platform.verify("events") == []
