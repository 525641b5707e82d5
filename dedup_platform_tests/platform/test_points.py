"""Points: which snapshots they hold, that a name means one set of them, and how long they are kept."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from dedup_platform.errors import ConflictError
from dedup_platform.lake.points import Point, PointTags
from dedup_platform.lake.snapshots import ancestry, head
from dedup_platform.platform import Platform
from dedup_platform.stream import Points as Rules, Publish, Sessions
from dedup_platform.tables import (
    ALL,
    DEDUPLICATED_EVENTS,
    DUPLICATE_EVENTS,
    RAW_EVENTS,
    SESSION_FRAGMENTS,
    SESSIONS,
)
from dedup_platform.testing import Record, lay_out, write_batch
from dedup_platform_tests.changes.test_feeds import EVENTS, MINUTE, TEN, Followed
from dedup_platform_tests.lives.fates import Killed, before_commit
from dedup_platform_tests.lives.points import PointLaws
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Reader
from dedup_platform_tests.variants import some

DAY = timedelta(days=1)
A_DAY = DAY / MINUTE
COMMITS = len(ALL)
"""It takes so many to make a point."""


class Pointed(Followed):
    """A stream whose points are judged, each once and by the rules that it was made by."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        super().__init__(folder, **rules)
        self.laws_of_points = PointLaws(Reader())

    @property
    def platform(self) -> Platform:
        platform = super().platform
        tags = platform.points._tags
        platform.points._tags = lambda stream: self.laws_of_points.watch(tags(stream))  # type: ignore[method-assign]
        return platform

    def keep(self, keep: timedelta, at_most: int = 100) -> None:
        publish = Publish(points=Rules(keep=keep, at_most=at_most))
        self.stream = self.stream.model_copy(update={"publish": publish})

    def take_in(self, *events: Record) -> None:
        """Ingest some events, repair all, and make a point, as a run does."""
        super().take_in(*events)
        self.platform.points.make_if_possible(EVENTS)

    def deliver(self, *minutes: float) -> None:
        """Ingest an event of each of these times, and repair nothing."""
        with patch.object(Platform, "repair"):
            super().take_in(*(self.event(f"{self._arrived}", each) for each in minutes))

    def make(self) -> Point | None:
        """Look for a point, and judge what is there; returns the newest one."""
        point = self.platform.points.make(EVENTS)
        self.judge()
        return point

    def judge(self) -> None:
        assert list(self.laws_of_points.wrong(self.platform, self.stream)) == []

    def names(self) -> list[str]:
        return [point.name for point in self.platform.points.complete(EVENTS)]

    def snapshot(self, table: str, back: int = 0) -> int:
        return list(ancestry(self.platform.lake.catalog.load_table(EVENTS, table)))[back].snapshot_id

    def tags(self, table: str) -> set[str]:
        return {*self.platform.lake.catalog.load_table(EVENTS, table).refs()} - {"main"}


@pytest.fixture
def pointed(tmp_path: Path) -> Iterator[Pointed]:
    with replaced(has_spark=False):
        yield Pointed(tmp_path)


@contextmanager
def before_step(number: int, act: Callable[[], None]) -> Iterator[None]:
    """Do something before one of the commits to points; they are counted from 0."""
    numbers = count()

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: Any) -> Any:
            if next(numbers) == number:
                act()
            return step(*args)

        return done

    with (
        patch.object(PointTags, "_commit", watched(PointTags._commit)),
        patch.object(PointTags, "_untag", watched(PointTags._untag)),
    ):
        yield


def die() -> None:
    raise Killed


# Which snapshots


def test_a_repair_leaves_a_point_of_all_tables(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0), pointed.event("a", 1), pointed.event("b", 20), pointed.event("c", 0, None))
    pointed.judge()
    [point] = pointed.platform.points.complete(EVENTS)
    assert (point.name, [*point.snapshots]) == ("v1", [*ALL])
    assert point.made_at == pointed.clock.now
    assert [pointed.tags(table) for table in ALL] == [{"v1"}] * len(ALL)
    assert pointed.laws_of_points.judged == 1


