"""Kafka as a source: what a topic holds, and explicit ranges of its offsets as rows of `raw_events`."""

from dedup_platform.sources.kafka.positions import Place, Positions, Skipped, Standing
from dedup_platform.sources.kafka.reading import Range, ranges_of_task, read_ranges
from dedup_platform.sources.kafka.topic import OffsetExtent, Topic, TopicState

__all__ = [
    "OffsetExtent",
    "Place",
    "Positions",
    "Range",
    "Skipped",
    "Standing",
    "Topic",
    "TopicState",
    "ranges_of_task",
    "read_ranges",
]
