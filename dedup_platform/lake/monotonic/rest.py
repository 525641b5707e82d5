"""A catalog behind Iceberg's REST protocol."""

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from dedup_platform.lake.durable import sync_written
from dedup_platform.lake.monotonic.times import newest_time, not_before


class MonotonicRestCatalog(RestCatalog):
    """PyIceberg's, with commits in the order of their times: those of snapshots; the logs are the server's."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, at the time of the newest commit that was seen at least."""
        sync_written()
        return super().commit_table(table, requirements, not_before(newest_time(table.metadata), updates))
