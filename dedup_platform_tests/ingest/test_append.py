"""New records on their way into files: however they are divided, each is written once, to a file of its cell."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import polars as pl
import pytest
from pyspark.sql import SparkSession

from dedup_platform.errors import SourceError
from dedup_platform.ingest import append as writing
from dedup_platform.ingest.append import Appending, append
from dedup_platform.lake.snapshots import cell_of
from dedup_platform.sources.files import list_files, read_group
from dedup_platform.spark.workers import InProcess
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import lay_out, light_platform, make_stream, record, temporary_platform, utc, write_batch

FILES, EVENTS = 3, 20
AT = utc("2024-03-01T10:00")


@pytest.mark.parametrize(
    ("own_file_bytes", "files_a_cell"),
    [(2**40, 1), (1, FILES)],
    ids=["what each task has is too little", "what each task has is enough"],
)
def test_records_of_several_tasks(tmp_path: Path, spark: SparkSession, own_file_bytes: int, files_a_cell: int) -> None:
    stream = make_stream(tmp_path, buckets=2)
    for number in range(FILES):
        events = [record(f"user-{each}", f"{number}-{each}", AT + timedelta(minutes=each)) for each in range(EVENTS)]
        write_batch(stream, lay_out(events, f"{number}.json"))
    platform = temporary_platform(tmp_path / "home", stream, spark, lambda: AT + timedelta(days=1))
    files = list_files(stream, platform.clock()).ready
    assert len(files) == FILES
    platform.lake.create(stream, 2)
    table = platform.lake.table_files(stream, RAW_EVENTS)
    read = partial(read_group, stream, [[(file, 0)] for file in files])
    appended = append(spark, Appending(stream, table, 2, read, FILES, own_file_bytes))
    assert set(Counter(cell_of(each.file) for each in appended).values()) == {files_a_cell}
    assert sum(each.file.record_count for each in appended) == FILES * EVENTS
    spans = [span for each in appended for span in each.spans]
    assert {span.source for span in spans} == {"0.json", "1.json", "2.json"}
    assert sum(span.places for span in spans) == FILES * EVENTS


def test_what_is_counted_of_the_records_of_one_source(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    arrivals = [AT, AT, AT + timedelta(seconds=3), AT, AT + timedelta(seconds=1), AT + timedelta(seconds=3)]
    events = [record("a", f"{number}", AT, arrival) for number, arrival in enumerate(arrivals)]
    future = [record("a", f"{number}", AT + timedelta(days=9), AT) for number in range(2)]
    write_batch(stream, lay_out([record("a", "b", AT - timedelta(days=99), AT), *events, *future], "0.json"))
    platform = light_platform(tmp_path / "home", stream, lambda: AT + timedelta(days=1))
    platform.lake.create(stream, 1)
    read = partial(read_group, stream, [[(file, 0) for file in list_files(stream, platform.clock()).ready]])
    appending = Appending(stream, platform.lake.table_files(stream, RAW_EVENTS), 1, read, 1)
    appended = append(cast("SparkSession", InProcess()), appending)
    rejected, told = sorted((span for each in appended for span in each.spans), key=lambda span: bool(span.skews))
    assert (rejected.records, rejected.skews, rejected.longest) == (3, {}, None)
    assert rejected.rejected == {"before_start": 1, "event_time_in_future": 2}
    assert (told.records, told.places, told.first_offset, told.last_offset) == (6, 6, 1, 6)
    assert list(told.skews.values()) == [3, 2, 1]
    assert [round(1.02 ** (size - 0.5) / 1000) for size in told.skews] == [0, 3, 1]
    assert (told.longest, told.rejected) == (3, {})


def test_rows_are_written_before_they_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "HELD_ROWS", 2 * EVENTS)
    monkeypatch.setattr(writing, "DIVIDED_BYTES", 1)
    stream = make_stream(tmp_path)
    for number in range(4):
        write_batch(stream, lay_out([record("a", f"{number}-{each}", AT) for each in range(EVENTS)], f"{number}.json"))
    platform = light_platform(tmp_path / "home", stream, lambda: AT + timedelta(days=1))
    platform.lake.create(stream, 1)
    groups = [[(file, 0)] for file in list_files(stream, platform.clock()).ready]

    def read(_: int) -> Iterator[pl.DataFrame]:
        return (rows for number in range(len(groups)) for rows in read_group(stream, groups, number))

    appending = Appending(stream, platform.lake.table_files(stream, RAW_EVENTS), 1, read, 1)
    appended = append(cast("SparkSession", InProcess()), appending)
    assert [each.file.record_count for each in appended] == [2 * EVENTS, 2 * EVENTS]


@pytest.mark.parametrize("tasks", [1, FILES], ids=["one task", "several"])
def test_why_a_source_cannot_be_read_comes_back_as_it_is(tmp_path: Path, spark: SparkSession, tasks: int) -> None:
    stream = make_stream(tmp_path)
    for number in range(FILES):
        write_batch(stream, lay_out([record("a", f"{number}", AT)], f"{number}.json"))
    platform = temporary_platform(tmp_path / "home", stream, spark, lambda: AT + timedelta(days=1))
    files = list_files(stream, platform.clock()).ready
    platform.lake.create(stream, 1)
    (stream.files.root / "2.json").unlink()
    groups = [[(file, 0) for file in files[number::tasks]] for number in range(tasks)]
    appending = Appending(
        stream, platform.lake.table_files(stream, RAW_EVENTS), 1, partial(read_group, stream, groups), tasks
    )
    with pytest.raises(SourceError) as failed:
        append(spark, appending)
    assert str(failed.value) == "2.json: cannot be read: No such file or directory"
    assert failed.value.path == "2.json"
