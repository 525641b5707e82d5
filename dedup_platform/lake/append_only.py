"""Tables that only grow, by days, each append a compare-and-set that says in the same commit how far it reaches."""

from collections.abc import Sequence

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import DayTransform

from dedup_platform import schemas, tables
from dedup_platform.errors import ConflictError
from dedup_platform.lake.beside import TableBeside, add_missing_columns, create_beside
from dedup_platform.lake.overwrite import CompareAndSet
from dedup_platform.lake.publishing import prefixed, retry_commit
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.lake.snapshots import head

MAIN = "main"
FILE_BYTES = 64 * 2**20
"""Files that upkeep makes of several are about so large: who reads such a table reads them whole."""


class AppendOnlyTable(TableBeside):
    """One of a stream's."""

    def create(self) -> Table:
        """Create the table if it is not there, and give it the columns that it lacks."""
        if self.catalog.load(self.stream.name, self.name) is None:
            size = {"write.target-file-size-bytes": str(FILE_BYTES)}
            create_beside(self.catalog, self.stream, self.name, self._by_day(), size)
        add_missing_columns(self.catalog, self.stream, self.name)
        return self.load()

    @retry_commit
    def add(self, base: int, files: Sequence[DataFile], told: SummaryValues) -> int:
        """Add files in a commit that tells this; returns the new snapshot.

        Raises ConflictError if `base` is no longer the newest one: somebody else went on from there.
        """
        table = self.load()
        if head(table).snapshot_id != base:
            raise ConflictError(
                f"{self.stream.name}.{self.name}: another process published changes first; nothing was written. "
                "Run again."
            )
        with (
            table.transaction() as transaction,
            CompareAndSet(transaction, MAIN, prefixed(told), Operation.APPEND) as write,
        ):
            for file in files:
                write.append_data_file(file)
        # Not what is newest now: that may be another process's.
        return write.snapshot_id

    def _by_day(self) -> PartitionSpec:
        column = tables.PARTITION_TIME[self.name]
        field = schemas.iceberg_schema(tables.columns(self.stream, self.name)).find_field(column).field_id
        return PartitionSpec(PartitionField(field, 1000, DayTransform(), f"{column}_day"))
