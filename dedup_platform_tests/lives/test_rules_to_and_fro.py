"""Rules that are changed and put back while something is taken in, moved, lost or looked after meanwhile."""

import shutil
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dedup_platform import tables
from dedup_platform.platform import Platform
from dedup_platform.stream import Maintenance
from dedup_platform.testing import record
from dedup_platform.testing.platforms import light_platform
from dedup_platform_tests.lives import upkeep
from dedup_platform_tests.lives.test_published_snapshots import EVENTS, NOW, Tables, arrival, day, told_by

NOTHING = timedelta(0)


class Killed(BaseException):
    """The process dies here."""


def events_are(found: Tables, expected: list[tuple[str, int]]) -> None:
    """Nothing is stale, and these are the events: source and day."""
    for _ in range(3):
        found.platform.repair(EVENTS)
    assert found.stale() == []
    state = found.reader.read(found.platform, found.stream)
    assert state is not None
    rows = state.all(tables.DEDUPLICATED_EVENTS)
    assert sorted((row["source"], (row["event_time"] - day(0, 0)).days) for row in rows) == expected
    found.check()


def one_day(folder: Path) -> Tables:
    """A window of a day."""
    found = Tables(folder, window="1d")
    found.stream = found.stream.model_copy(update={"maintenance": Maintenance(min_snapshots=1)})
    found.reopen(found.stream)
    return found


def by_nothing(found: Tables) -> None:
    found.reopen(told_by(found.stream, "happened", NOTHING))


def maintain(found: Tables) -> None:
    """Upkeep, a month later."""
    later = NOW() + timedelta(days=30)
    by_spark = (f"dedup_platform.maintenance.{name}.procedures" for name in ("upkeep", "feeds"))
    with ExitStack() as stack:
        for each in by_spark:
            stack.enter_context(patch(each, upkeep))
        light_platform(found.folder / "home", found.stream, lambda: later).maintain(EVENTS)


def test_upkeep_does_not_call_built_what_a_newcomer_nearby_beats(tmp_path: Path) -> None:
    found = one_day(tmp_path)
    published = found.stream
    found.deliver(record("a", "k", day(11, 1), arrival(2)))
    found.deliver(record("a", "other", day(11, 2), arrival(2)))
    found.platform.repair(EVENTS)
    maintain(found)
    found.deliver(record("a", "k", day(10, 23), arrival(1)))
    maintain(found)
    by_nothing(found)
    found.recompute(tables.DEDUPLICATED_EVENTS, days=[10])
    found.reopen(published)
    events_are(found, [("2.json", 11), ("3.json", 10)])


def test_a_cell_of_which_it_is_not_known_what_it_saw_overtakes_its_neighbours(tmp_path: Path) -> None:
    """The run of other rules is killed once it has published, and its receipt is lost."""
    found = one_day(tmp_path)
    published = found.stream
    found.deliver(record("a", "k", day(11, 1), arrival(2)))
    found.platform.repair(EVENTS)
    found.deliver(record("a", "k", day(10, 23), arrival(1)))
    by_nothing(found)
    found.recompute(tables.DEDUPLICATED_EVENTS, days=[10])
    found.deliver(record("a", "other", day(10, 5), arrival(50)))
    publish = found.platform.lake.publish
    # Who looks at the commit would fold it, receipt and all.
    found.is_judged = False

    def die(staged: Any) -> None:
        publish(staged)
        if staged.table == tables.DEDUPLICATED_EVENTS:
            raise Killed

    with patch.object(found.platform.lake, "publish", die), pytest.raises(Killed):
        found.recompute(tables.DEDUPLICATED_EVENTS, days=[10])
    shutil.rmtree(tmp_path / "home" / "warehouse" / EVENTS / "receipts")
    found.reopen(published)
    events_are(found, [("2.json", 10), ("3.json", 10)])


@pytest.fixture
def moving(tmp_path: Path) -> Tables:
    """A record of day 10 that beats one of day 11, by the rules of today; a redecode moves it to day 20."""
    found = Tables(tmp_path, window="1d")
    by_nothing(found)
    found.deliver(
        record("a", "k", day(10, 23), day(20, 1)),
        record("a", "k", day(11, 1), day(20, 2)),
        record("a", "other", day(11, 5), day(25, 0)),
    )
    found.platform.repair(EVENTS)
    found.is_judged = False
    return found


MOVED = [("1.json", 11), ("1.json", 11), ("1.json", 20)]


def redecoder(found: Tables) -> Platform:
    """A process that began before the window was changed."""
    return light_platform(found.folder / "home", told_by(found.stream, "arrived", NOTHING), NOW)


def moved_day(found: Tables) -> list[int]:
    return [found.stream.partitions.ordinal(day(10, 0))]


def with_a_window(found: Tables) -> None:
    found.reopen(told_by(found.stream, "arrived", timedelta(days=1)))


def test_a_redecode_by_older_rules_that_commits_after_a_run_by_wider_ones(moving: Tables) -> None:
    moves = redecoder(moving)
    with_a_window(moving)
    publish = moves.lake.publish

    def after_a_repair(staged: Any) -> None:
        moving.platform.repair(EVENTS)
        publish(staged)

    with patch.object(moves.lake, "publish", after_a_repair):
        moves.rejected.redecode(EVENTS, moved_day(moving))
    events_are(moving, MOVED)


def test_a_redecode_by_older_rules_that_commits_during_a_run_by_wider_ones(moving: Tables) -> None:
    moves, days = redecoder(moving), moved_day(moving)
    with_a_window(moving)
    publish = moving.platform.lake.publish
    todo = [days]

    def after_the_redecode(staged: Any) -> None:
        if staged.table == tables.DEDUPLICATED_EVENTS and todo:
            moves.rejected.redecode(EVENTS, todo.pop())
        publish(staged)

    with patch.object(moving.platform.lake, "publish", after_the_redecode):
        moving.recompute(tables.DEDUPLICATED_EVENTS)
    assert not todo
    events_are(moving, MOVED)


def test_whom_a_moved_record_beat_is_judged_also_if_its_cell_is_built_by_other_rules_before(moving: Tables) -> None:
    """Once the cell that it left is built again by the rules of today, nothing else tells that others depend on it."""
    moves, days = redecoder(moving), moved_day(moving)
    with_a_window(moving)
    moving.platform.repair(EVENTS)
    moves.rejected.redecode(EVENTS, days)
    moves.recompute_stale(EVENTS, tables.DEDUPLICATED_EVENTS, [*days, *(each + 10 for each in days)])
    moving.recompute(tables.DEDUPLICATED_EVENTS, days=[10])
    events_are(moving, MOVED)
