"""Comments of tables and columns in Iceberg: a commit of metadata, without a snapshot and without a file of data."""

from pyiceberg.table import Table

from dedup_platform.comments import TABLE_COMMENTS
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.publishing import retry_commit
from dedup_platform.lake.schema import missing_comments
from dedup_platform.stream import Stream

__all__ = ["COMMENT", "add_missing_comments"]

COMMENT = "comment"
"""The property of a table that engines show as its comment."""


def add_missing_comments(catalog: Catalog, stream: Stream, name: str, table: Table) -> None:
    """Give a table, as it was loaded, the comments that it lacks: one of an earlier version has none."""
    if COMMENT not in table.properties or missing_comments(stream, name, table):
        _add(catalog, stream, name)


@retry_commit
def _add(catalog: Catalog, stream: Stream, name: str) -> None:
    table = catalog.load_table(stream.name, name)
    with table.transaction() as transaction:
        if missing := missing_comments(stream, name, table):
            with transaction.update_schema() as update:
                for path, text in missing.items():
                    update.update_column(tuple(path.split(".")), doc=text)
        if COMMENT not in table.properties:
            transaction.set_properties({COMMENT: TABLE_COMMENTS[name]})
