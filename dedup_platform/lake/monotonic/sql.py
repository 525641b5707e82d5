"""A catalog in a database."""

from pyiceberg.catalog.sql import SqlCatalog

from dedup_platform.lake.monotonic.metastore import MonotonicMetastore


class MonotonicSqlCatalog(MonotonicMetastore, SqlCatalog):
    """PyIceberg's, with commits in the order of their times."""
