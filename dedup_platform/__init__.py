"""Deduplicated events and sessions with stable ids, in Apache Iceberg, kept right while events arrive late."""
