"""The only package that writes Iceberg."""

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.publishing import STAGING
from dedup_platform.lake.staged import Staged

__all__ = ["STAGING", "Lakehouse", "Staged"]
