"""What `status` says of feeds and sinks, and that asking takes nobody's sink away."""

import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from dedup_platform.cli.values import status_value
from dedup_platform.errors import SinkError
from dedup_platform.platform import SinkStatus, sinks
from dedup_platform.sinks import Batch, Totals
from dedup_platform.stream import PostgresSink, Publish
from dedup_platform.testing.servers import PostgresServer
from dedup_platform_tests.changes.test_feeds import EVENTS
from dedup_platform_tests.changes.test_publisher import Copied, die_after_the_first_batch
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.sqlite_table import SqliteTable


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    with replaced(has_spark=False):
        yield Copied(tmp_path)


def look(copied: Copied) -> SinkStatus:
    [found] = copied.platform.sinks.status(EVENTS)
    return found


def test_feeds_and_sinks_say_how_far_they_have_come(copied: Copied) -> None:
    assert copied.platform.status(EVENTS).feeds == ()
    assert (look(copied).version, look(copied).behind, look(copied).is_beginning) == (None, None, False)
    copied.take_in(copied.event("a", 0))
    copied.publish()
    assert (look(copied).version, look(copied).is_beginning) == (None, True)
    copied.copy()
    assert (look(copied).version, look(copied).behind, look(copied).is_beginning) == (1, 0, False)
    for number in (1, 2):
        copied.take_in(copied.event(f"{number}", number))
        copied.publish()
    assert (look(copied).version, look(copied).behind) == (1, 2)
    copied.take_in(copied.event("late", 3))
    feeds = {each.feed: each for each in copied.platform.status(EVENTS).feeds}
    assert {name: (each.version, each.is_behind) for name, each in feeds.items()} == {
        "event_changes": (3, True),
        "session_changes": (3, True),
    }
    status = copied.platform.status(EVENTS)
    value = status_value(copied.stream, status, copied.platform.health.of_status(status), {})
    assert value["sinks"][0] | {"totals": None} == {
        "sink": "copy",
        "kind": "custom",
        "follows": "sessions",
        "version": 1,
        "is_beginning": False,
        "behind": 2,
        "refused": 0,
        "totals": None,
        "moved_at": None,
        "trouble": None,
        "health": {"state": "normal", "reason": "", "attempts": 0, "since": None, "next_try": None},
    }


def test_a_beginning_refusals_and_failures_are_shown(copied: Copied) -> None:
    copied.take_in(*(copied.event(f"{number}", 60 * number) for number in range(7)))
    copied.publish()
    die_after_the_first_batch(copied)
    assert look(copied).is_beginning
    copied.say(poison="e")
    copied.copy()
    assert look(copied).refused == 2
    with (
        patch.object(SqliteTable, "open", side_effect=SinkError(EVENTS, "copy", "it is down")),
        pytest.raises(SinkError),
    ):
        copied.copy()
    assert look(copied).health.state == "open"


def test_who_looks_takes_nothing_over(copied: Copied) -> None:
    copied.take_in(copied.event("a", 0))
    write = SqliteTable.write

    def looked_at(sink: SqliteTable, batch: Batch) -> None:
        look(copied)
        write(sink, batch)

    with patch.object(SqliteTable, "write", looked_at):
        copied.copy()
    assert copied.is_equal()


def test_a_store_that_hangs_fails_or_cannot_tell_is_said_so(copied: Copied) -> None:
    copied.take_in(copied.event("a", 0))
    copied.copy()
    with (
        patch.object(sinks, "LOOK_SECONDS", 0.05),
        patch.object(SqliteTable, "look", lambda _: time.sleep(0.5)),
    ):
        assert (look(copied).trouble, look(copied).version) == ("does not answer", None)
    with patch.object(SqliteTable, "look", side_effect=OSError("gone\nfor good")):
        assert look(copied).trouble == "OSError: gone"
    with patch.object(SqliteTable, "look", side_effect=SinkError(EVENTS, "copy", "it is down")):
        assert look(copied).trouble == "it is down"
    with patch("dedup_platform.platform.sinks.Looks", str):
        assert "has no `look`" in str(look(copied).trouble)


def test_postgres_says_how_far_it_has_come_and_what_it_was_spared(
    copied: Copied, postgres_server: PostgresServer
) -> None:
    name = new_name()
    postgres_server.create_database(name)
    uri = f"postgresql://{postgres_server.user}@127.0.0.1:{postgres_server.port}/{name}"
    sink = PostgresSink(kind="postgres", follows="sessions", uri=uri, table="public.copies", changes="downstream")
    copied.stream = copied.stream.model_copy(update={"publish": Publish(sinks={"copy": sink})})
    copied.settings = {"postgres": {"password": postgres_server.password}}
    copied.take_in(copied.event("a", 0), copied.event("b", 20))
    copied.publish()
    assert (look(copied).version, look(copied).is_beginning, look(copied).trouble) == (None, True, None)
    copied.copy()
    copied.take_in(copied.event("inside", 10))
    copied.copy()
    found = look(copied)
    assert (found.version, found.behind, found.refused) == (2, 0, 0)
    assert found.totals == Totals(sent=1, suppressed=2)
    assert found.moved_at
    copied.settings = {"postgres": {"password": "wrong"}}
    assert "password" in str(look(copied).trouble)
    assert "wrong" not in str(look(copied).trouble)
