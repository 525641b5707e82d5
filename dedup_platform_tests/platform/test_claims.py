"""How work is claimed by whoever asks a platform for it: left to others, noted, done once more, or done beside them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest

from dedup_platform.changes import Choice, FeedCommit, Published
from dedup_platform.errors import ClaimLostError, ConflictError, OutdatedTokenError
from dedup_platform.lake.fencing import bar
from dedup_platform.lake.receipts import SummaryValues
from dedup_platform.planning.claims import ALL, TIME_TO_LIVE, Partitions
from dedup_platform.platform import Platform
from dedup_platform.platform.claims import Turn
from dedup_platform.stream import Claims, Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, SESSION_CHANGES, SESSIONS
from dedup_platform.testing import lay_out, write_batch
from dedup_platform_tests.changes.test_feeds import EVENTS, TEN, Followed
from dedup_platform_tests.changes.test_publisher import Copied
from dedup_platform_tests.lives.replaced import replaced

DAY = "2024-01-02"


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with replaced(has_spark=False):
        yield Followed(tmp_path)


def deliver(followed: Followed, name: str) -> None:
    """An event that comes and waits."""
    write_batch(followed.stream, lay_out([followed.event(name, 0)], f"{name}.json"))


def take_in(followed: Followed, name: str) -> None:
    deliver(followed, name)
    followed.platform.ingest(EVENTS)


def states(platform: Platform) -> dict[str, list[str]]:
    return {target: [each.state for each in held] for target, held in platform.claims.of(EVENTS).items()}


def at(followed: Followed, meanwhile: Callable[[], Any], partitions: Partitions = ALL) -> int:
    """Work on the first derived table as another process does, and do something once the input was read; how often."""
    rounds: list[Partitions] = []

    def step(turn: Turn) -> None:
        with turn.reading():
            rounds.append(turn.partitions)
            if len(rounds) == 1:
                meanwhile()

    followed.platform.claims.work(followed.stream, DEDUPLICATED_EVENTS, partitions, step)
    return len(rounds)


def test_what_another_is_at_is_left_to_it_and_it_works_once_more(followed: Followed) -> None:
    take_in(followed, "a")
    commits = []
    rounds = at(followed, lambda: commits.append(followed.platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS)))
    [commit] = commits
    assert commit.snapshot_id is None
    assert commit.left.startswith("all left to process ")
    assert rounds == 2
    assert states(followed.platform) == {}


def test_what_nobody_is_at_is_done_though_the_rest_is_left_to_another(followed: Followed) -> None:
    take_in(followed, "a")
    day = followed.stream.partitions.ordinal(TEN)
    commits = []
    at(
        followed,
        lambda: commits.append(followed.platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS, [day, day + 1])),
        Partitions(frozenset({day + 1})),
    )
    [commit] = commits
    assert {cell.partition for cell in commit.cells_rewritten} == {day}
    assert commit.left.startswith("2024-01-03 left to process ")


def test_who_finds_a_request_noted_rebuilds_what_came_since(followed: Followed) -> None:
    take_in(followed, "a")
    platform = followed.platform
    publish = platform.lake.publish

    def late(staged: Any) -> None:
        platform.lake.publish = publish  # type: ignore[method-assign]
        take_in(followed, "b")
        assert followed.platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS).left
        publish(staged)

    platform.lake.publish = late  # type: ignore[method-assign]
    commit = platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS)
    assert commit.rows_written == 1 + 2
    [figures] = followed.platform.figures.of(EVENTS, commit.partitions).values()
    assert figures.rows(DEDUPLICATED_EVENTS) == 2
    assert not platform.plan(EVENTS)[0].stale


@pytest.mark.parametrize("how", ["said", "whole"])
def test_some_requests_are_done_beside_whoever_is_at_it(followed: Followed, how: str) -> None:
    if how == "said":
        followed.stream = followed.stream.model_copy(update={"claims": Claims(on_repeat="process")})
    take_in(followed, "a")
    day, commits = followed.stream.partitions.ordinal(TEN), []

    def ask() -> None:
        ask_for = followed.platform.recompute if how == "whole" else followed.platform.recompute_stale
        commits.append(ask_for(EVENTS, DEDUPLICATED_EVENTS, [day]))

    assert at(followed, ask) == 1
    [commit] = commits
    assert commit.rows_written == 1
    assert commit.left == ""


def test_what_is_wanted_again_of_whole_partitions_is_what_is_stale(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    platform, day = followed.platform, followed.stream.partitions.ordinal(TEN)
    publish, published = platform.lake.publish, list[str]()

    def late(staged: Any) -> None:
        if not published:
            assert followed.platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS).left
        published.append(staged.table)
        publish(staged)

    with patch.object(platform.lake, "publish", late):
        assert platform.recompute(EVENTS, DEDUPLICATED_EVENTS, [day]).reason == "full"
    assert published == [DEDUPLICATED_EVENTS]


def test_a_change_of_buckets_repairs_also_what_another_is_at(followed: Followed) -> None:
    take_in(followed, "a")
    at(followed, lambda: followed.platform.change_buckets(EVENTS, 4))
    assert not any(plan.stale for plan in followed.platform.plan(EVENTS))


def test_what_fails_is_shown_until_somebody_asks_for_it(followed: Followed) -> None:
    take_in(followed, "a")
    platform = followed.platform
    with patch.object(platform.lake, "publish", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS)
    assert states(platform) == {DEDUPLICATED_EVENTS: ["failed"]}
    followed.platform.repair(EVENTS)
    assert states(platform) == {}


def test_work_that_takes_long_gives_signs_of_life(followed: Followed) -> None:
    take_in(followed, "a")
    brief, seen = timedelta(milliseconds=60), Event()

    def step(turn: Turn) -> None:
        with turn.reading():
            [before] = followed.platform.claims.of(EVENTS)[SESSIONS]
            followed.clock.advance(TIME_TO_LIVE / 2)
            while followed.platform.claims.of(EVENTS)[SESSIONS][0].expires <= before.expires:
                seen.wait(0.01)

    with patch("dedup_platform.platform.claims.TIME_TO_LIVE", brief):
        followed.platform.claims.work(followed.stream, SESSIONS, ALL, step)
    assert states(followed.platform) == {}


def test_a_control_database_that_is_lost_amid_the_work_is_no_harm(followed: Followed) -> None:
    take_in(followed, "a")
    platform = followed.platform
    publish = platform.lake.publish

    def late(staged: Any) -> None:
        for file in followed.home.glob("control.db*"):
            file.unlink()
        publish(staged)

    platform.lake.publish = late  # type: ignore[method-assign]
    assert [commit.table for commit in platform.repair(EVENTS)] == list(DERIVED)
    assert states(platform) == {}
    assert not any(plan.stale for plan in platform.plan(EVENTS))


def test_who_finds_its_token_outdated_goes_on_under_a_newer_one(followed: Followed) -> None:
    """Another took over from a third, whose work was on other partitions."""
    take_in(followed, "a")
    platform = followed.platform
    publish, tries = platform.lake.publish, []

    def late(staged: Any) -> None:
        tries.append(staged.token)
        if len(tries) == 1:
            bar(platform.lake.catalog, EVENTS, DEDUPLICATED_EVENTS, staged.token + 5)
        publish(staged)

    platform.lake.publish = late  # type: ignore[method-assign]
    assert platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS).rows_written == 1
    assert len(tries) == 2
    assert tries[1] > tries[0] + 5


def test_a_token_that_comes_before_anything_is_staged_is_seen_when_it_is_published(followed: Followed) -> None:
    """What is to be written to is then a commit of the table, under a smaller token than both."""
    followed.take_in(followed.event("a", 0))
    take_in(followed, "b")
    platform = followed.platform
    replace_files, tries = platform.lake.replace_files, []

    def late(stream: Stream, table: str, *files: Any) -> None:
        if table == DEDUPLICATED_EVENTS:
            tries.append(1)
            if len(tries) == 1:
                bar(platform.lake.catalog, EVENTS, table, platform.claims.in_work(EVENTS, table)[0].token + 5)
        replace_files(stream, table, *files)

    platform.lake.replace_files = late
    assert platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS).rows_written == 2
    assert len(tries) == 2


def test_who_finds_what_it_staged_gone_goes_on_under_a_newer_token(followed: Followed) -> None:
    take_in(followed, "a")
    platform, tries = followed.platform, []
    replace_files = platform.lake.replace_files

    def early(stream: Stream, table: str, *files: Any) -> None:
        replace_files(stream, table, *files)
        if table == DEDUPLICATED_EVENTS:
            tries.append(platform.claims.in_work(EVENTS, table)[0].token)
            if len(tries) == 1:
                bar(platform.lake.catalog, EVENTS, table, tries[0] + 5)

    with patch.object(platform.lake, "replace_files", early):
        assert platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS).rows_written == 1
    assert tries[-1] > tries[0] + 5


def test_a_token_bars_only_smaller_ones(followed: Followed) -> None:
    take_in(followed, "a")
    platform, catalog = followed.platform, followed.platform.lake.catalog
    base = platform.ledger.sync(EVENTS)[SESSIONS].snapshot_id
    said: list[SummaryValues] = [{"token": "6"}, {"token": "7"}, {}]
    below, equal, none = (platform.lake.stage_nothing(followed.stream, SESSIONS, base, each) for each in said)
    bar(catalog, EVENTS, SESSIONS, 7)
    assert set(catalog.load_table(EVENTS, SESSIONS).refs()) == {"main", equal.branch, none.branch}
    with pytest.raises(OutdatedTokenError, match=r"newer token \(7\)"):
        platform.lake.publish(below)
    with pytest.raises(OutdatedTokenError):
        bar(catalog, EVENTS, SESSIONS, 6)
    platform.lake.publish(equal)
    with pytest.raises(ConflictError, match="committed first"):
        platform.lake.publish(none)


def test_what_was_staged_below_is_refused_although_its_token_was_looked_at_before(followed: Followed) -> None:
    take_in(followed, "a")
    platform = followed.platform
    base = platform.ledger.sync(EVENTS)[SESSIONS].snapshot_id
    staged = platform.lake.stage_nothing(followed.stream, SESSIONS, base, {"token": "6"})

    def looked(*_: object) -> None:
        patched.stop()
        bar(platform.lake.catalog, EVENTS, SESSIONS, 7)

    patched = patch("dedup_platform.lake.publishing.check_token", looked)
    patched.start()
    with pytest.raises(OutdatedTokenError):
        platform.lake.publish(staged)
    assert platform.ledger.sync(EVENTS)[SESSIONS].snapshot_id == base


def test_who_was_taken_over_does_not_try_again(followed: Followed) -> None:
    take_in(followed, "a")
    platform, tries = followed.platform, []

    def publish(_: object) -> None:
        tries.append(1)
        followed.clock.advance(TIME_TO_LIVE * 2)
        followed.platform.repair(EVENTS)
        raise ConflictError

    with patch.object(platform.lake, "publish", publish), pytest.raises(ClaimLostError, match="no sign of life"):
        platform.recompute_stale(EVENTS, DEDUPLICATED_EVENTS)
    assert tries == [1]


def test_a_sink_that_another_is_at_is_left_to_it_with_its_feed(tmp_path: Path) -> None:
    with replaced(has_spark=False):
        copied = Copied(tmp_path)
        copied.take_in(copied.event("a", 0))
        told = list[Published]()

        def step(turn: Turn) -> bool:
            with turn.reading():
                if is_first := not told:
                    told.append(copied.copy())
                return is_first

        assert copied.platform.claims.work(copied.stream, "copy", ALL, step).done == [True, False]
        assert told[0].left.startswith("all left to process")
        assert copied.platform.unpublished(EVENTS) == [DEDUPLICATED_EVENTS, SESSIONS]
        assert copied.copy().version == 1
        assert copied.is_equal()


def test_what_is_written_on_purpose_is_not_written_again_for_others(tmp_path: Path) -> None:
    with replaced(has_spark=False):
        copied = Copied(tmp_path)
        copied.take_in(copied.event("a", 0))
        copied.copy()
        platform, told = copied.platform, list[Published]()
        publish = platform._publisher.publish

        def late(*said: Any) -> None:
            publish(*said)
            if not told:
                copied.take_in(copied.event("b", 60))
                told.append(copied.copy())

        with patch.object(platform._publisher, "publish", late):
            done = platform.publish(EVENTS, "copy", again=Choice())
        assert told[0].left
        assert (done.forced, done.version) == (1, 2)
        assert copied.is_equal()


def test_a_feed_that_another_is_at_is_left_to_it(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    told = list[FeedCommit]()

    def step(turn: Turn) -> None:
        with turn.reading():
            if not told:
                told.extend(followed.platform.publish_changes(EVENTS, [SESSIONS]))

    followed.platform.claims.work(followed.stream, SESSION_CHANGES, ALL, step)
    assert told[0].left.startswith("all left to process")
    assert told[0].first_version == 0
