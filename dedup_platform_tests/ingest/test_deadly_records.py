"""A record that ends Spark's worker costs that record: the rest of its batch, and what comes after it, is taken in."""

import json
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.errors import DeadlyRecordError
from dedup_platform.ingest import files as taking
from dedup_platform.ingest.append import Appending, append
from dedup_platform.replay import rewrite
from dedup_platform.replay.rewrite import Choice
from dedup_platform.sources.files import list_files
from dedup_platform.spark.task_limits import TaskLimits
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.ingest.deadly import deadly_files, read_deadly_files, run_deadly_rewrite

AT = utc("2024-03-01T10:00")
NOW = AT + timedelta(days=1)
EVENTS = 20


@pytest.mark.parametrize("tasks", [pytest.param(1, marks=pytest.mark.thorough), 2])
def test_a_record_that_ends_its_worker(tmp_path: Path, spark: SparkSession, tasks: int) -> None:
    stream = make_stream(tmp_path, buckets=2)
    for number, fault in enumerate(["content:crash", "decoding:loop"]):
        events = [record(f"user-{each}", f"{number}-{each}", AT + timedelta(minutes=each)) for each in range(EVENTS)]
        write_batch(stream, lay_out([record(fault, "deadly", AT), *events], f"{number}.json"))
    platform = temporary_platform(tmp_path / "home", stream, spark, lambda: NOW)
    platform.lake.create(stream, 2)
    found = [(file, 0) for file in list_files(stream, platform.clock()).ready]
    groups = [found] if tasks == 1 else [[file] for file in found]
    appending = Appending(
        stream,
        platform.lake.table_files(stream, RAW_EVENTS),
        2,
        partial(read_deadly_files, stream, groups),
        tasks,
        inputs=partial(deadly_files, stream, groups),
        limits=TaskLimits(2**30, 1),
    )
    appended = append(spark, appending)
    assert sum(each.file.record_count for each in appended) == 2 * (EVENTS + 1)
    spans = [span for each in appended for span in each.spans]
    rejected = {span.source: span.rejected for span in spans if span.rejected}
    assert rejected == {"0.json": {"ended_process:SIGSEGV": 1}, "1.json": {"ended_process:record_seconds": 1}}
    assert sum(span.places for span in spans) == 2 * (EVENTS + 1)


def test_what_becomes_of_a_record_that_takes_too_much_memory(tmp_path: Path, spark: SparkSession) -> None:
    """Nothing is planted: a record of 15 MB becomes four million objects."""
    stream = make_stream(tmp_path)
    platform = temporary_platform(tmp_path / "home", stream, spark, lambda: NOW, task_memory="192m")
    large = {"entity": "a", "id": "large", "more": [f"{number:x}" for number in range(1_700_000)]}
    line = json.dumps(large, separators=(",", ":"))
    write_batch(stream, lay_out([record("a", "before", AT)], "0.json"))
    (stream.files.root / "1.json").write_text(f"{line}\n")
    write_batch(stream, lay_out([record("a", "behind", AT)], "2.json"))
    platform.ingest("events")
    platform.repair("events")
    [reason] = platform.rejected.reasons("events")
    assert reason.records == 1
    # Which it is depends on who asks for the memory that is refused.
    assert reason.reason.startswith(("unprocessable:MemoryError", "ended_process:"))
    assert wrong_rows(platform, "events") == []


def test_replays_leave_it_alone_unless_it_is_named(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make_stream(tmp_path)
    monkeypatch.setattr(taking, "read_group", read_deadly_files)
    monkeypatch.setattr(taking, "files_of_group", deadly_files)
    write_batch(stream, lay_out([record("content:exit", "deadly", AT), record("b", "c", AT)], "0.json"))
    platform = temporary_platform(tmp_path / "home", stream, spark, lambda: NOW)
    platform.ingest("events")
    assert [each.reason for each in platform.rejected.reasons("events")] == ["ended_process:exit_3"]
    assert platform.rejected.replay("events").snapshot_id is None
    monkeypatch.setattr(rewrite, "_run", run_deadly_rewrite)
    with pytest.raises(DeadlyRecordError, match=r"events: a record ended the process"):
        platform.rejected.replay("events", Choice(reason="ended_process:*"))
    monkeypatch.undo()
    assert platform.rejected.replay("events", Choice(reason="ended_process:*")).accepted == 1
    platform.repair("events")
    assert wrong_rows(platform, "events") == []
