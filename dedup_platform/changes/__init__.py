"""What every commit of a table changed: feeds that consumers follow, and the sinks that are kept right by them."""

from dedup_platform.changes.aliases import Aliases
from dedup_platform.changes.attempts import SinkAttempts
from dedup_platform.changes.audit import Audit, Audited
from dedup_platform.changes.choice import Choice
from dedup_platform.changes.feeds import FeedCommit, Feeds
from dedup_platform.changes.publisher import Published, Publisher

__all__ = ["Aliases", "Audit", "Audited", "Choice", "FeedCommit", "Feeds", "Published", "Publisher", "SinkAttempts"]
