"""What ends a process that reads is narrowed down to one record, and everything else is what it would be without it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dedup_platform.errors import SourceChangedError
from dedup_platform.ingest import isolation
from dedup_platform.ingest.isolation import MOST_DEATHS, read_apart
from dedup_platform.ingest.one_by_one import Plan, Work
from dedup_platform.sources.batches import Input
from dedup_platform.sources.files import files_of_group, list_files, read_group
from dedup_platform.spark.task_limits import TaskLimits
from dedup_platform.stream import Stream
from dedup_platform_tests.ingest.deadly import deadly_files
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.variants import some

LIMITS = TaskLimits(memory=2**30, seconds=1)
RECORDS = 1300


def lines_of(faults: Mapping[int, str], records: int = RECORDS) -> list[str]:
    """JSON lines, each an event but for those of these numbers, which are told a fault."""
    events = [{"user": f"u{each % 7}", "id": f"e{each}", "at": "2024-03-01T10:00:00Z"} for each in range(records)]
    return [json.dumps(event | ({"note": faults[each]} if each in faults else {})) for each, event in enumerate(events)]


def written(folder: Path, files: Mapping[str, Sequence[str]], file_format: str = "json") -> tuple[Stream, list[Any]]:
    """A stream, and the one group of its files."""
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines))
    stream = click_stream(file_format, folder)
    return stream, [[(file, 0) for file in list_files(stream, datetime.max.replace(tzinfo=UTC)).ready]]


def apart(stream: Stream, groups: Sequence[Any], limits: TaskLimits = LIMITS) -> pl.DataFrame:
    """The rows that lone processes read."""
    return pl.concat(read_apart(Work(stream, partial(deadly_files, stream, groups), 0, limits)))


def place(rows: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The coordinates of rows, in their order."""
    return list(rows.select("source", "source_partition", "source_offset", "source_index").iter_rows())


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("crash", "SIGSEGV"),
        ("kill", "SIGKILL"),
        ("exit", "exit_3"),
        ("abort", "SIGABRT"),
        ("loop", "record_seconds"),
        ("memory", "task_memory"),
    ],
)
@pytest.mark.parametrize("stage", [pytest.param("content", marks=pytest.mark.thorough), "decoding"])
def test_one_record_is_rejected(tmp_path: Path, fault: str, cause: str, stage: str) -> None:
    deadly = 1234
    lines = lines_of({deadly: f"{stage}:{fault}"})
    stream, groups = written(tmp_path, {"a.json": lines_of({}, 3), "b.json": lines, "c.json": lines_of({}, 3)})
    rows = apart(stream, groups)
    without_fault = pl.concat(read_group(stream, groups, 0))
    assert place(rows) == place(without_fault)
    is_deadly = (rows["source"] == "b.json") & (rows["source_offset"] == deadly)
    assert rows.filter(~is_deadly).equals(without_fault.filter(~is_deadly))
    [rejected] = rows.filter(is_deadly).iter_rows(named=True)
    assert rejected["rejection_reason"] == f"ended_process:{cause}"
    assert rejected["payload"] == lines[deadly].encode()
    assert rejected["event_id"] is None


@pytest.mark.thorough
def test_several_records_of_every_stage(tmp_path: Path) -> None:
    told = {0: "content:crash", 1: "decoding:crash", 1100: "decoding:kill", 1101: "decoding:exit", 1299: "content:exit"}
    stream, groups = written(tmp_path, {"a.json": lines_of(told)})
    rows = apart(stream, groups)
    assert rows["source_offset"].to_list() == list(range(RECORDS))
    found = dict(
        rows.filter(pl.col("rejection_reason").is_not_null()).select("source_offset", "rejection_reason").rows()
    )
    causes = ("SIGSEGV", "SIGSEGV", "SIGKILL", "exit_3", "exit_3")
    assert found == {number: f"ended_process:{cause}" for number, cause in zip(told, causes, strict=True)}


def test_what_cannot_be_passed_costs_the_rest_of_its_file_only(tmp_path: Path) -> None:
    stream, groups = written(tmp_path, {"a.json": lines_of({7: "framing:crash"}, 20), "b.json": lines_of({}, 5)})
    rows = apart(stream, groups)
    of_a = rows.filter(pl.col("source") == "a.json")
    assert of_a["source_offset"].to_list() == list(range(8))
    assert of_a["rejection_reason"].to_list() == [None] * 7 + ["damaged_file"]
    context = json.loads(of_a["payload_context"][-1])
    assert context["damage"] == {"reason": "ended_process:SIGSEGV", "offset": None}
    assert rows.filter(pl.col("source") == "b.json")["event_id"].to_list() == [f"e{each}" for each in range(5)]


