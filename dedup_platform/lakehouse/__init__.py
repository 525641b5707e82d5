"""The only room that writes Iceberg."""

from dedup_platform.lakehouse.lakehouse import STAGING, Lakehouse
from dedup_platform.lakehouse.staged import Staged

__all__ = ["STAGING", "Lakehouse", "Staged"]
