"""Data files as tasks read and write them, without Spark: rejected records have no cell, and batches are small."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dedup_platform.lake import table_files
from dedup_platform.lake.snapshots import cell_of, files_by_cell, rejected_files
from dedup_platform.lake.table_files import TableFiles, in_larger
from dedup_platform.planning.cells import NO_ENTITY, Cell
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream
from dedup_platform.tables import RAW_EVENTS, column_names
from dedup_platform.testing import make_stream, utc

EVENT = {"entity_id": "a", "event_id": "1", "event_time": utc("2024-03-01T10:00"), "payload": b"{}"}
REJECTED = {"payload": b"no json", "rejection_reason": "malformed_record"}


def no_spark() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    stream = make_stream(tmp_path, buckets=2)
    platform = Platform(Settings(home=tmp_path / "home"), {stream.name: stream}, no_spark)
    platform.lake.create(stream, stream.buckets)
    return platform


def raw(platform: Platform) -> tuple[Stream, TableFiles]:
    [stream] = platform.streams.values()
    return stream, platform.lake.table_files(stream, RAW_EVENTS)


def rows(stream: Stream, *values: Mapping[str, object]) -> pa.Table:
    names = column_names(stream, RAW_EVENTS)
    return pa.table({name: [each.get(name) for each in values] for name in names})


def test_files_that_were_read_are_found_in_raw_without_spark(platform: Platform) -> None:
    stream, table = raw(platform)
    read = [{"source": path, "source_partition": generation} for path, generation in (("a", 0), ("b", 0), ("b", 1))]
    cell = Cell(stream.partitions.ordinal(utc("2024-03-01")), NO_ENTITY)
    added = [table.write(None, rows(stream, REJECTED | read[0])), table.write(None, rows(stream, REJECTED | read[1]))]
    added.append(table.write(cell, rows(stream, EVENT | read[0], EVENT | read[2])))
    base = platform.lake.current(stream, RAW_EVENTS)
    platform.lake.publish(platform.lake.stage_append(stream, RAW_EVENTS, base, added, {"receipt": "lost.json"}))
    platform.source._ingest._files._ready(stream, utc("2024-03-02"))
    found = platform.ledger.files(stream.name)
    assert {each.path: (each.generation, each.records) for each in found.values()} == {"a": (0, 2), "b": (1, 1)}


def test_rejected_records_are_written_to_no_cell_and_replaced_there(platform: Platform) -> None:
    stream, table = raw(platform)
    cell = Cell(stream.partitions.ordinal(utc("2024-03-01")), NO_ENTITY)
    first = [table.write(None, rows(stream, REJECTED, REJECTED)), table.write(cell, rows(stream, EVENT))]
    assert [cell_of(file) for file in first] == [None, cell]
    lake, base = platform.lake, platform.lake.current(stream, RAW_EVENTS)
    lake.publish(lake.stage_files(stream, RAW_EVENTS, base, [], first, {}))

    base = lake.current(stream, RAW_EVENTS)
    second = [table.write(None, rows(stream, REJECTED)), table.write(cell, rows(stream, EVENT))]
    lake.publish(lake.stage_files(stream, RAW_EVENTS, base, first[:1], second, {}))
    loaded = lake.catalog.load_table(stream.name, RAW_EVENTS)
    newest = lake.current(stream, RAW_EVENTS)
    assert [file.file_path for file in rejected_files(loaded, newest)] == [second[0].file_path]
    assert {cell: len(files) for cell, files in files_by_cell(loaded, newest).items()} == {cell: 2}
    assert platform.rows(stream.name, RAW_EVENTS) == 3
    assert platform.rejected.count(stream.name) == 1


@pytest.mark.parametrize(("payload", "expected"), [(b"x", [10]), (b"x" * 300, [3, 3, 3, 1]), (b"x" * 2000, [1] * 10)])
def test_a_batch_holds_as_many_rows_as_memory_should(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, payload: bytes, expected: list[int]
) -> None:
    stream, table = raw(platform)
    # Every payload is another one, or the file would hold it once.
    values = [REJECTED | {"payload": f"{number}".encode() + payload} for number in range(10)]
    file = table.write(None, rows(stream, *values))
    monkeypatch.setattr(table_files, "_BATCH_BYTES", 1500)
    batches = list(table.batches(file, ["rejection_reason", "payload"]))
    assert [len(batch) for batch in batches] == expected
    assert [value for batch in batches for value in batch["payload"].to_pylist()] == [
        each["payload"] for each in values
    ]


def test_a_column_that_a_file_is_too_old_to_have_is_null(platform: Platform) -> None:
    stream, table = raw(platform)
    file = table.write(None, rows(stream, REJECTED))
    text = stream.origin.read_text().replace("attributes:\n", "attributes:\n    referrer: referrer\n")
    stream.origin.write_text(text)
    stream = load_stream(stream.origin)
    platform.lake.evolve(stream)
    table = platform.lake.table_files(stream, RAW_EVENTS)
    [batch] = table.batches(file, ["referrer", "payload"])
    assert batch.to_pylist() == [{"referrer": None, "payload": b"no json"}]


@pytest.mark.parametrize(
    ("rows", "size", "lengths"),
    [(5, 10**6, [8, 3]), (10**6, 24, [4, 4, 3]), (10**6, 10**6, [11]), (1, 1, [2, 2, 4, 2, 1])],
)
def test_small_batches_are_joined_in_their_order(
    rows: int, size: int, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_LARGER_ROWS", rows)
    monkeypatch.setattr(table_files, "_BATCH_BYTES", size)
    numbers = pa.table({"number": pa.array(range(11), pa.int64())})
    batches = [numbers[:2], numbers[2:4], numbers[4:8], numbers[8:10], numbers[10:]]
    joined = list(in_larger(batches))
    assert [len(each) for each in joined] == lengths
    assert pa.concat_tables(joined) == numbers
    assert not list(in_larger([]))
