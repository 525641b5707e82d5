"""Takes in what the source has: rows and positions become one Iceberg commit, by compare-and-set (rule 1)."""

from dedup_platform.ingest.attempts import Attempts
from dedup_platform.ingest.ingest import Ingest
from dedup_platform.ingest.kafka import PartitionOffsets
from dedup_platform.ingest.pending import CHANGED, Waiting

__all__ = ["CHANGED", "Attempts", "Ingest", "PartitionOffsets", "Waiting"]
