"""Files that are copied with columns added, without being decoded: the same rows to whoever reads them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.types import LongType
from pyspark.sql import SparkSession

from dedup_platform.lake import made_chunks
from dedup_platform.lake.feeds import FeedTable
from dedup_platform.lake.parquet_footer import I64, value
from dedup_platform.lake.table_files import frame_of
from dedup_platform.lake.whole_files import Whole, WholeFiles, _moved
from dedup_platform.planning.cells import Cell
from dedup_platform.rules.changes import told_of_insertion
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, EVENT_CHANGES, column_names
from dedup_platform.testing import HeldClock, light_platform, make_stream, utc
from dedup_platform.testing.platforms import session_of

AT = utc("2024-03-01T10:00")
ATTRIBUTES = {"page": "string", "amount": "decimal(12,2)", "count": "long", "share": "double", "day": "date"}
COMMIT = {"_commit_version": 7, "_commit_timestamp": AT, "_commit_snapshot_id": 2**62}


class Tables:
    """A table of events and the feed of its changes, both empty, and files of them."""

    DAY = ((AT - utc("1970-01-01")).days,)

    def __init__(self, folder: Path) -> None:
        self.stream: Stream = make_stream(folder, attributes=ATTRIBUTES, aggregates={})
        platform = light_platform(folder / "home", self.stream, HeldClock(AT))
        platform.lake.create(self.stream, 1)
        self.names = column_names(self.stream, DEDUPLICATED_EVENTS)
        self.told = column_names(self.stream, EVENT_CHANGES)
        self.events = platform.lake.table_files(self.stream, DEDUPLICATED_EVENTS)
        feed = FeedTable(platform.lake.catalog, self.stream, DEDUPLICATED_EVENTS)
        self.position = feed.prepare()
        self.changes = feed.files()
        self.copies = WholeFiles(self.events, self.changes, "_change_ordinal")
        self.feed = feed
        self.settings = platform.settings

    def rows(self, first: int, count: int) -> pa.Table:
        def value(name: str, number: int) -> Any:
            made: dict[str, Callable[[], Any]] = {
                "event_time": lambda: AT,
                "arrival_time": lambda: AT,
                "amount": lambda: Decimal(number) / 100,
                "count": lambda: number % 7,
                "share": lambda: number / 3,
                "day": lambda: AT.date(),
                "source_offset": lambda: number,
            }
            if number % 5 == 0 and name in ATTRIBUTES:
                return None
            return made[name]() if name in made else 0 if name.startswith("source_") else f"{name} {number} ü"

        numbers = range(first, first + count)
        columns = {name: [value(name, number) for number in numbers] for name in self.names}
        return pa.table(columns, schema_to_pyarrow(self.events.metadata.schema(), include_field_ids=False))

    def write(self, rows: pa.Table, group: int = 10) -> DataFile:
        """A file of the table with row groups of so many rows."""
        said = self.events.metadata.properties | {"write.parquet.row-group-limit": str(group)}
        metadata = self.events.metadata.model_copy(update={"properties": said})
        cell = Cell(self.stream.partitions.ordinal(AT), 0)
        return replace(self.events, metadata=metadata).write(cell, rows)

    def copy(self, *files: DataFile) -> DataFile:
        assert all(map(self.copies.look, files))
        [made] = self.copies.write(self.DAY, self.parts(files))
        return made

    def parts(self, files: Iterable[DataFile]) -> list[Whole]:
        same = {**told_of_insertion(self.stream, DEDUPLICATED_EVENTS), **COMMIT}
        parts, first = list[Whole](), 100
        for file in files:
            parts.append(Whole(file, same, first))
            first += file.record_count
        return parts


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


@pytest.fixture(params=[10, 2**14])
def rows_a_page(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of ten rows have one page of columns that are added, or parts of one."""
    monkeypatch.setattr(made_chunks, "_PAGE_ROWS", request.param)


@pytest.mark.usefixtures("rows_a_page")
def test_copied_rows_are_the_same_with_the_columns_that_were_added(tables: Tables) -> None:
    rows = [tables.rows(0, 25), tables.rows(25, 1), tables.rows(26, 30)]
    made = tables.copy(*(tables.write(each) for each in rows))
    found = tables.changes.read([made], column_names(tables.stream, EVENT_CHANGES))
    expected = pa.concat_tables(rows)
    assert found.select(tables.names).to_pylist() == expected.to_pylist()
    assert found["_change_ordinal"].to_pylist() == list(range(100, 156))
    added = found.drop_columns([*tables.names, "_change_ordinal"]).to_pylist()
    told = {"_change_type": "insert", "reason": "new", "changed_columns": None, "is_db_update": True}
    assert added == [{**COMMIT, **told, "is_downstream": True}] * 56


