"""PyIceberg's overwrite with small manifests, so that a commit costs what it changes and not what the table holds."""

from collections.abc import Iterator, Sequence
from itertools import islice

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from dedup_platform.lake.snapshots import cell_of

MOST_ENTRIES = 256
"""Entries of a manifest of new files. A later commit reads and rewrites whole manifests of the cells it replaces."""
MOST_MANIFESTS = 100
"""From so many on, small manifests are merged; a commit writes a line for each into its list."""
MERGED_BYTES = 256 * 1024
"""Merged manifests are about so large: a thousand entries."""


class Overwrite(_OverwriteFiles):
    """Replaces data files on a branch in one snapshot. PyIceberg's own writes all new entries into one manifest."""

    def __init__(
        self,
        transaction: Transaction,
        branch: str,
        properties: dict[str, str],
        operation: Operation = Operation.OVERWRITE,
    ) -> None:
        io = transaction._table.io
        super().__init__(Operation.OVERWRITE, transaction, io, branch=branch, snapshot_properties=properties)
        self._called = operation

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # PyIceberg counts for overwrites only; a REPLACE is one that changes no row.
        counted = super()._summary(snapshot_properties)
        return Summary(self._called, **counted.additional_properties)

    def _manifests(self) -> list[ManifestFile]:
        added = self._added_data_files
        # PyIceberg's part is what is taken away and what stays.
        self._added_data_files = []
        try:
            others = super()._manifests()
        finally:
            self._added_data_files = added
        # In the order of cells, so that each manifest holds few partitions and a later commit passes over the others.
        in_order = sorted(added, key=_place)
        by_spec = [[file for file in in_order if file.spec_id == spec] for spec in {file.spec_id for file in added}]
        parts = [part for files in by_spec for part in _batches(files, MOST_ENTRIES)]
        # PyIceberg keeps manifests of nothing but files that earlier commits took away. To merge some of them fails.
        manifests = [*map(self._write_manifest, parts), *filter(self._tells_anything, others)]
        merge = _ManifestMergeManager(MERGED_BYTES, MOST_MANIFESTS, True, self)
        return merge.merge_manifests(manifests)

    def _tells_anything(self, manifest: ManifestFile) -> bool:
        """Whether it names files that are there, or that this commit takes away."""
        is_live = manifest.has_added_files() or manifest.has_existing_files()
        return is_live or manifest.added_snapshot_id == self._snapshot_id

    def _write_manifest(self, files: Sequence[DataFile]) -> ManifestFile:
        with self.new_manifest_writer(self.spec(files[0].spec_id)) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self._snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()


class CompareAndSet(Overwrite):
    """The same only on top of what the branch held when the transaction began.

    PyIceberg by itself commits again on top of what came meanwhile, where no file of that is in its way; what that had
    told of how far it reaches would then be taken back.
    """

    def _validate_concurrency(self) -> None:
        if self._commit_window is not None and not self._commit_window.is_empty():
            raise CommitFailedException("another process committed first")


def _place(file: DataFile) -> tuple[int, int]:
    """A file's cell, as what files are sorted by; those of rejected records come first."""
    cell = cell_of(file)
    return (cell.partition, cell.bucket) if cell else (-1, -1)


def _batches(files: Sequence[DataFile], most: int) -> Iterator[list[DataFile]]:
    rest = iter(files)
    while batch := list(islice(rest, most)):
        yield batch
