"""A message that ends whatever reads it costs that message, of a real topic."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dedup_platform.ingest import kafka as taking
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.ingest.deadly import deadly_ranges, read_deadly_ranges
from dedup_platform_tests.ingest.kafka.conftest import NewTopic
from dedup_platform_tests.ingest.kafka.topics import NAME, event, platform_of, rows, topic_stream


def test_each_deadly_message_is_rejected(
    new_topic: NewTopic, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "read_ranges", read_deadly_ranges)
    monkeypatch.setattr(taking, "ranges_of_task", deadly_ranges)
    topic = new_topic(partitions=2)
    topic.produce(event(0), event(1, "content:crash"), event(2), event(3, "decoding:kill"), event(4), key="k")
    topic.produce(event(5), event(6, "content:exit"), event(7), partition=1)
    platform = platform_of(tmp_path / "home", topic_stream(tmp_path, topic), spark)
    [commit] = platform.ingest(NAME)
    assert commit.rows_written == 8
    found = {(row["source_partition"], row["source_offset"]): row for row in rows(platform)}
    reasons = {place: row["rejection_reason"] for place, row in found.items() if row["rejection_reason"]}
    assert reasons == {
        (0, 1): "ended_process:SIGSEGV",
        (0, 3): "ended_process:SIGKILL",
        (1, 1): "ended_process:exit_3",
    }
    assert b"content:crash" in found[0, 1]["payload"]
    assert '"key":"k"' in found[0, 1]["payload_context"]
    assert platform.ingest(NAME) == []
    topic.produce(event(9))
    assert [each.rows_written for each in platform.ingest(NAME)] == [1]
    platform.repair(NAME)
    assert wrong_rows(platform, NAME) == []
