"""Upkeep that changes no row: compaction, expiry, orphans, another number of buckets."""
