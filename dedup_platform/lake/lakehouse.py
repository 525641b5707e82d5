"""The tables of all streams: created, given the columns that stream files name, and read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import polars as pl
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, Transform
from pyspark.sql import Column, DataFrame, SparkSession
from sqlalchemy.exc import IntegrityError

from dedup_platform import schemas, tables
from dedup_platform.comments import TABLE_COMMENTS
from dedup_platform.lake import definitions
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.comments import COMMENT, add_missing_comments
from dedup_platform.lake.conditions import within
from dedup_platform.lake.definitions import Known
from dedup_platform.lake.publishing import Publisher, no_rows, retry_commit
from dedup_platform.lake.schema import (
    check_buckets,
    check_numbering,
    check_partitioning,
    check_told,
    missing_columns,
    shows_every_column,
)
from dedup_platform.lake.snapshots import (
    ancestry,
    bucket_count,
    changed_cells,
    files_by_cell,
    head,
    paired_duplicates,
    rejected_files,
    total_rows,
)
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.planning.cells import Cell
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream
from dedup_platform.stream.deciding import deciding


class Lakehouse(Publisher):
    """The tables of all streams of a deployment. Spark starts when rows are first read or written."""

    def __init__(self, catalog: Catalog, spark: Callable[[], SparkSession]) -> None:
        super().__init__(catalog)
        self.spark = spark

    # Creating and changing tables

    def create(self, stream: Stream, buckets: int) -> None:
        """Create what is missing of the stream's namespace and tables, each with an empty first snapshot."""
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            self.catalog.iceberg.create_namespace(stream.name)
        for table in tables.all_of(stream):
            if self.catalog.load(stream.name, table) is None:
                # Another process may have created the first ones, and may have chosen otherwise.
                raw = self.catalog.load(stream.name, tables.RAW_EVENTS)
                self._create_table(stream, table, bucket_count(raw) if raw else buckets)

    def evolve(self, stream: Stream) -> None:
        """Add the columns that the stream file names and the tables lack; refuse what would change existing ones."""
        found = self.check(stream)
        self._add_columns_to(stream, found)
        if (raw := found.get(tables.RAW_EVENTS)) and _remembers(raw, stream) != definitions.known_from(raw.properties):
            self._remember(stream)

    def add_columns(self, stream: Stream) -> None:
        """The same whatever number of buckets the tables have, or are being given."""
        self._check_feeds(stream)
        self._add_columns_to(stream, self._loaded(stream))

    def _add_columns_to(self, stream: Stream, tables_found: Mapping[str, Table]) -> None:
        for name, found in tables_found.items():
            table = self._add_columns(stream, name) if missing_columns(stream, name, found) else found
            add_missing_comments(self.catalog, stream, name, table)
            # Reads are pinned to snapshots, and a snapshot shows the columns of its own time. Its own step, for
            # whoever died between the two.
            if not shows_every_column(table):
                self.publish(self.stage_nothing(stream, name, head(table).snapshot_id, {}))

    def known_definitions(self, stream: Stream) -> list[Known]:
        """The stream files by which records were taken in, the newest last; none if that is not known."""
        raw = self.catalog.load(stream.name, tables.RAW_EVENTS)
        return definitions.known_from(raw.properties) if raw else []

    @retry_commit
    def forget_definitions(self, stream: Stream) -> None:
        """Remember of all records that they were taken in by the stream file as it is now."""
        self._set_definitions(self._load(stream.name, tables.RAW_EVENTS), [Known(deciding(stream), 0)])

    @retry_commit
    def _remember(self, stream: Stream) -> None:
        raw = self._load(stream.name, tables.RAW_EVENTS)
        self._set_definitions(raw, _remembers(raw, stream))

    def _set_definitions(self, raw: Table, known: list[Known]) -> None:
        if known != definitions.known_from(raw.properties):
            with raw.transaction() as transaction:
                transaction.set_properties({definitions.PROPERTY: definitions.text_of(known)})

    def check(self, stream: Stream) -> dict[str, Table]:
        """The tables there are; raises IncompatibleChangeError if they cannot follow the stream file."""
        found = self._loaded(stream)
        check_buckets(stream, found.values())
        if raw := found.get(tables.RAW_EVENTS):
            check_numbering(stream, raw)
        for name, table in found.items():
            check_partitioning(stream, table)
            missing_columns(stream, name, table)
        self._check_feeds(stream)
        return found

    def _check_feeds(self, stream: Stream) -> None:
        for feed in tables.feeds_of(stream).values():
            # Of most streams no column has a name that a feed wants, and none is loaded.
            is_any_taken = any(name != ours for name, ours in tables.told_names(stream, feed).items())
            if is_any_taken and (table := self.catalog.load(stream.name, feed)):
                check_told(stream, feed, table)

    def _loaded(self, stream: Stream) -> dict[str, Table]:
        return {name: table for name in tables.all_of(stream) if (table := self.catalog.load(stream.name, name))}

    def _create_table(self, stream: Stream, table: str, buckets: int) -> None:
        schema = schemas.table_schema(stream, table)
        time_field = schema.find_field(tables.PARTITION_TIME[table]).field_id
        grain: Transform[Any, Any] = DayTransform() if stream.partitions.granularity == "day" else HourTransform()
        entity = schema.find_field("entity_id").field_id
        spec = PartitionSpec(
            PartitionField(time_field, 1000, grain, f"{tables.PARTITION_TIME[table]}_{stream.partitions.granularity}"),
            PartitionField(entity, 1001, BucketTransform(buckets), "entity_id_bucket"),
        )
        measured = {f"write.metadata.metrics.column.{name}": "full" for name in schemas.MEASURED[table]}
        measured |= {f"write.metadata.metrics.column.{name}": "counts" for name in schemas.WEIGHED.get(table, ())}
        properties = schemas.PROPERTIES | measured | {COMMENT: TABLE_COMMENTS[table]}
        place = (stream.name, table)
        first = {definitions.PROPERTY: definitions.text_of([Known(deciding(stream), 0)])}
        properties |= first if table == tables.RAW_EVENTS else {}
        with suppress(TableAlreadyExistsError):
            self.catalog.iceberg.create_table(place, schema, partition_spec=spec, properties=properties)
        # Its own step, for whoever died between the two: every compare-and-set needs a snapshot to start from.
        self._add_first_snapshot(*place)

    @retry_commit
    def _add_first_snapshot(self, stream: str, table: str) -> None:
        if self.catalog.load(stream, table) is None:
            created = self._load(stream, table)
            created.append(no_rows(created))

    @retry_commit
    def _add_columns(self, stream: Stream, name: str) -> Table:
        table = self._load(stream.name, name)
        check_partitioning(stream, table)
        if missing := missing_columns(stream, name, table):
            with table.update_schema() as update:
                for path, column in missing:
                    update.add_column(path, schemas.iceberg_schema((column,)).fields[0].field_type)
        return table

    # Reading

    def read(self, stream: Stream, table: str, snapshot_id: int, cells: Iterable[Cell] | None = None) -> DataFrame:
        """The rows of one snapshot; with `cells`, only theirs."""
        reader = self.spark().read.option("versionAsOf", snapshot_id)
        rows = reader.table(f"{CATALOG}.{stream.name}.{table}")
        return rows if cells is None else rows.where(self.within(stream, table, cells))

    def batches(self, stream: Stream, table: str, snapshot_id: int, columns: Sequence[str]) -> Iterator[pl.DataFrame]:
        """Some columns of all rows of one snapshot, about 8 MB at a time, in no order. No Spark."""
        files = self.table_files(stream, table)
        for task in self._load(stream.name, table).scan(snapshot_id=snapshot_id).plan_files():
            yield from map(frame_of, files.batches(task.file, columns))

    def table_files(self, stream: Stream, table: str) -> TableFiles:
        """What Spark's workers need to read and write this table's files themselves.

        Raises IncompatibleChangeError if another process, with a newer stream file, gave the table columns meanwhile.
        """
        loaded = self._load(stream.name, table)
        missing_columns(stream, table, loaded)
        return TableFiles.of(loaded, self.catalog.file_properties(loaded))

    def files(self, stream: Stream, table: str, snapshot_id: int, cells: Iterable[Cell]) -> dict[Cell, list[DataFile]]:
        """The data files of one snapshot in each of these cells; cells without any are left out."""
        wanted = frozenset(cells)
        if not wanted:
            return {}
        return files_by_cell(self._load(stream.name, table), snapshot_id, wanted)

    def rejected_files(self, stream: Stream, snapshot_id: int) -> list[DataFile]:
        """The data files of the rejected records of one snapshot of `raw_events`; they are in no cell."""
        return rejected_files(self._load(stream.name, tables.RAW_EVENTS), snapshot_id)

    def current(self, stream: Stream, table: str) -> int:
        """The snapshot that readers should see: main's, but of the duplicates the one that the events' commit names."""
        if table != tables.DUPLICATE_EVENTS:
            return head(self._load(stream.name, table)).snapshot_id
        # Before the first events are published there are no duplicates either.
        pair = self._paired_duplicates(stream)
        return pair or list(ancestry(self._load(stream.name, table)))[-1].snapshot_id

    def duplicates_of(self, stream: Stream, events_snapshot: int) -> int | None:
        """The snapshot of the duplicates that belongs to one of the events; None if no duplicates were made for it."""
        return paired_duplicates(self._load(stream.name, tables.DEDUPLICATED_EVENTS), events_snapshot)

    def unpaired_cells(self, stream: Stream) -> frozenset[Cell]:
        """Cells of the duplicates that their writer published and then died before publishing the events.

        The next events name the duplicates as they are then, so they must have been built for these cells too.
        """
        return changed_cells(self._load(stream.name, tables.DUPLICATE_EVENTS), self._paired_duplicates(stream))

    def buckets(self, stream: Stream) -> int:
        """N of the stream's existing tables. Raises IncompatibleChangeError while a change of it is not finished."""
        found = [self._load(stream.name, table) for table in tables.all_of(stream)]
        check_buckets(stream, found)
        return bucket_count(found[0])

    def within(self, stream: Stream, table: str, cells: Iterable[Cell]) -> Column:
        """The condition that a row lies in these cells, in a form that Iceberg answers from partition values alone."""
        return within(stream, table, cells, self.buckets(stream))

    def _paired_duplicates(self, stream: Stream) -> int | None:
        return paired_duplicates(self._load(stream.name, tables.DEDUPLICATED_EVENTS))


def _remembers(raw: Table, stream: Stream) -> list[Known]:
    """What the table should remember once this stream file holds."""
    return definitions.remembered(definitions.known_from(raw.properties), deciding(stream), total_rows(raw))