@pytest.mark.parametrize("rows_a_page", [4], indirect=True)
@pytest.mark.usefixtures("rows_a_page")
def test_manifests_know_as_much_of_a_copied_file_as_of_any_other(tables: Tables) -> None:
    made = tables.copy(tables.write(tables.rows(0, 25)))
    rows = tables.changes.read([made], column_names(tables.stream, EVENT_CHANGES))
    other = tables.changes.write_at(tables.DAY, rows)
    for bounds, expected in ((made.lower_bounds, (7, 100)), (made.upper_bounds, (7, 124))):
        assert tuple(int(from_bytes(LongType(), each)) for each in (bounds or {}).values()) == expected
    assert (made.lower_bounds, made.upper_bounds) == (other.lower_bounds, other.upper_bounds)
    group = pq.read_metadata(made.file_path.removeprefix("file:")).row_group(0)
    [nulls] = (each for each in map(group.column, range(group.num_columns)) if "changed_columns" in each.path_in_schema)
    assert (nulls.num_values, nulls.statistics.null_count) == (10, 10)
    assert (made.record_count, made.spec_id, made.partition) == (25, other.spec_id, other.partition)
    assert made.file_size_in_bytes == Path(made.file_path.removeprefix("file:")).stat().st_size
    offsets = list(made.split_offsets or ())
    assert len(offsets) == 3
    assert offsets[0] == 4
    assert [*offsets, made.file_size_in_bytes] == sorted({*offsets, made.file_size_in_bytes})


@pytest.mark.parametrize("rows_a_page", [3, 10, 7], indirect=True)
@pytest.mark.usefixtures("rows_a_page")
def test_other_readers_read_a_copied_file(tables: Tables, spark: SparkSession) -> None:
    made = tables.copy(tables.write(tables.rows(0, 25)), tables.write(tables.rows(25, 25)))
    path = made.file_path.removeprefix("file:")
    asked = ("count(*)", "sum(_change_ordinal)", "sum(amount)", "max(event_id)", "sum(_commit_version)")
    expected = (50, sum(range(100, 150)), Decimal("10.00"), "event_id 9 ü", 350)
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {', '.join(asked)} FROM '{path}'").fetchall() == [expected]
    counted = pl.read_parquet(path).select(
        pl.len(), pl.sum("_change_ordinal"), pl.sum("amount"), pl.max("event_id"), pl.sum("_commit_version")
    )
    assert counted.row(0) == expected
    assert tuple(spark.read.parquet(path).selectExpr(*asked).collect()[0]) == expected
    assert pq.ParquetFile(path).metadata.num_row_groups == 6


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, DataFile, int]:
    """A copied file whose row groups have one row, parts of a page, a whole one, and several; and its rows."""
    tables = Tables(tmp_path_factory.mktemp("many"))
    some, page = tables.rows(0, 10), 2**14
    sizes = [1, 2, page - 1, page, page + 1, 2 * page, 3 * page + 77]
    files = [tables.write(some.take(pa.array([n % 10 for n in range(rows)])), 2 * page + 5) for rows in sizes]
    made = tables.copy(*files)
    tables.feed.append(tables.position, [made], 1, 7)
    return tables, made, sum(sizes)


ASKED = (
    "count(*)",
    "sum(_change_ordinal)",
    "count(DISTINCT _change_ordinal)",
    "min(_change_ordinal)",
    "max(_change_ordinal)",
    "sum(_commit_version)",
    "min(_commit_snapshot_id)",
    "count(DISTINCT reason)",
    "max(_change_type)",
    "count(_commit_timestamp)",
    "count(changed_columns)",
    "sum(CASE WHEN is_db_update THEN 1 ELSE 0 END)",
    "count(event_id)",
    "min(event_id)",
)


