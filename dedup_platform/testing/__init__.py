"""For tests of streams and of the platform itself: records made by hand, the oracle, and a clock that stands still."""

from dedup_platform.testing.clock import HeldClock
from dedup_platform.testing.oracle import Expected, IdentityChanges, Rules, Session, identity_changes, oracle
from dedup_platform.testing.records import Record, lay_out, record, utc

__all__ = [
    "Expected",
    "HeldClock",
    "IdentityChanges",
    "Record",
    "Rules",
    "Session",
    "identity_changes",
    "lay_out",
    "oracle",
    "record",
    "utc",
]
