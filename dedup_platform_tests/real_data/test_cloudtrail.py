"""2,900 calls with their real times of delivery: file by file, in the order of the stamps and reversed."""

import os
import shutil
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.planning.moments import utc_now
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing import temporary_platform

STREAM = """\
name: {name}
source: {{kind: files, path: {name}/*.jsonl.gz, format: json, settle: 0s}}
fields: {{entity_id: source_ip, event_id: event_id, event_time: event_time, arrival_time: delivered_at}}
partitions: {{granularity: {granularity}, start: 2023-07-10}}
buckets: 1
deduplicate: {{window: 1h}}
sessions: {{timeout: {timeout}}}
"""
SESSIONS = {"5m": 37, "15m": 18, "30m": 16}
GRANULARITIES = ("day", "hour")
FILES_A_RUN = 20
"""One with --thorough: file by file takes half an hour."""
STREAMS = [("day", "5m"), ("day", "15m"), ("day", "30m"), ("hour", "30m")]
"""Granularities and timeouts; with --thorough all of both."""


def stream(folder: Path, name: str) -> Stream:
    granularity, timeout = name.split("_")
    (folder / name).mkdir()
    (folder / f"{name}.yaml").write_text(
        STREAM.format(name=name, granularity=granularity, timeout=timeout), encoding="utf-8"
    )
    return load_stream(folder / f"{name}.yaml")


def deliver(platform: Platform, files: list[Path], files_a_run: int) -> dict[str, set[tuple[object, ...]]]:
    """Hand every stream file after file, with a run after each few of them; the sessions of each with their ids."""
    for first in range(0, len(files), files_a_run):
        for name, each in platform.streams.items():
            for number, file in enumerate(files[first : first + files_a_run], start=first + 1):
                target = each.files.root / file.name
                shutil.copyfile(file, target)
                os.utime(target, (number, number))
            platform.ingest(name)
            platform.repair(name)
    return {name: {tuple(row) for row in platform.read(name, tables.SESSIONS).collect()} for name in platform.streams}


def test_every_order_gives_the_same_sessions_and_ids(
    tmp_path: Path, spark: SparkSession, data_dir: Path, thorough: bool
) -> None:
    files = sorted((data_dir / "cloudtrail").glob("*.jsonl.gz"))
    names = ["_".join(each) for each in (product(GRANULARITIES, SESSIONS) if thorough else STREAMS)]
    found = []
    for order, ordered in (("stamps", files), ("reversed", files[::-1])):
        folder = tmp_path / order
        folder.mkdir()
        platform = temporary_platform(folder / "home", [stream(folder, name) for name in names], spark, utc_now)
        found.append(deliver(platform, ordered, 1 if thorough else FILES_A_RUN))
        for name in platform.streams:
            assert platform.rows(name, tables.DEDUPLICATED_EVENTS) == 2_900
            # The others must give the same, which is looked at below.
            if thorough or (order, name) == ("reversed", names[-1]):
                assert platform.verify(name) == []
    assert found[0] == found[1]
    assert {name: len(sessions) for name, sessions in found[0].items()} == {
        name: SESSIONS[name.partition("_")[2]] for name in names
    }
    for name in names:
        assert found[0][name] == found[0][name.replace("hour", "day")]
