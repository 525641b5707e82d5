"""Rejected records, looked at, decoded again or dropped; rewrites of `raw_events`."""
