"""Who slept through a claim, until another took over: what the sleeper still writes is refused by the tables."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.lake.snapshots import head
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, SESSION_FRAGMENTS, SESSIONS
from dedup_platform.testing import lay_out, write_batch
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.claims.sleeping import sleeper
from dedup_platform_tests.lives.replaced import replaced

IN_TABLES = ("before it reads", "before it publishes", "after its token was looked at")


def asleep(waiting: Followed, table: str, step: str) -> AbstractContextManager[Callable[[], str]]:
    """A process that fell asleep at a step of bringing a table up to date."""
    return sleeper(waiting.home, waiting.stream.origin, table, step, {})


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Followed]:
    """A stream in which something waits for each derived table."""
    with replaced(has_spark=False):
        waiting = Followed(tmp_path)
        waiting.take_in(waiting.event("a", 0), waiting.event("b", 100))
        yield waiting


def bring(waiting: Followed, table: str) -> None:
    """Have something wait for this table."""
    records = [waiting.event("a", 0), waiting.event("c", 50)]
    write_batch(waiting.stream, lay_out(records, "more.json"))
    waiting.platform.ingest(EVENTS)
    for before in (DEDUPLICATED_EVENTS, SESSION_FRAGMENTS, SESSIONS):
        if before == table:
            return
        waiting.platform.recompute_stale(EVENTS, before)


def newest(waiting: Followed, table: str) -> int:
    return head(waiting.platform.lake.catalog.load_table(EVENTS, table)).snapshot_id


@pytest.mark.parametrize(
    ("table", "step"),
    [
        (DEDUPLICATED_EVENTS, IN_TABLES[1]),
        *(pytest.param(SESSIONS, each, marks=pytest.mark.thorough) for each in IN_TABLES),
    ],
)
def test_a_table_refuses_the_sleeper_before_the_other_has_published(table: str, step: str, waiting: Followed) -> None:
    bring(waiting, table)
    beside = DUPLICATE_EVENTS if table == DEDUPLICATED_EVENTS else table
    with asleep(waiting, table, step) as wake:
        before = newest(waiting, table), newest(waiting, beside)
        platform = waiting.platform
        publish = platform.lake.publish

        def wake_first(staged: object) -> None:
            platform.lake.publish = publish  # type: ignore[method-assign]
            assert wake() == "ClaimLostError"
            assert (newest(waiting, table), newest(waiting, beside)) == before
            publish(staged)  # type: ignore[arg-type]

        platform.lake.publish = wake_first  # type: ignore[method-assign]
        commit = platform.recompute_stale(EVENTS, table)
        assert commit.snapshot_id == newest(waiting, table) != before[0]
    waiting.platform.repair(EVENTS)
    assert waiting.platform.claims.of(EVENTS) == {}
    assert not any(plan.stale for plan in waiting.platform.plan(EVENTS))


def test_a_table_refuses_the_sleeper_afterwards(waiting: Followed) -> None:
    bring(waiting, SESSIONS)
    with asleep(waiting, SESSIONS, "after its token was looked at") as wake:
        assert waiting.platform.repair(EVENTS)
        before = newest(waiting, SESSIONS)
        assert wake() == "ClaimLostError"
        assert newest(waiting, SESSIONS) == before


def test_a_sleeper_that_nobody_missed_goes_on(waiting: Followed) -> None:
    bring(waiting, SESSIONS)
    with asleep(waiting, SESSIONS, "before it publishes") as wake:
        assert wake() == "done"
    assert waiting.platform.claims.of(EVENTS) == {}


def test_without_the_control_database_compare_and_set_decides(waiting: Followed) -> None:
    """Nobody knows of the sleeper, so who commits first is right, and the other works once more or gives up."""
    bring(waiting, SESSIONS)
    with asleep(waiting, SESSIONS, "before it publishes") as wake:
        for file in waiting.home.glob("control.db*"):
            file.unlink()
        waiting.clock.advance(timedelta(hours=1))
        waiting.platform.repair(EVENTS)
        assert wake() in ("ClaimLostError", "done")
    assert not any(plan.stale for plan in waiting.platform.plan(EVENTS))
    waiting.remember()
    waiting.publish()
