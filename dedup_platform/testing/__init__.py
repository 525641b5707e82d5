"""For tests of streams and of the platform itself.

Records made by hand, random histories of deliveries, the oracle that says what the tables must hold, a platform in a
temporary folder, and a clock that stands still.
"""

from dedup_platform.testing.clock import HeldClock, commits_ahead
from dedup_platform.testing.comparison import SessionIds, differences
from dedup_platform.testing.delivery import make_stream, write_batch
from dedup_platform.testing.histories import History, histories, rebatched
from dedup_platform.testing.oracle import Expected, IdentityChanges, Rules, Session, identity_changes, oracle
from dedup_platform.testing.platforms import light_platform, temporary_platform
from dedup_platform.testing.records import Record, lay_out, record, utc

__all__ = [
    "Expected",
    "HeldClock",
    "History",
    "IdentityChanges",
    "Record",
    "Rules",
    "Session",
    "SessionIds",
    "commits_ahead",
    "differences",
    "histories",
    "identity_changes",
    "lay_out",
    "light_platform",
    "make_stream",
    "oracle",
    "rebatched",
    "record",
    "temporary_platform",
    "utc",
    "write_batch",
]
