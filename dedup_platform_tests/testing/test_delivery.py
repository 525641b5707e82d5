"""Records become files whose lines have exactly the records' coordinates."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from dedup_platform.testing import Rules, lay_out, make_stream, record, utc, write_batch
from dedup_platform.testing.histories import histories

NOON = utc("2024-03-01T12:00:00.000001")


def test_line_numbers_are_the_offsets(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    history = histories(0, 20, Rules.of(stream), stream.partitions.start)
    for batch in history.batches:
        for path in write_batch(stream, batch):
            ids = [json.loads(line)["id"] for line in path.read_text().splitlines()]
            written = sorted((e for e in batch if e.source == path.name), key=lambda e: e.source_offset)
            assert ids == [each.event_id for each in written]
            assert path.stat().st_mtime == pytest.approx(max(e.arrival_time for e in written).timestamp())


def test_a_line_holds_the_record_exactly(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    records = lay_out([record(None, "1", NOON, amount=Decimal("0.10"), quantity=5, page=None)])
    (path,) = write_batch(stream, records, modified=NOON)
    assert json.loads(path.read_text()) == {
        "entity": None,
        "id": "1",
        "happened": "2024-03-01T12:00:00.000001+00:00",
        "arrived": "2024-03-01T12:00:00.000001+00:00",
        "amount": "0.10",
        "quantity": "5",
    }
    assert path.stat().st_mtime == pytest.approx(NOON.timestamp())
    assert path.relative_to(stream.files.root).as_posix() == records[0].source


@pytest.mark.parametrize("offsets", [(0, 2), (1, 2), (0, 0)], ids=str)
def test_half_a_file_is_refused(tmp_path: Path, offsets: tuple[int, int]) -> None:
    records = [replace(record("a", str(n), NOON), source_offset=offset) for n, offset in enumerate(offsets)]
    with pytest.raises(ValueError, match=r"must be its lines 0 to 1"):
        write_batch(make_stream(tmp_path), records)


def test_a_file_is_not_written_twice(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    write_batch(stream, lay_out([record("a", "1", NOON)]))
    with pytest.raises(ValueError, match="written before"):
        write_batch(stream, lay_out([record("a", "2", NOON)]))


def test_stream_says_what_it_was_made_with(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, "s", granularity="hour", window="2h", timeout="90m", start="2024-02-01", buckets=4)
    rules = Rules.of(stream)
    assert (rules.window, rules.timeout, rules.partition) == (
        timedelta(hours=2),
        timedelta(minutes=90),
        timedelta(hours=1),
    )
    assert (stream.name, stream.partitions.start, stream.buckets) == ("s", utc("2024-02-01"), 4)
    assert {function for function, _ in rules.aggregates.values()} == {"count", "sum", "min", "max", "first", "last"}
