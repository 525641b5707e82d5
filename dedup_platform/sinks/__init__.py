"""Sinks: copies of tables elsewhere, each with its position in the same transaction as the rows."""

from dedup_platform.sinks.opening import open_sink
from dedup_platform.sinks.sink import Batch, Position, Refusal, Sink, SinkState, Target

__all__ = ["Batch", "Position", "Refusal", "Sink", "SinkState", "Target", "open_sink"]
