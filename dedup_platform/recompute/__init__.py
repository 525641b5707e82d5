"""Rebuilds cells of the derived tables from a pinned snapshot of their input."""
