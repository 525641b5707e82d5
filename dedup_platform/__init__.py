"""Deduplicated events and sessions with stable ids, in Apache Iceberg, kept right while events arrive late."""

import os

# Spark runs a task for each core already. Polars reads this when it is first imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
