"""Feeds: what every commit of a table changed, as rows that consumers follow."""

from dedup_platform.changes.feeds import FeedCommit, Feeds

__all__ = ["FeedCommit", "Feeds"]
