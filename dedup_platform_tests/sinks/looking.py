"""What every sink of the platform's own tells whoever looks at it."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

from dedup_platform.sinks import Batch, Position, SinkState, Totals
from dedup_platform.sinks.files import FilesOfChanges
from dedup_platform.sinks.kafka import KafkaTopic
from dedup_platform.sinks.postgres import PostgresTable
from dedup_platform.testing.sinks import some_changes


def check_totals(make: Callable[[], FilesOfChanges | KafkaTopic | PostgresTable]) -> None:
    """A sink whose store is empty counts what it is given, over processes."""
    assert make().look() == SinkState()
    first, second = Position("feed", 1), Position("feed", 2)
    with closing(make()) as sink:
        sink.open()
        assert make().look().position is None
        sink.write(Batch(None, first, some_changes(("insert", 1, 0, "a", 1), ("insert", 1, 1, "b", 1))))
    with closing(make()) as sink:
        sink.open()
        sink.write(Batch(first, second, some_changes(), suppressed=3))
        sink.write(Batch(second, second, some_changes(("insert", 2, 0, "a", 1)), forced=True))
    found = make().look()
    assert (found.position, found.totals) == (second, Totals(sent=3, suppressed=3, forced=1))
    assert found.moved_at
    assert abs(found.moved_at - datetime.now(UTC)) < timedelta(minutes=5)
