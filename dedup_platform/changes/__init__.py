"""What every commit of a table changed: feeds that consumers follow, and the sinks that are kept right by them."""

from dedup_platform.changes.aliases import Aliases
from dedup_platform.changes.feeds import FeedCommit, Feeds
from dedup_platform.changes.publisher import Published, Publisher

__all__ = ["Aliases", "FeedCommit", "Feeds", "Published", "Publisher"]
