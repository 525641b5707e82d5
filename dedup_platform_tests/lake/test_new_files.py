"""New files hold what PyIceberg's own writer would have written, and commits are told the same of them."""

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import WriteTask

from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.tables import DEDUPLICATED_EVENTS, RAW_EVENTS, SESSIONS
from dedup_platform.testing import HeldClock, light_platform, make_stream, utc

AT = utc("2024-03-01T10:00")
ATTRIBUTES = {
    "page": "string",
    "amount": "decimal(12,2)",
    "large": "decimal(38,9)",
    "count": "long",
    "share": "double",
    "is_new": "boolean",
    "day": "date",
    "seen": "timestamp",
}
PLACE = (19783, 3)
TOLD = (
    *("content", "file_format", "record_count", "value_counts", "null_value_counts", "nan_value_counts"),
    *("lower_bounds", "upper_bounds", "partition", "equality_ids", "sort_order_id", "key_metadata"),
)
"""All but where a file lies, and how many bytes it takes."""
VALUES: dict[pa.DataType, Any] = {
    pa.string(): lambda number: f"té{number}" * 20,
    pa.large_string(): lambda number: f"té{number}" * 20,
    pa.binary(): lambda number: b"\xff" * (number % 40),
    pa.large_binary(): lambda number: b"\xff" * (number % 40),
    pa.int32(): lambda number: number - 5,
    pa.int64(): lambda number: 2**62 - number,
    pa.float64(): lambda number: float("nan") if number % 7 == 0 else number / 3,
    pa.bool_(): lambda number: number % 2 == 0,
    pa.date32(): lambda number: date(1969, 12, 30) + timedelta(days=number),
    pa.timestamp("us", "UTC"): lambda number: AT - timedelta(microseconds=number),
    pa.decimal128(12, 2): lambda number: Decimal(number - 3) / 100,
    pa.decimal128(38, 9): lambda number: Decimal(10**28 - number) / 10**9,
}


def rows(files: TableFiles, count: int, nulls: int) -> pa.Table:
    """As many rows; of each column that may be null, every so manieth value is."""

    def value(field: pa.Field, number: int) -> Any:
        if field.nullable and number % nulls == 0:
            return None
        if pa.types.is_list(field.type):
            return [VALUES[field.type.value_type](number)]
        return VALUES[field.type](number)

    schema = schema_to_pyarrow(files.metadata.schema(), include_field_ids=False)
    return pa.table([[value(field, number) for number in range(count)] for field in schema], schema=schema)


def told(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in TOLD}


@pytest.mark.parametrize("table", [RAW_EVENTS, DEDUPLICATED_EVENTS, SESSIONS])
@pytest.mark.parametrize(("count", "nulls"), [(1, 2), (50, 1), (50, 3), (3000, 2)])
def test_files_are_as_pyiceberg_writes_them(table: str, count: int, nulls: int, tmp_path: Path) -> None:
    stream = make_stream(tmp_path, attributes=ATTRIBUTES, aggregates={"total": ("sum", "large")})
    platform = light_platform(tmp_path / "home", stream, HeldClock(AT))
    platform.lake.create(stream, 4)
    files = platform.lake.table_files(stream, table)
    given = rows(files, count, nulls)
    place = PLACE[: len(files.metadata.spec().fields)]

    made = files.write_at(place, given)
    key = files.new.key(place)
    task = WriteTask(uuid4(), 0, files.metadata.schema(), given.to_batches(), partition_key=key)
    [expected] = write_file(files.io, files.metadata, iter([task]))

    assert told(made) == told(expected)
    assert made.spec_id == files.metadata.default_spec_id
    assert Path(made.file_path).parent == Path(expected.file_path).parent
    ours, theirs = (pq.ParquetFile(each.file_path) for each in (made, expected))
    assert ours.schema.equals(theirs.schema)
    assert frame_of(ours.read()).equals(frame_of(theirs.read()))
    assert made.file_size_in_bytes == Path(made.file_path).stat().st_size
    assert sum(made.column_sizes.values()) < made.file_size_in_bytes
    assert files.read([made], given.column_names).sort_by(given.column_names[0]).num_rows == count


@pytest.mark.parametrize(
    ("count", "value", "expected"),
    [
        (20_000, lambda number: f"{number}", False),
        (20_000, lambda number: None if number % 3 == 0 else f"{number}", False),
        (20_000, lambda number: None if number % 3 else f"{number}", True),
        (20_000, lambda number: f"{number // 10}", True),
        (20_000, lambda number: f"{number % 1500}", True),
        (500, lambda number: f"{number}", True),
    ],
    ids=["all differ", "some are null", "most are null", "one after the other", "far apart", "few rows"],
)
def test_a_column_has_a_dictionary_if_its_values_may_repeat(
    count: int, value: Callable[[int], str | None], expected: bool, tmp_path: Path
) -> None:
    stream = make_stream(tmp_path)
    platform = light_platform(tmp_path / "home", stream, HeldClock(AT))
    platform.lake.create(stream, 4)
    files = platform.lake.table_files(stream, RAW_EVENTS)
    names = files.metadata.schema().column_names
    given = rows(files, 1, 2).take([0] * count)
    given = given.set_column(names.index("event_id"), "event_id", pa.array([value(number) for number in range(count)]))
    made = files.write_at(PLACE, given)
    group = pq.read_metadata(made.file_path).row_group(0)
    columns = {each.path_in_schema: each.has_dictionary_page for each in map(group.column, range(group.num_columns))}
    assert columns["event_id"] is expected
    assert columns["source"]
    assert not columns["payload"]
