"""The only package that writes Iceberg: it creates tables, stages rows on a branch, and publishes by compare-and-set.

Every write goes the same way. The rows are written to a branch of their own that starts at `base`, the snapshot of main
that the writer read. Whoever staged them can look at what they are. Publishing then moves main from `base` to the
staged snapshot, and only from `base`: if anybody else committed in between, nothing is published and ConflictError says
so. A writer that was killed, or whose server finishes after it, leaves a branch that nobody reads.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import polars as pl
import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.transforms import BucketTransform, DayTransform, HourTransform, Transform
from pyspark.sql import Column, DataFrame, SparkSession
from sqlalchemy.exc import IntegrityError
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_random_exponential

from dedup_platform import tables
from dedup_platform.errors import ConflictError, FilesReplacedError
from dedup_platform.lake.catalog import (
    SUMMARY,
    Catalog,
    added_files,
    ancestry,
    bucket_count,
    changed_cells,
    changes,
    files_by_cell,
    head,
    paired_duplicates,
    rejected_files,
)
from dedup_platform.lake.conditions import within
from dedup_platform.lake.overwrite import Overwrite
from dedup_platform.lake.schema import check_buckets, check_numbering, check_partitioning, missing_columns
from dedup_platform.lake.staged import Staged
from dedup_platform.lake.table_files import TableFiles, frame_of
from dedup_platform.planning.cells import EPOCH, Cell
from dedup_platform.settings import CATALOG
from dedup_platform.stream import Stream


def _is_overtaken(error: BaseException) -> bool:
    """Whether another writer of the same table got in between; only if main itself moved is there a conflict."""
    if isinstance(error, CommitFailedException):
        return not isinstance(error, _MainMoved)
    # PyIceberg notices that a sequence number is taken before it compares references.
    return isinstance(error, ValueError) and "sequence number" in str(error)


patiently = retry(
    retry=retry_if_exception(_is_overtaken),
    stop=stop_after_attempt(12),
    wait=wait_random_exponential(0.05, 2),
    reraise=True,
)
"""Wraps a commit that does not mind what others commit meanwhile."""

STAGING = "staged_"
"""Prefix of the branches that rows are written to before they are published."""


class _MainMoved(CommitFailedException):
    """Main is not where the writer left it, or the table is partitioned otherwise than the files that were written."""


class Lakehouse:
    """The tables of all streams of a deployment. Spark starts when rows are first read or written."""

    def __init__(self, catalog: Catalog, spark: Callable[[], SparkSession]) -> None:
        self.catalog = catalog
        self.spark = spark

    # Creating and changing tables

    def create(self, stream: Stream, buckets: int) -> None:
        """Create what is missing of the stream's namespace and tables, each with an empty first snapshot."""
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            self.catalog.iceberg.create_namespace(stream.name)
        for table in tables.ALL:
            if self.catalog.load(stream.name, table) is None:
                # Another process may have created the first ones, and may have chosen otherwise.
                raw = self.catalog.load(stream.name, tables.RAW_EVENTS)
                self._create_table(stream, table, bucket_count(raw) if raw else buckets)

    def evolve(self, stream: Stream) -> None:
        """Add the columns that the stream file names and the tables lack; refuse what would change existing ones."""
        self._add_columns_to(stream, self.check(stream))

    def add_columns(self, stream: Stream) -> None:
        """The same whatever number of buckets the tables have, or are being given."""
        self._add_columns_to(stream, self._loaded(stream))

    def _add_columns_to(self, stream: Stream, tables_found: Mapping[str, Table]) -> None:
        for name, found in tables_found.items():
            table = self._add_columns(stream, name) if missing_columns(stream, name, found) else found
            # Reads are pinned to snapshots, and a snapshot shows the columns of its own time. Its own step, for
            # whoever died between the two.
            if head(table).schema_id != table.metadata.current_schema_id:
                self.publish(self.stage_nothing(stream, name, head(table).snapshot_id, {}))

    def check(self, stream: Stream) -> dict[str, Table]:
        """The tables there are; raises IncompatibleChangeError if they cannot follow the stream file."""
        found = self._loaded(stream)
        check_buckets(stream, found.values())
        if raw := found.get(tables.RAW_EVENTS):
            check_numbering(stream, raw)
        for name, table in found.items():
            check_partitioning(stream, table)
            missing_columns(stream, name, table)
        return found

    def _loaded(self, stream: Stream) -> dict[str, Table]:
        return {name: table for name in tables.ALL if (table := self.catalog.load(stream.name, name))}

    def _create_table(self, stream: Stream, table: str, buckets: int) -> None:
        schema = tables.iceberg_schema(tables.columns(stream, table))
        time_field = schema.find_field(tables.PARTITION_TIME[table]).field_id
        grain: Transform[Any, Any] = DayTransform() if stream.partitions.granularity == "day" else HourTransform()
        entity = schema.find_field("entity_id").field_id
        spec = PartitionSpec(
            PartitionField(time_field, 1000, grain, f"{tables.PARTITION_TIME[table]}_{stream.partitions.granularity}"),
            PartitionField(entity, 1001, BucketTransform(buckets), "entity_id_bucket"),
        )
        measured = {f"write.metadata.metrics.column.{name}": "full" for name in tables.MEASURED[table]}
        measured |= {f"write.metadata.metrics.column.{name}": "counts" for name in tables.WEIGHED.get(table, ())}
        place = (stream.name, table)
        with suppress(TableAlreadyExistsError):
            self.catalog.iceberg.create_table(
                place, schema, partition_spec=spec, properties=tables.PROPERTIES | measured
            )
        # Its own step, for whoever died between the two: every compare-and-set needs a snapshot to start from.
        self._add_first_snapshot(*place)

    @patiently
    def _add_first_snapshot(self, stream: str, table: str) -> None:
        if self.catalog.load(stream, table) is None:
            created = self._load(stream, table)
            created.append(_no_rows(created))

    @patiently
    def _add_columns(self, stream: Stream, name: str) -> Table:
        table = self._load(stream.name, name)
        check_partitioning(stream, table)
        if missing := missing_columns(stream, name, table):
            with table.update_schema() as update:
                for column in missing:
                    update.add_column(column.name, tables.iceberg_schema((column,)).fields[0].field_type)
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
        found = [self._load(stream.name, table) for table in tables.ALL]
        check_buckets(stream, found)
        return bucket_count(found[0])

    def within(self, stream: Stream, table: str, cells: Iterable[Cell]) -> Column:
        """The condition that a row lies in these cells, in a form that Iceberg answers from partition values alone."""
        return within(stream, table, cells, self.buckets(stream))

    def _paired_duplicates(self, stream: Stream) -> int | None:
        return paired_duplicates(self._load(stream.name, tables.DEDUPLICATED_EVENTS))

    # Staging and publishing

    def stage_append(
        self, stream: Stream, table: str, base: int, added: Iterable[DataFile], properties: Mapping[str, str]
    ) -> Staged:
        """Put files that were written for it beside those of `base`."""
        return self.stage_files(stream, table, base, (), added, properties, Operation.APPEND)

    def stage_files(
        self,
        stream: Stream,
        table: str,
        base: int,
        removed: Iterable[DataFile],
        added: Iterable[DataFile],
        properties: Mapping[str, str],
        operation: Operation = Operation.OVERWRITE,
    ) -> Staged:
        """Put files that were written for it in place of others; FilesReplacedError if `base` does not hold these."""
        branch, new = self._branch(stream, table, base), list(added)
        try:
            self.replace_files(stream, table, branch, list(removed), new, properties, operation)
        except ValidationException as error:
            raise FilesReplacedError(
                f"{stream.name}.{table}: another writer replaced its files first; nothing was written. Run again."
            ) from error
        return replace(self._staged(stream, table, branch, base), written_in=frozenset(file.spec_id for file in new))

    @patiently
    def replace_files(
        self,
        stream: Stream,
        table: str,
        branch: str,
        removed: list[DataFile],
        added: list[DataFile],
        properties: Mapping[str, str],
        operation: Operation = Operation.OVERWRITE,
    ) -> None:
        """Put files in place of others in one commit to a branch, wherever that is by now."""
        with (
            self._load(stream.name, table).transaction() as transaction,
            Overwrite(transaction, branch, _prefixed(properties), operation) as overwrite,
        ):
            for file in removed:
                overwrite.delete_data_file(file)
            for file in added:
                overwrite.append_data_file(file)

    def rebase(self, stream: Stream, staged: Staged, base: int, properties: Mapping[str, str]) -> Staged:
        """The files of an append that could not be published, staged once more on top of another snapshot of main.

        Raises ConflictError if the table has another number of buckets by now: these files are of the old ones.
        """
        table = self._load(stream.name, staged.table)
        snapshot = table.snapshot_by_id(staged.snapshot_id)
        assert snapshot is not None, f"{staged.table}: the snapshot {staged.snapshot_id} is gone"
        added = list(added_files(table, snapshot))
        if any(file.spec_id != table.metadata.default_spec_id for file in added):
            raise ConflictError(
                f"{stream.name}.{staged.table}: its number of buckets changed while files were written; nothing was "
                "published. Run again."
            )
        return self.stage_append(stream, staged.table, base, added, properties)

    def stage_nothing(self, stream: Stream, table: str, base: int, properties: Mapping[str, str]) -> Staged:
        """An empty snapshot whose summary alone says something."""
        branch = self._branch(stream, table, base)
        self._append_nothing(stream, table, branch, properties)
        return self._staged(stream, table, branch, base)

    def publish(self, staged: Staged) -> None:
        """Make a staged snapshot main's. ConflictError if main is not at its base, or has other buckets by now."""
        try:
            self._move_main(staged)
        except CommitFailedException as error:
            self.discard(staged)
            raise ConflictError(
                f"{staged.stream}.{staged.table}: another writer committed first; nothing was written. Run again."
            ) from error

    def discard(self, staged: Staged) -> None:
        """Forget a staged snapshot; its files go with the next removal of orphans."""
        with suppress(CommitFailedException, ValueError):
            self._load(staged.stream, staged.table).manage_snapshots().remove_branch(staged.branch).commit()

    def discard_abandoned(self, stream: Stream, older_than: timedelta = timedelta(days=1)) -> None:
        """Forget the branches of writers that must have died, because they started that long ago.

        Or that long ahead, by a clock that was wrong: should the writer be alive, it loses a race.
        """
        now = datetime.now(UTC)
        for name in tables.ALL:
            table = self.catalog.load(stream.name, name)
            for branch in list(table.refs()) if table else ():
                if table and branch.startswith(STAGING) and abs(now - _started(branch)) > older_than:
                    with suppress(CommitFailedException, ValueError):
                        table.manage_snapshots().remove_branch(branch).commit()
                        table = self._load(stream.name, name)

    @patiently
    def _append_nothing(self, stream: Stream, table: str, branch: str, properties: Mapping[str, str]) -> None:
        target = self._load(stream.name, table)
        target.append(_no_rows(target), snapshot_properties=_prefixed(properties), branch=branch)

    @patiently
    def _branch(self, stream: Stream, table: str, base: int) -> str:
        name = f"{STAGING}{time.time_ns() // 1000}_{uuid4().hex[:8]}"
        self._load(stream.name, table).manage_snapshots().create_branch(base, name).commit()
        return name

    def _staged(self, stream: Stream, table: str, branch: str, base: int) -> Staged:
        written = self._load(stream.name, table)
        snapshot = written.snapshot_by_name(branch)
        assert snapshot is not None, f"{table}: the branch {branch} is gone"
        assert snapshot.parent_snapshot_id == base, f"{table}: a write to the branch {branch} made no snapshot"
        return Staged(stream.name, table, branch, base, snapshot.snapshot_id, tuple(changes(written, snapshot)))

    @patiently
    def _move_main(self, staged: Staged) -> None:
        table = self._load(staged.stream, staged.table)
        now_at = head(table).snapshot_id
        if now_at == staged.snapshot_id:
            return  # an earlier try succeeded although its answer was lost
        if now_at != staged.base:
            raise _MainMoved(f"main is at {now_at}, not at {staged.base}")
        if not staged.written_in <= {table.spec().spec_id}:
            raise _MainMoved(f"the table has {bucket_count(table)} buckets, the files were written for another number")
        self.catalog.iceberg.commit_table(
            table,
            (
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId(ref="main", snapshot_id=staged.base),
                AssertRefSnapshotId(ref=staged.branch, snapshot_id=staged.snapshot_id),
                *(_partitioned_by(spec_id) for spec_id in staged.written_in),
            ),
            (
                _main_at(staged.snapshot_id),
                RemoveSnapshotRefUpdate(ref_name=staged.branch),
                *_layout(staged),
            ),
        )

    def _load(self, stream: str, table: str) -> Table:
        return self.catalog.load_table(stream, table)


def _main_at(snapshot_id: int) -> SetSnapshotRefUpdate:
    reference = {"ref-name": "main", "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    return SetSnapshotRefUpdate.model_validate(reference)


def _partitioned_by(spec_id: int) -> AssertDefaultSpecId:
    return AssertDefaultSpecId.model_validate({"default-spec-id": spec_id})


def _layout(staged: Staged) -> Iterator[SetDefaultSpecUpdate | SetPropertiesUpdate]:
    if staged.spec_id is not None:
        yield SetDefaultSpecUpdate.model_validate({"spec-id": staged.spec_id})
    if staged.table_properties:
        yield SetPropertiesUpdate(updates=dict(staged.table_properties))


def _prefixed(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"{SUMMARY}{name}": value for name, value in properties.items()}


def _no_rows(table: Table) -> pa.Table:
    return schema_to_pyarrow(table.schema(), include_field_ids=False).empty_table()


def _started(branch: str) -> datetime:
    return EPOCH + timedelta(microseconds=int(branch.split("_")[1]))
