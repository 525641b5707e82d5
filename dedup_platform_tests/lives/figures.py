"""What the figures of partitions must be whenever somebody looks: those of the rows that readers see."""

from collections.abc import Iterator

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, SESSIONS
from dedup_platform.testing.figures import expected_figures
from dedup_platform_tests.lives.state import State


def wrong_figures(judge: Platform, stream: Stream, state: State) -> Iterator[str]:
    """What is told wrong of a partition, a line each."""
    found = {partition: each.plain() for partition, each in judge.figures.of_all(stream.name).items()}
    expected = expected_figures(
        stream.partitions.length,
        stream.late.grace,
        records=[row["event_time"] for row in state.all(tables.RAW_EVENTS)],
        events=[(row["event_time"], row["arrival_time"]) for row in state.all(DEDUPLICATED_EVENTS)],
        duplicates=[(row["event_time"], row["kind"]) for row in state.all(DUPLICATE_EVENTS)],
        sessions=[row["started_at"] for row in state.all(SESSIONS)] if stream.sessions else [],
        rejected=[row["arrival_time"] for row in state.rejected],
    )
    for partition in sorted({*found, *expected}):
        told, counted = found.get(partition), expected.get(partition)
        if told != counted:
            yield f"figures of {stream.partitions.key(partition)}: {told}, expected {counted}"
