"""AWS Glue."""

from pyiceberg.catalog.glue import GlueCatalog

from dedup_platform.lake.monotonic.metastore import MonotonicMetastore


class MonotonicGlueCatalog(MonotonicMetastore, GlueCatalog):
    """PyIceberg's, with commits in the order of their times."""
