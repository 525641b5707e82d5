"""Catalogs whose clients write a table's metadata themselves."""

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.monotonic.times import in_order, newest_time, not_before


class MonotonicMetastore(MetastoreCatalog):
    """What PyIceberg's catalogs of this kind do before they write the next metadata of a table."""

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is not None:
            updates = not_before(newest_time(current_table.metadata), updates)
        staged = super()._update_and_stage_table(current_table, table_identifier, requirements, updates)
        staged.metadata = in_order(staged.metadata)
        return staged

    @staticmethod
    def _write_metadata(metadata: TableMetadata, io: FileIO, metadata_path: str) -> None:
        MetastoreCatalog._write_metadata(metadata, io, metadata_path)
        # All that the metadata names was written before it, and the catalog is about to name the metadata.
        sync_written()