@pytest.mark.parametrize("stage", ["framing", "content", pytest.param("decoding", marks=pytest.mark.thorough)])
def test_a_file_may_end_so_many_processes_and_no_more(tmp_path: Path, stage: str) -> None:
    told = dict.fromkeys(range(10, 10 + 2 * MOST_DEATHS), f"{stage}:crash")
    stream, groups = written(tmp_path, {"a.json": lines_of(told, 60), "b.json": lines_of({}, 5)})
    rows = apart(stream, groups)
    of_a = rows.filter(pl.col("source") == "a.json")
    assert of_a["source_offset"].to_list() == list(range(len(of_a)))
    assert of_a["rejection_reason"].to_list()[:10] == [None] * 10
    *blamed, rest = of_a["rejection_reason"].to_list()[10:]
    assert rest == "damaged_file"
    assert set(blamed) <= {"ended_process:SIGSEGV"}
    assert len(blamed) <= MOST_DEATHS
    assert rows.filter(pl.col("source") == "b.json")["event_id"].to_list() == [f"e{each}" for each in range(5)]


@pytest.mark.parametrize("mebibytes", some([64, 96, 112, 128, 140, 150, 170], quick=[64, 128]))
def test_a_record_left_alone_is_copied_even_if_that_takes_more_than_the_limit(tmp_path: Path, mebibytes: int) -> None:
    """A record of 14 MB, of which a few copies are made, and of which four million objects would be made."""
    more = [f"{number:x}" for number in range(1_600_000)]
    large = json.dumps({"user": "u", "id": "large", "at": "2024-03-01", "more": more})
    stream, groups = written(tmp_path, {"a.json": [*lines_of({}, 2), large, *lines_of({}, 3)]})
    rows = apart(stream, groups, TaskLimits(mebibytes * 2**20, 60))
    assert rows["payload"].to_list() == [each.encode() for each in [*lines_of({}, 2), large, *lines_of({}, 3)]]
    [reason] = rows["rejection_reason"].drop_nulls()
    assert reason.startswith(("ended_process:", "unprocessable:MemoryError"))


def test_what_libraries_reserve_at_their_first_use_does_not_count(tmp_path: Path) -> None:
    events = pl.DataFrame({"user": ["u"], "id": ["e"], "at": ["2024-03-01"]})
    events.write_parquet(tmp_path / "a.parquet")
    stream = click_stream("parquet", tmp_path)
    groups = [[(file, 0) for file in list_files(stream, datetime.max.replace(tzinfo=UTC)).ready]]
    work = Work(stream, partial(files_of_group, stream, groups), 0, TaskLimits(2**30, 60))
    assert pl.concat(read_apart(work))["rejection_reason"].to_list() == [None]


def test_who_reads_together_without_an_end_is_not_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, attempt = list[Work](), isolation._attempt

    def noted(work: Work) -> Iterator[pl.DataFrame]:
        attempts.append(work)
        return attempt(work)

    monkeypatch.setattr(isolation, "_attempt", noted)
    stream, groups = written(tmp_path, {"a.json": lines_of({}), "b.json": lines_of({4: "content:crash"}, 5)})
    assert len(apart(stream, groups)) == RECORDS + 5
    assert [(each.first, each.plan and each.plan.done) for each in attempts] == [(0, None), (1, 0), (1, 0)]


def test_what_a_lone_process_reads_record_by_record_is_what_is_read_together(tmp_path: Path) -> None:
    lines = ["user,id,at", *(f"u,{each},2024-03-01" for each in range(50)), '"', "u,x", ""]
    stream, groups = written(tmp_path, {"a.csv": lines}, "csv")
    work = Work(stream, partial(files_of_group, stream, groups), 0, LIMITS)
    for plan in (None, Plan(), Plan(few_until=50, few=7)):
        rows = pl.concat(read_apart(replace(work, plan=plan)))
        assert rows.equals(pl.concat(read_group(stream, groups, 0)))


def changed_files(_: int) -> Iterator[Input]:
    """Inputs of a source that is no longer as it was listed."""
    raise SourceChangedError("a.json changed since it was listed")


def test_an_error_of_the_source_is_raised_as_it_is(tmp_path: Path) -> None:
    stream, _ = written(tmp_path, {})
    with pytest.raises(SourceChangedError, match=r"a\.json changed"):
        list(read_apart(Work(stream, changed_files, 0, LIMITS)))


def who_ends_at_once(_: int) -> Iterator[Input]:
    """Inputs that nobody survives to open."""
    os._exit(7)


def test_a_process_that_ends_before_it_reads_is_an_error(tmp_path: Path) -> None:
    stream, _ = written(tmp_path, {})
    with pytest.raises(RuntimeError, match=r"ended \(exit_7\) before it began"):
        list(read_apart(Work(stream, who_ends_at_once, 0, LIMITS)))
