"""Sinks: copies of tables elsewhere, each with its position in the same transaction as the rows."""

from dedup_platform.sinks.opening import open_sink
from dedup_platform.sinks.sink import Batch, Looks, Position, Refusal, Sink, SinkState, Target, Totals

__all__ = [
    "Batch",
    "Looks",
    "Position",
    "Refusal",
    "Sink",
    "SinkState",
    "Target",
    "Totals",
    "open_sink",
]
