"""Dagster's event log is opened once for a run, not for each event; what is in it is the same."""

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dedup_platform.orchestration.event_log import kept_open

KEY = dg.AssetKey(["clicks", "raw_events"])
EVENTS = 30


@dg.op
def tell(context: dg.OpExecutionContext) -> None:
    """Materialize so many partitions."""
    for number in range(EVENTS):
        context.log_event(dg.AssetMaterialization(KEY, partition=f"day {number}", metadata={"rows": number}))


@dg.job
def telling() -> None:
    """One step."""
    tell()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often each database was opened."""
    counts = Counter[str]()
    connect = sqlite3.dbapi2.connect

    def counted(database: str, *arguments: Any, **options: Any) -> sqlite3.Connection:
        counts[Path(database).name] += 1
        return connect(database, *arguments, **options)

    monkeypatch.setattr(sqlite3.dbapi2, "connect", counted)
    return counts


def test_its_databases_are_opened_once_and_hold_every_event(tmp_path: Path, opened: dict[str, int]) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with kept_open(instance):
            opened.clear()
            result = telling.execute_in_process(instance=instance)
            assert opened["index.db"] <= 2
            assert opened[f"{result.run_id}.db"] < 10  # it is made, too
        told = instance.fetch_materializations(KEY, limit=EVENTS + 1).records
        assert sorted(each.partition_key or "" for each in told) == sorted(f"day {number}" for number in range(EVENTS))
        assert [each.event_log_entry.run_id for each in told] == [result.run_id] * EVENTS
        opened.clear()
        telling.execute_in_process(instance=instance)
        assert opened["index.db"] > EVENTS


def test_nothing_is_held_after_a_failure(tmp_path: Path) -> None:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with pytest.raises(ZeroDivisionError), kept_open(instance):
            raise ZeroDivisionError
        assert "_connect" not in vars(instance.event_log_storage)
        assert telling.execute_in_process(instance=instance).success