def test_nothing_new_is_no_new_point(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    before = pointed.make()
    pointed.platform.recompute(EVENTS, SESSIONS, [pointed.stream.partitions.ordinal(TEN)])
    assert pointed.snapshot(SESSIONS) != (before and before.snapshots[SESSIONS]), "a commit that changed nothing"
    assert pointed.make() == before


def test_what_no_run_has_repaired_yet_is_in_no_point(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    pointed.deliver(20)
    for table in (DEDUPLICATED_EVENTS, SESSION_FRAGMENTS):
        assert (point := pointed.make())
        assert point.name == "v1"
        pointed.platform.recompute_stale(EVENTS, table)
    assert pointed.names() == ["v1"]
    pointed.platform.recompute_stale(EVENTS, SESSIONS)
    assert (point := pointed.make())
    assert (point.name, point.as_of) == ("v2", pointed.snapshot(RAW_EVENTS))


@pytest.mark.parametrize("number", some(range(4), quick=[0, 3]), ids=["duplicates", "events", "fragments", "sessions"])
def test_while_more_comes_in_a_point_is_as_of_what_was_taken_in(number: int, pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    with patch.object(Platform, "repair"):
        pointed.take_in(pointed.event("a", 1), pointed.event("b", 20))
    taken_in = pointed.snapshot(RAW_EVENTS)
    platform = pointed.platform
    with before_commit(platform, number, lambda: _ingest_beside(pointed)):
        platform.repair(EVENTS)
    platform.points.make_if_possible(EVENTS)
    pointed.judge()
    assert (point := platform.points.newest(EVENTS))
    assert (point.name, point.as_of) == ("v2", taken_in)
    assert pointed.snapshot(RAW_EVENTS) != taken_in


def _ingest_beside(pointed: Pointed) -> None:
    write_batch(pointed.stream, lay_out([pointed.event("beside", 25)], "beside.json"))
    pointed.platform.ingest(EVENTS)


@pytest.mark.parametrize(("days_on", "name", "back"), [(3, "v2", 1), (2, "v2", 1), (1, "v1", 2), (0, "v2", 0)])
def test_what_was_built_since_is_in_a_point_if_it_saw_nothing_new(
    days_on: int, name: str, back: int, pointed: Pointed
) -> None:
    """A day is repaired when more has come, so many days on; that waits. The window is a day."""
    first = TEN - DAY
    pointed.take_in(pointed.event("a", -A_DAY))
    pointed.deliver(20 - A_DAY)
    pointed.deliver(40 + (days_on - 1) * A_DAY)
    pointed.platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS, [pointed.stream.partitions.ordinal(first)])
    for table in (SESSION_FRAGMENTS, SESSIONS):
        pointed.platform.recompute_stale(EVENTS, table)
    assert (point := pointed.make())
    assert (point.name, point.as_of) == (name, pointed.snapshot(RAW_EVENTS, back))


def test_duplicates_whose_events_never_came_are_in_no_point(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    with patch.object(PointTags, "claim"):
        pointed.take_in(pointed.event("b", 20))
    with patch.object(Platform, "repair"):
        pointed.take_in(pointed.event("b", 21))
    platform = pointed.platform
    with before_commit(platform, 1, die), suppress(Killed):
        platform.repair(EVENTS)
    assert (point := pointed.make())
    assert (point.name, point.as_of) == ("v2", pointed.snapshot(RAW_EVENTS, back=1))
    assert point.snapshots[DUPLICATE_EVENTS] != pointed.snapshot(DUPLICATE_EVENTS)


def test_other_rules_are_in_a_point_once_all_is_built_by_them(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0), pointed.event("b", 20))
    sessions = Sessions(timeout=10 * MINUTE, aggregates=dict(pointed.stream.aggregates))
    pointed.stream = pointed.stream.model_copy(update={"sessions": sessions})
    pointed.deliver(2 * A_DAY)
    for table in (DEDUPLICATED_EVENTS, SESSION_FRAGMENTS, SESSIONS):
        pointed.platform.recompute_stale(EVENTS, table, [pointed.stream.partitions.ordinal(TEN) + 2])
    assert (point := pointed.make())
    assert point.name == "v1", "the fragments of the first day are of the rules before"
    pointed.platform.repair(EVENTS)
    assert (point := pointed.make())
    assert point.name == "v2"
    assert pointed.laws_of_points.judged == 2


def test_without_sessions_there_are_fewer_tables(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    sessions = pointed.stream.sessions
    for told, names in ((None, ["v1", "v2"]), (sessions, ["v1", "v2", "v3"])):
        pointed.stream = pointed.stream.model_copy(update={"sessions": told})
        pointed.platform.repair(EVENTS)
        pointed.make()
        assert pointed.names() == names, "older points hold what they held"
    assert [*pointed.platform.points.complete(EVENTS)[1].snapshots] == [*ALL[:3]]
    assert pointed.laws_of_points.judged == 3


def test_a_point_outlives_a_rollback(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    pointed.take_in(pointed.event("b", 20))
    pointed.move_main(RAW_EVENTS, back=1)
    assert (point := pointed.make())
    assert point.name == "v2", "what is built is of no raw that there is"
    pointed.platform.repair(EVENTS)
    assert (point := pointed.make())
    assert (point.name, point.as_of) == ("v3", pointed.snapshot(RAW_EVENTS))
    assert pointed.names() == ["v1", "v2", "v3"]


# One name, one set


@pytest.mark.parametrize("number", some(range(COMMITS), quick=[0, COMMITS - 1]))
def test_whoever_dies_leaves_a_point_to_be_finished(number: int, pointed: Pointed) -> None:
    pointed.deliver(0)
    for table in (DEDUPLICATED_EVENTS, SESSION_FRAGMENTS, SESSIONS):
        pointed.platform.recompute_stale(EVENTS, table)
    with before_step(number, die), suppress(Killed):
        pointed.platform.points.make(EVENTS)
    pointed.judge()
    assert pointed.names() == []
    claimed = PointTags(pointed.platform.lake.catalog, pointed.stream).claimed()
    assert len(claimed) == (1 if number else 0)
    # Whatever comes meanwhile, the name means what it meant.
    pointed.take_in(pointed.event("b", 20))
    assert (point := pointed.make())
    assert pointed.names() == (["v1", "v2"] if claimed else ["v1"])
    assert point.as_of == pointed.snapshot(RAW_EVENTS)


@pytest.mark.parametrize("has_more", [False, True], ids=["same", "more"])
@pytest.mark.parametrize("number", some([0, 1, COMMITS - 1], quick=[1]))
def test_two_processes_at_once_make_no_name_of_two_sets(number: int, has_more: bool, pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    with patch.object(PointTags, "claim"):
        pointed.take_in(pointed.event("b", 20))

    def other() -> None:
        if has_more:
            pointed.take_in(pointed.event("c", 40))
        pointed.make()

    with before_step(number, other):
        pointed.platform.points.make(EVENTS)
    assert (point := pointed.make())
    assert point.as_of == pointed.snapshot(RAW_EVENTS)
    assert pointed.names() == (["v1", "v2", "v3"] if has_more and number else ["v1", "v2"])


def test_whoever_slept_while_points_were_made_and_dropped_takes_no_number_again(pointed: Pointed) -> None:
    pointed.keep(timedelta(0), at_most=2)
    pointed.take_in(pointed.event("a", 0))
    sleeper = PointTags(pointed.platform.lake.catalog, pointed.stream)
    [newest], raw = sleeper.claimed(), sleeper._load(RAW_EVENTS)
    for number in range(1, 4):
        pointed.clock.advance(DAY)
        pointed.take_in(pointed.event(f"{number}", 20 * number))
    assert pointed.names() == ["v3", "v4"]
    loaded = [raw, sleeper._load(RAW_EVENTS)]
    with (
        patch.object(sleeper, "_load", side_effect=loaded),
        pytest.raises(ConflictError, match="another process made or dropped points"),
    ):
        sleeper.claim(newest.snapshots, newest, pointed.clock.now)
    assert "v2" not in pointed.tags(RAW_EVENTS)
    pointed.judge()


def test_names_that_others_gave_are_passed_over_and_stay(pointed: Pointed) -> None:
    catalog = pointed.platform.lake.catalog
    pointed.deliver(0)
    for table, name in ((RAW_EVENTS, "v3"), (SESSIONS, "v4"), (SESSIONS, "mine")):
        loaded = catalog.load_table(EVENTS, table)
        loaded.manage_snapshots().create_tag(head(loaded).snapshot_id, name).commit()
    pointed.platform.repair(EVENTS)
    pointed.platform.points.make_if_possible(EVENTS)
    assert pointed.names() == [], "v4 is taken where sessions are tagged"
    pointed.take_in(pointed.event("b", 20))
    assert pointed.names() == ["v5"]
    pointed.keep(timedelta(0))
    pointed.clock.advance(DAY)
    pointed.take_in(pointed.event("c", 40))
    pointed.clock.advance(DAY)
    pointed.platform.points.drop_old(EVENTS)
    assert (pointed.tags(RAW_EVENTS), pointed.tags(SESSIONS)) == ({"v3", "v6"}, {"v4", "v6", "mine"})


# How long


def test_a_point_is_kept_for_so_long_after_the_next_one(pointed: Pointed) -> None:
    pointed.keep(7 * DAY)
    pointed.take_in(pointed.event("a", 0))
    pointed.clock.advance(100 * DAY)
    pointed.platform.points.drop_old(EVENTS)
    assert pointed.names() == ["v1"], "the newest one is always kept"
    pointed.take_in(pointed.event("b", 20))
    pointed.clock.advance(7 * DAY)
    pointed.platform.points.drop_old(EVENTS)
    assert pointed.names() == ["v1", "v2"]
    pointed.clock.advance(timedelta(microseconds=1))
    pointed.platform.points.drop_old(EVENTS)
    assert pointed.names() == ["v2"]
    assert [pointed.tags(table) for table in ALL] == [{"v2"}] * len(ALL)
    assert all("point.v1" not in str(pointed.platform.lake.catalog.load_table(EVENTS, t).properties) for t in ALL)


def test_there_are_at_most_so_many(pointed: Pointed) -> None:
    pointed.keep(7 * DAY, at_most=3)
    for number in range(5):
        pointed.take_in(pointed.event(f"{number}", 20 * number))
    assert pointed.names() == ["v3", "v4", "v5"]


@pytest.mark.parametrize("number", some([1, COMMITS - 1], quick=[1]))
def test_whoever_dies_while_a_point_is_dropped_leaves_it_to_be_dropped(number: int, pointed: Pointed) -> None:
    for number_of_event in range(3):
        pointed.take_in(pointed.event(f"{number_of_event}", 20 * number_of_event))
    pointed.keep(7 * DAY, at_most=2)
    with before_step(number, die), suppress(Killed):
        pointed.platform.points.drop_old(EVENTS)
    pointed.judge()
    assert "v1" in pointed.tags(RAW_EVENTS)
    pointed.make()
    assert [pointed.tags(table) for table in ALL] == [{"v2", "v3"}] * len(ALL)


def test_a_tag_that_comes_late_is_taken_away(pointed: Pointed) -> None:
    pointed.take_in(pointed.event("a", 0))
    [point] = pointed.platform.points.complete(EVENTS)
    pointed.keep(timedelta(0))
    pointed.take_in(pointed.event("b", 20))
    pointed.clock.advance(DAY)
    pointed.platform.points.drop_old(EVENTS)
    late = PointTags(pointed.platform.lake.catalog, pointed.stream)
    assert late._tag(SESSIONS, point)
    assert pointed.names() == ["v2"]
    pointed.platform.points.drop_old(EVENTS)
    assert pointed.tags(SESSIONS) == {"v2"}


def test_upkeep_keeps_what_is_tagged_and_drops_what_is_old(pointed: Pointed) -> None:
    pointed.keep(60 * DAY)
    for number in range(3):
        pointed.take_in(pointed.event(f"{number}", 20 * number))
        pointed.clock.advance(DAY)
    pointed.clock.advance(30 * DAY)
    points = pointed.platform.points.complete(EVENTS)
    pointed.laws_of_points = PointLaws(Reader())
    pointed.platform.maintain(EVENTS)
    assert pointed.platform.points.complete(EVENTS)[:3] == points
    pointed.laws_of_points._makers |= {(p.name, frozenset(p.snapshots.items())): pointed.stream for p in points}
    pointed.judge()
    assert pointed.laws_of_points.judged >= 3, "all can still be read"
    pointed.clock.advance(61 * DAY)
    pointed.platform.maintain(EVENTS)
    loaded = pointed.platform.lake.catalog.load_table(EVENTS, SESSIONS)
    assert loaded.snapshot_by_id(points[0].snapshots[SESSIONS]) is None


def test_files_that_were_put_together_are_let_go(pointed: Pointed) -> None:
    """A stream at rest: its newest point follows the compaction."""
    for number in range(3):
        pointed.take_in(pointed.event(f"{number}", 20 * number))
    pointed.clock.advance(30 * DAY)
    pointed.platform.maintain(EVENTS)
    pointed.judge()
    assert (point := pointed.platform.points.newest(EVENTS))
    assert point.as_of == pointed.snapshot(RAW_EVENTS)
    assert pointed.make() == point


def test_what_fails_fails_no_repair(pointed: Pointed, caplog: pytest.LogCaptureFixture) -> None:
    with patch.object(PointTags, "claim", side_effect=OSError("the catalog is away")):
        pointed.take_in(pointed.event("a", 0))
    assert "events: no point was made, the next run tries again: the catalog is away" in caplog.text
    assert pointed.sessions()
    assert pointed.make()
