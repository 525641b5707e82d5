"""Stages rows on a branch, and publishes them by compare-and-set.

Every write goes the same way. The rows are written to a branch of their own that starts at `base`, the snapshot of main
that the writer read. Whoever staged them can look at what they are. Publishing then moves main from `base` to the
staged snapshot, and only from `base`: if anybody else committed in between, nothing is published and ConflictError says
so. A writer that was killed, or whose server finishes after it, leaves a branch that nobody reads.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
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
from tenacity import retry_if_exception

from dedup_platform import tables
from dedup_platform.errors import ConflictError, FilesReplacedError, OutdatedTokenError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.fencing import bar, check_token
from dedup_platform.lake.overwrite import Overwrite
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import (
    SUMMARY,
    added_files,
    bucket_count,
    changes,
    head,
    summary,
)
from dedup_platform.lake.staged import STAGING, Staged
from dedup_platform.planning.moments import EPOCH
from dedup_platform.retries import retry_commits
from dedup_platform.stream import Stream


def _is_overtaken(error: BaseException) -> bool:
    """Whether another writer of the same table got in between; only if main itself moved is there a conflict."""
    if isinstance(error, CommitFailedException):
        return not isinstance(error, _MainMoved)
    # PyIceberg notices that a sequence number is taken before it compares references.
    return isinstance(error, ValueError) and "sequence number" in str(error)


retry_commit = retry_commits(retry=retry_if_exception(_is_overtaken))
"""Wraps a commit that does not mind what others commit meanwhile."""


class _MainMoved(CommitFailedException):
    """Main is not where the writer left it, or the table is partitioned otherwise than the files that were written."""


class Publisher:
    """Writes to the tables of all streams of a deployment."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def stage_append(
        self, stream: Stream, table: str, base: int, added: Iterable[DataFile], properties: SummaryValues
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
        properties: SummaryValues,
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

    @retry_commit
    def replace_files(
        self,
        stream: Stream,
        table: str,
        branch: str,
        removed: list[DataFile],
        added: list[DataFile],
        properties: SummaryValues,
        operation: Operation = Operation.OVERWRITE,
    ) -> None:
        """Put files in place of others in one commit to a branch, wherever that is by now."""
        with (
            self._load(stream.name, table).transaction() as transaction,
            Overwrite(transaction, branch, prefixed(properties), operation) as overwrite,
        ):
            for file in removed:
                overwrite.delete_data_file(file)
            for file in added:
                overwrite.append_data_file(file)

    def rebase(self, stream: Stream, staged: Staged, base: int, properties: SummaryValues) -> Staged:
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

    def stage_nothing(self, stream: Stream, table: str, base: int, properties: SummaryValues) -> Staged:
        """An empty snapshot whose summary alone says something."""
        branch = self._branch(stream, table, base)
        self._append_nothing(stream, table, branch, properties)
        return self._staged(stream, table, branch, base)

    def publish(self, staged: Staged) -> None:
        """Make a staged snapshot main's. ConflictError if main is not at its base, or has other buckets by now.

        Raises OutdatedTokenError if the table refuses its token.
        """
        try:
            self._move_main(staged)
        except OutdatedTokenError:
            self.discard(staged)
            raise
        except CommitFailedException as error:
            self.discard(staged)
            raise ConflictError(
                f"{staged.stream}.{staged.table}: another writer committed first; nothing was written. Run again."
            ) from error

    def bar(self, stream: Stream, table: str, token: int) -> None:
        """Have a derived table, and what is written with it, refuse whatever has a smaller token: `fencing.bar`."""
        beside = (tables.DUPLICATE_EVENTS,) if table == tables.DEDUPLICATED_EVENTS else ()
        for name in (table, *beside):
            bar(self.catalog, stream.name, name, token)

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

    @retry_commit
    def _append_nothing(self, stream: Stream, table: str, branch: str, properties: SummaryValues) -> None:
        target = self._load(stream.name, table)
        target.append(no_rows(target), snapshot_properties=prefixed(properties), branch=branch)

    @retry_commit
    def _branch(self, stream: Stream, table: str, base: int) -> str:
        name = f"{STAGING}{time.time_ns() // 1000}_{uuid4().hex[:8]}"
        self._load(stream.name, table).manage_snapshots().create_branch(base, name).commit()
        return name

    def _staged(self, stream: Stream, table: str, branch: str, base: int) -> Staged:
        written = self._load(stream.name, table)
        snapshot = written.snapshot_by_name(branch)
        if snapshot is None:
            # Whoever took over other work on the table takes away all that is staged under smaller tokens.
            raise ConflictError(f"{stream.name}.{table}: what was staged was taken away by another writer. Run again.")
        assert snapshot.parent_snapshot_id == base, f"{table}: a write to the branch {branch} made no snapshot"
        told = summary(snapshot, "token")
        return Staged(
            stream.name,
            table,
            branch,
            base,
            snapshot.snapshot_id,
            tuple(changes(written, snapshot)),
            token=int(told) if told else None,
        )

    @retry_commit
    def _move_main(self, staged: Staged) -> None:
        table = self._load(staged.stream, staged.table)
        now_at = head(table).snapshot_id
        if now_at == staged.snapshot_id:
            return  # an earlier try succeeded although its answer was lost
        check_token(table, staged)
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


def prefixed(properties: SummaryValues) -> dict[str, str]:
    """The platform's own properties as they stand in a snapshot's summary."""
    return {f"{SUMMARY}{name}": value for name, value in properties.items()}


def no_rows(table: Table) -> pa.Table:
    return schema_to_pyarrow(table.schema(), include_field_ids=False).empty_table()


def _started(branch: str) -> datetime:
    return EPOCH + timedelta(microseconds=int(branch.split("_")[1]))
