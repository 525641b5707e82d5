"""Tries of sinks: how often, until when, and what begins a new count."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from dedup_platform.changes import publisher
from dedup_platform.errors import SinkError
from dedup_platform.planning.circuit_breaker import NORMAL, sentence
from dedup_platform.sinks import Batch
from dedup_platform.stream import Claims
from dedup_platform_tests.changes.test_feeds import EVENTS
from dedup_platform_tests.changes.test_publisher import Copied
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.sinks.sqlite_table import SqliteTable

DOWN, BROKEN = SinkError(EVENTS, "copy", "it is down"), SinkError(EVENTS, "copy", "no such table", lasting=True)


@pytest.fixture
def tried(tmp_path: Path) -> Iterator[Copied]:
    with replaced(has_spark=False):
        copied = Copied(tmp_path)
        copied.take_in(*(copied.event(f"{number}", 60 * number) for number in range(12)))
        yield copied


def fail(tried: Copied, error: Exception, on: str = "open") -> int:
    """Publish while the store fails; how often it was tried."""
    with patch.object(SqliteTable, on, side_effect=error) as failing, pytest.raises(type(error)):
        tried.copy()
    return failing.call_count


def test_a_store_that_is_down_opens_the_circuit_which_a_success_closes(tried: Copied) -> None:
    sinks = tried.platform.sinks
    assert (sinks.health(EVENTS, "copy"), sinks.is_due(EVENTS, "copy")) == (NORMAL, True)
    assert fail(tried, DOWN) == tried.stream.retries.max_attempts
    circuit = sinks.health(EVENTS, "copy")
    assert (circuit.state, circuit.attempts) == ("open", 3)
    assert sentence(circuit, "sink copy").startswith("sink copy is open: 3 tries since")
    assert not sinks.is_due(EVENTS, "copy")
    assert tried.platform.source.health(EVENTS) == NORMAL, "an ingest is something else"
    assert fail(tried, DOWN) == 1, "whoever says so tries at once, and once"
    tried.clock.advance(tried.stream.retries.cool_down * 2)
    assert sinks.is_due(EVENTS, "copy")
    tried.copy()
    assert sinks.health(EVENTS, "copy") == NORMAL
    assert tried.is_equal()


def test_what_does_not_pass_by_itself_is_tried_once_and_when_the_stream_file_changed(tried: Copied) -> None:
    assert fail(tried, BROKEN) == 1
    assert tried.platform.sinks.health(EVENTS, "copy").state == "failing"
    assert not tried.platform.sinks.is_due(EVENTS, "copy")
    tried.say(changes="downstream")
    assert tried.platform.sinks.is_due(EVENTS, "copy")


def test_a_try_that_wrote_anything_begins_a_new_count(tried: Copied) -> None:
    write, written = SqliteTable.write, list[Batch]()

    def failing_after_each(sink: SqliteTable, batch: Batch) -> None:
        if written and written[-1] is not batch and len(written) % 2:
            written.append(batch)
            raise DOWN
        write(sink, batch)
        written.append(batch)

    with patch.object(publisher, "BATCH_ROWS", 2), patch.object(SqliteTable, "write", failing_after_each):
        tried.copy()
    assert tried.is_equal()
    assert len(written) // 2 > tried.stream.retries.max_attempts, "so often it failed"


@pytest.mark.parametrize("error", [RuntimeError("broken pipe\nand more"), OSError("no route")])
def test_whatever_a_sink_of_ones_own_raises_is_counted(tried: Copied, error: Exception) -> None:
    assert fail(tried, error, "write") == tried.stream.retries.max_attempts
    reason = tried.platform.sinks.health(EVENTS, "copy").reason
    assert reason == f"{type(error).__name__}: {str(error).splitlines()[0]}"


def test_one_that_another_process_took_over_is_not_at_fault(tried: Copied) -> None:
    tried.stream = tried.stream.model_copy(update={"claims": Claims(on_repeat="process")})
    write = SqliteTable.write

    def slept(sink: SqliteTable, batch: Batch) -> None:
        with patch.object(SqliteTable, "write", write):
            tried.copy()
        write(sink, batch)

    with patch.object(SqliteTable, "write", slept), pytest.raises(Exception, match="another process publishes"):
        tried.copy()
    assert tried.platform.sinks.health(EVENTS, "copy") == NORMAL


@pytest.mark.parametrize("pause", [lambda circuit: circuit.next_try], ids=["next try"])
def test_a_run_that_could_not_say_so_counts_as_failed(tried: Copied, pause: Callable[..., object]) -> None:
    tried.platform.sinks.note_lost_run(EVENTS, "copy", "run 1 ended before it could say why")
    circuit = tried.platform.sinks.health(EVENTS, "copy")
    assert (circuit.state, circuit.attempts) == ("retrying", 1)
    assert pause(circuit)
    tried.clock.advance(timedelta(seconds=2))
    assert tried.platform.sinks.is_due(EVENTS, "copy")