def _answers(rows: int) -> tuple[Any, ...]:
    last = 100 + rows - 1
    of_ordinals = (rows * (100 + last) // 2, rows, 100, last)
    return rows, *of_ordinals, 7 * rows, COMMIT["_commit_snapshot_id"], 1, "insert", rows, 0, rows, rows, "event_id 0 ü"


def _duckdb(path: str, _: Tables, __: SparkSession) -> tuple[Any, ...]:
    with duckdb.connect() as connection:
        [found] = connection.execute(f"SELECT {', '.join(ASKED)} FROM '{path}'").fetchall()
    return found


def _polars(path: str, _: Tables, __: SparkSession) -> tuple[Any, ...]:
    with pl.SQLContext(file=pl.scan_parquet(path)) as context:
        return context.execute(f"SELECT {', '.join(ASKED)} FROM file", eager=True).row(0)


def _spark(path: str, _: Tables, spark: SparkSession) -> tuple[Any, ...]:
    return tuple(spark.read.parquet(path).selectExpr(*ASKED).collect()[0])


def _iceberg_in_spark(_: str, tables: Tables, spark: SparkSession) -> tuple[Any, ...]:
    rows = session_of(tables.settings, spark).read.table(f"{CATALOG}.{tables.stream.name}.{EVENT_CHANGES}")
    return tuple(rows.selectExpr(*ASKED).collect()[0])


@pytest.mark.parametrize("read", [_duckdb, _polars, _spark, _iceberg_in_spark])
def test_every_reader_reads_what_was_added_to_many_rows(
    read: Callable[[str, Tables, SparkSession], tuple[Any, ...]],
    many: tuple[Tables, DataFile, int],
    spark: SparkSession,
) -> None:
    tables, made, rows = many
    assert read(made.file_path.removeprefix("file:"), tables, spark) == _answers(rows)


def test_each_row_group_of_many_rows_has_its_own_numbers(many: tuple[Tables, DataFile, int]) -> None:
    tables, made, rows = many
    found = tables.changes.read([made], ["_change_ordinal"])["_change_ordinal"]
    assert found.to_pylist() == list(range(100, 100 + rows))
    with pq.ParquetFile(made.file_path.removeprefix("file:")) as opened:
        first = 100
        for number in range(opened.num_row_groups):
            group = opened.metadata.row_group(number)
            [told] = (
                each.statistics
                for each in map(group.column, range(group.num_columns))
                if each.path_in_schema == "_change_ordinal"
            )
            assert (told.min, told.max, told.null_count) == (first, first + group.num_rows - 1, 0)
            read = opened.read_row_group(number, ["_change_ordinal"])["_change_ordinal"]
            assert read.to_pylist() == list(range(first, first + group.num_rows))
            first += group.num_rows
        assert first == 100 + rows


@pytest.mark.parametrize("wrong", ["other_type", "lacks_one", "one_more", "renamed", "no_parquet"])
def test_a_file_that_is_not_as_the_feed_needs_it_is_left_to_be_read(wrong: str, tables: Tables) -> None:
    right = pq.read_table(tables.write(tables.rows(0, 3)).file_path.removeprefix("file:"))
    made: dict[str, Callable[[], pa.Table]] = {
        "other_type": lambda: right.set_column(right.schema.get_field_index("count"), "count", [pa.array([1, 2, 3])]),
        "lacks_one": lambda: right.drop_columns(["page"]),
        "one_more": lambda: right.append_column("more", [pa.array([1, 2, 3])]),
        "renamed": lambda: right.rename_columns(["it" if name == "page" else name for name in right.column_names]),
    }
    file = tables.write(tables.rows(0, 3))
    if wrong == "no_parquet":
        Path(file.file_path.removeprefix("file:")).write_bytes(b"nothing of the kind")
    else:
        pq.write_table(made[wrong](), file.file_path.removeprefix("file:"))
    assert tables.copies.look(file) is None


@pytest.mark.parametrize("numbers", [[1], [0, 2], [0, 1, 2]], ids=["amid others", "around another", "none but those"])
def test_files_that_cannot_be_copied_are_read_and_make_a_file_of_their_own(numbers: list[int], tables: Tables) -> None:
    rows = [tables.rows(first, 10) for first in (0, 10, 20)]
    files = [tables.write(each) for each in rows]
    for number in numbers:
        path = files[number].file_path.removeprefix("file:")
        pq.write_table(pq.read_table(path).drop_columns(["page"]), path)
    made = tables.copies.write(tables.DAY, tables.parts(files))
    assert len(made) == (1 if len(numbers) == 3 else 2)
    found = pl.concat(map(frame_of, (tables.changes.read([each], tables.told) for each in made))).sort(
        "_change_ordinal"
    )
    assert found["_change_ordinal"].to_list() == list(range(100, 130))
    expected = frame_of(pa.concat_tables(rows)).to_dicts()
    for number in numbers:
        for row in expected[10 * number : 10 * number + 10]:
            row["page"] = None
    assert found.select(tables.names).to_dicts() == expected
    told = {"_change_type": "insert", "reason": "new", "changed_columns": None, "is_db_update": True}
    added = found.drop(*tables.names, "_change_ordinal").to_dicts()
    assert added == [{**COMMIT, **told, "is_downstream": True}] * 30
    assert {each.record_count for each in made} == {10 * len(numbers), 30 - 10 * len(numbers)} - {0}
    assert all(each.partition == made[0].partition for each in made)


def test_a_file_of_another_writer_with_dictionaries_and_pages_of_its_own_is_copied(tables: Tables) -> None:
    rows = tables.rows(0, 40)
    file = tables.write(rows)
    path = file.file_path.removeprefix("file:")
    options: dict[str, Any] = {"compression": "gzip", "data_page_size": 64, "write_page_index": True}
    pq.write_table(
        pq.read_table(path), path, row_group_size=40, use_dictionary=["page"], store_decimal_as_integer=True, **options
    )
    made = tables.copy(file)
    assert tables.changes.read([made], tables.names).to_pylist() == rows.to_pylist()
    assert not pq.read_metadata(made.file_path.removeprefix("file:")).row_group(0).column(5).has_column_index


def test_what_lies_beside_the_columns_of_a_file_is_not_pointed_at_in_a_copy() -> None:
    """Indexes and Bloom filters stay behind: a reader that looked for them would find something else there."""
    data_at, index_at, dictionary_at, bloom_at, bloom_bytes = 9, 10, 11, 14, 15
    chunk = {data_at: (I64, 100), dictionary_at: (I64, 90)}
    beside = {index_at: (I64, 500), bloom_at: (I64, 700), bloom_bytes: (I64, 64)}
    moved = value(_moved(chunk | beside, 10), 3)
    assert moved == {data_at: (I64, 110), dictionary_at: (I64, 100)}
