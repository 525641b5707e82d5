"""Another number of buckets for a table that exists: its files are written anew beside the old ones, then swapped.

What is written stays on a branch of its own until all of it is there, so a change of layout can be killed and goes on
where it was. Nobody reads that branch. One commit then puts the new files in the place of the old ones (REPLACE: the
same rows) and makes the new layout the table's own; it requires main where the files were read.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertLastAssignedPartitionId,
    AssertTableUUID,
)
from pyiceberg.transforms import BucketTransform

from dedup_platform.errors import ConflictError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.publishing import retry_commit
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import files_by_cell, head, summary
from dedup_platform.lake.staged import Staged
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.planning.cells import Cell
from dedup_platform.stream import Stream

_COPIED_FROM: Final = "copied-from"
"""Property of a commit on the branch: the snapshot of main whose partitions it holds in the new layout."""

Files = dict[Cell, list[DataFile]]


class Layout:
    """A table on its way to `buckets` buckets a partition."""

    def __init__(self, lake: Lakehouse, stream: Stream, table: str, buckets: int) -> None:
        self.lake = lake
        self.stream = stream
        self.table = table
        self.buckets = buckets
        self.spec_id = _add_spec(lake, stream, table, buckets)
        self._branch = f"buckets_{buckets}"

    @property
    def files(self) -> TableFiles:
        """To read the table's files, and to write them in the new layout."""
        of = self.lake.table_files(self.stream, self.table)
        return TableFiles(of.metadata.model_copy(update={"default_spec_id": self.spec_id}), of.properties)

    def now(self) -> tuple[int, Files]:
        """Main's newest snapshot and its files by cell; files of rejected records are in none, and stay as they are.

        Raises ConflictError if somebody else gave the table this layout by now.
        """
        loaded = self._load()
        if loaded.spec().spec_id == self.spec_id:
            raise ConflictError(
                f"{self.stream.name}.{self.table} has {self.buckets} buckets by now: another process changed them. "
                "Run again."
            )
        snapshot = head(loaded).snapshot_id
        return snapshot, files_by_cell(loaded, snapshot)

    def copied(self) -> tuple[Files, Files]:
        """What is in the new layout already: main's files that were copied, and the copies. None at the beginning.

        What was begun on a snapshot that is gone is forgotten.
        """
        loaded = self._load()
        at = loaded.snapshot_by_name(self._branch)
        known = {snapshot.snapshot_id for snapshot in loaded.snapshots()}
        source = int(summary(at, _COPIED_FROM) or 0) if at else 0
        if at is None or source not in known:
            self.forget()
            return {}, {}
        main = files_by_cell(loaded, source)
        # After a rollback, main itself may hold files of this layout.
        own = {file.file_path for files in main.values() for file in files}
        copies = {
            cell: new
            for cell, files in files_by_cell(loaded, at.snapshot_id).items()
            if (new := [file for file in files if file.spec_id == self.spec_id and file.file_path not in own])
        }
        partitions = {cell.partition for cell in copies}
        sources = {cell: files for cell, files in main.items() if cell.partition in partitions}
        return sources, copies

    def keep(self, source: int, outdated: list[DataFile], copies: list[DataFile]) -> None:
        """Keep copies of more partitions of the snapshot `source`; `outdated` copies are taken away."""
        self._begin(source)
        properties: SummaryValues = {_COPIED_FROM: str(source)}
        self.lake.replace_files(self.stream, self.table, self._branch, outdated, copies, properties)

    def stage(
        self, base: int, old: Iterable[DataFile], copies: Iterable[DataFile], properties: SummaryValues
    ) -> Staged:
        """Stage the swap of the files of `base` for their copies; published, it gives the table the new layout."""
        staged = self.lake.stage_files(self.stream, self.table, base, old, copies, properties, Operation.REPLACE)
        return replace(staged, spec_id=self.spec_id, written_in=frozenset())

    def forget(self) -> None:
        """Remove the branch."""
        loaded = self._load()
        if self._branch in loaded.refs():
            with suppress(CommitFailedException, ValueError):
                loaded.manage_snapshots().remove_branch(self._branch).commit()

    @retry_commit
    def _begin(self, source: int) -> None:
        loaded = self._load()
        if self._branch not in loaded.refs():
            loaded.manage_snapshots().create_branch(source, self._branch).commit()

    def _load(self) -> Table:
        return self.lake.catalog.load_table(self.stream.name, self.table)


@retry_commit
def _add_spec(lake: Lakehouse, stream: Stream, name: str, buckets: int) -> int:
    """The id of the partitioning by `buckets` buckets, which is added to the table if it has never had it."""
    table = lake.catalog.load_table(stream.name, name)
    for spec in table.metadata.partition_specs:
        if any(field.transform == BucketTransform(buckets) for field in spec.fields):
            return spec.spec_id
    by_time, by_entity = table.spec().fields
    last = table.metadata.last_partition_id or 0
    fields = (
        by_time,
        # A name of its own: where all partitionings of a table are shown side by side, each name may stand once.
        PartitionField(by_entity.source_id, last + 1, BucketTransform(buckets), f"entity_id_bucket_{buckets}"),
    )
    spec_id = max(spec.spec_id for spec in table.metadata.partition_specs) + 1
    lake.catalog.iceberg.commit_table(
        table,
        (
            AssertTableUUID(uuid=table.metadata.table_uuid),
            AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": last}),
        ),
        (AddPartitionSpecUpdate(spec=PartitionSpec(*fields, spec_id=spec_id)),),
    )
    return spec_id
