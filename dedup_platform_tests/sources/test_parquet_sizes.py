"""Rows of Parquet are read a few at a time where they are large, however small the file is."""

import tracemalloc
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_platform.sources.compression import Packed
from dedup_platform.sources.parquet_pages import largest_row
from dedup_platform.sources.parquet_records import parquet_batches, parquet_records
from dedup_platform.sources.parquet_sizes import gathered
from dedup_platform.sources.records import MALFORMED_RECORD, MAX_RECORD_BYTES

ROWS, LONG = 96, "a" * 2**20
ONE_LETTER: Mapping[str, Any] = {"compression": "zstd", "write_statistics": False}
REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int32()), [LONG])
SIZES = {
    "a dictionary": (pa.table({"a": REPEATED.cast(pa.string())}), {}),
    "a dictionary for Arrow, too": (pa.table({"a": REPEATED}), {}),
    "a dictionary in lists": (pa.table({"a": pa.ListArray.from_arrays(list(range(ROWS + 1)), REPEATED)}), {}),
    "a dictionary in structs": (pa.table({"a": pa.StructArray.from_arrays([REPEATED.cast(pa.string())], ["b"])}), {}),
    "beginnings that are shared": (
        pa.table({"a": [LONG + str(number) for number in range(ROWS)]}),
        {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
    ),
    "names": (pa.table({LONG: [1] * ROWS}), {}),
    "lists of nothing": (pa.table({"a": pa.ListArray.from_arrays([0, 10**6, 2 * 10**6], pa.nulls(2 * 10**6))}), {}),
}


def written(table: pa.Table, **options: Any) -> BytesIO:
    file = BytesIO()
    pq.write_table(table, file, **ONE_LETTER, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("kind", SIZES)
def test_large_rows_are_read_a_few_at_a_time(kind: str) -> None:
    table, options = SIZES[kind]
    file = written(table, **options)
    assert len(file.getvalue()) < 10_000 or kind == "names"
    batches = [pl.Series(payloads, dtype=pl.Binary).bin.size() for payloads, _, _ in parquet_batches(Packed(file, "x"))]
    assert sum(map(len, batches)) == len(table)
    assert max(int(sizes.sum()) for sizes in batches) < 16 * 2**20


def test_a_list_of_very_many_nulls_is_one_record_that_is_too_long() -> None:
    count = MAX_RECORD_BYTES // 2 + 100_000
    file = written(pa.table({"a": pa.ListArray.from_arrays([0, count], pa.nulls(count, pa.int8()))}))
    tracemalloc.start()
    [(payload, content, context)] = parquet_records(Packed(file, "x"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert payload == (b'{"a":[' + b"null," * MAX_RECORD_BYTES)[:MAX_RECORD_BYTES]
    assert (content, context) == (MALFORMED_RECORD, '{"format":"parquet","oversized":true}')
    assert peak < 10 * MAX_RECORD_BYTES


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "brotli", "zstd", "lz4"])
@pytest.mark.parametrize(
    ("texts", "least", "most"),
    [
        (["x" * 5000, "y", "y"], 5000, 5100),
        (["x" * 3000, "y" * 3000, "z" * 3000], 3000, 9100),  # so short a dictionary is not looked into
        (["x", "y", "é"], 1, 100),
        ([None, None, None], 1, 100),
    ],
)
def test_how_long_values_may_be(texts: list[str | None], least: int, most: int, codec: str, version: str) -> None:
    file = BytesIO()
    pq.write_table(pa.table({"a": texts * 50}), file, compression=codec, data_page_version=version, row_group_size=60)
    assert least <= largest_row(file) <= most


@pytest.mark.parametrize("place", range(0, 430, 10))
def test_how_long_values_may_be_is_asked_of_anything(place: int) -> None:
    file = written(pa.table({"a": ["x" * 5000, "y"] * 50}))
    content = file.getvalue()
    for at in range(place, min(place + 10, len(content))):
        for byte in (0, 1, 0x19, 0x7F, 0xF1, 0xFF):
            assert largest_row(BytesIO(content[:at] + bytes([byte]) + content[at + 1 :])) >= 0


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([10, 10, 10], [30]),
        ([40, 40, 40, 40], [80, 80]),
        ([90, 90, 1], [90, 91]),
        ([], []),
        ([0, 5], [5]),
    ],
)
def test_small_batches_are_put_together(lengths: Sequence[int], expected: Sequence[int]) -> None:
    rows = pa.record_batch({"a": list(range(1000))})
    begins = [sum(lengths[:number]) for number in range(len(lengths))]
    batches = [rows.slice(begin, length) for begin, length in zip(begins, lengths, strict=True)]
    found = list(gathered(batches, 100))
    assert [each.num_rows for each in found] == expected
    assert [value for each in found for value in each.column(0).to_pylist()] == list(range(sum(lengths)))


def test_an_error_comes_behind_the_rows_before_it() -> None:
    rows = pa.record_batch({"a": [1, 2]})

    def batches() -> Any:
        yield rows
        raise pa.ArrowInvalid("broken")

    parts = gathered(batches(), 100)
    assert next(parts).num_rows == 2
    with pytest.raises(pa.ArrowInvalid, match="broken"):
        next(parts)
