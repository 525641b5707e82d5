"""Feeds of tables that live through more than commits: late followers, maintenance, rollbacks, other columns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from dedup_platform.changes import FeedCommit, difference as differences, feeds
from dedup_platform.errors import ConflictError, IncompatibleChangeError
from dedup_platform.lake import feeds as lake_feeds
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.feeds import FeedPosition, FeedTable, feed_position
from dedup_platform.lake.snapshots import ancestry, head
from dedup_platform.lake.whole_files import WholeFiles
from dedup_platform.platform import Platform
from dedup_platform.stream import Attribute, Claims, Maintenance, Stream
from dedup_platform.tables import EVENT_CHANGES, FEED_OF, FOLLOWED, SESSION_CHANGES, SESSIONS
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform_tests.lives.aliases import wrong_aliases
from dedup_platform_tests.lives.feeds import FeedLaws
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Reader, Row
from dedup_platform_tests.variants import some

EVENTS = "events"
TEN = utc("2024-01-02T10:00")
ARRIVED = utc("2024-01-05")
MINUTE = timedelta(minutes=1)


class Followed:
    """A stream whose tables are followed."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.home = folder / "home"
        self.folder = folder
        self.stream: Stream = make_stream(folder, **rules).model_copy(
            update={"maintenance": Maintenance(min_snapshots=1), "buckets": 0}
        )
        self.clock = HeldClock(utc("2030-01-01T00:00"))
        self.settings: dict[str, Any] = {}
        self._files = self._arrived = 0
        self.laws, self._reader = FeedLaws(), Reader()

    @property
    def platform(self) -> Platform:
        """A process that remembers nothing."""
        return light_platform(self.home, self.stream, self.clock, **self.settings)

    def event(self, name: str, minutes: float, entity: str | None = "e", **others: Any) -> Record:
        """One that happened some minutes after ten, and that arrives after all others so far."""
        self._arrived += 1
        return record(entity, name, TEN + minutes * MINUTE, ARRIVED + self._arrived * MINUTE, **others)

    def take_in(self, *events: Record) -> None:
        """Ingest and repair, and publish nothing."""
        self._files += 1
        write_batch(self.stream, lay_out(events, f"{self._files}.json"))
        platform = self.platform
        platform.ingest(EVENTS)
        platform.repair(EVENTS)
        self.remember()

    def remember(self) -> None:
        platform = self.platform
        state = self._reader.read(platform, self.stream)
        assert state
        heads = {table: head(platform.lake.catalog.load_table(EVENTS, table)).snapshot_id for table in FEED_OF}
        self.laws.remember(self.stream, state, heads)

    def publish(self) -> dict[str, FeedCommit]:
        """Follow, and judge what came."""
        told = {each.feed: each for each in self.platform.publish_changes(EVENTS)}
        for feed in FOLLOWED:
            assert list(self.laws.of(self.stream, feed, self.feed(feed))) == []
        assert list(wrong_aliases(self.platform, self.stream, self._reader)) == []
        return told

    def feed(self, feed: str = SESSION_CHANGES) -> list[Row]:
        rows = self._reader.feed(self.platform, self.stream, feed)
        return sorted(rows, key=lambda row: (row["_commit_version"], row["_change_ordinal"]))

    def kinds(self, feed: str = SESSION_CHANGES) -> list[tuple[int, str, str]]:
        return [(row["_commit_version"], row["_change_type"], row["reason"]) for row in self.feed(feed)]

    def sessions(self) -> list[Row]:
        return list(self.platform.lake.catalog.load_table(EVENTS, SESSIONS).scan().to_arrow().to_pylist())

    def move_main(self, table: str, back: int) -> None:
        """Somebody takes a table back by some snapshots."""
        catalog = self.platform.lake.catalog
        loaded = catalog.load_table(EVENTS, table)
        to = {"ref-name": "main", "type": "branch", "snapshot-id": list(ancestry(loaded))[back].snapshot_id}
        catalog.iceberg.commit_table(loaded, (), (SetSnapshotRefUpdate.model_validate(to),))
        self.remember()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with replaced(has_spark=False):
        yield Followed(tmp_path)


@pytest.mark.parametrize("kind", some(["string", "long"], quick=["string"]))
@pytest.mark.parametrize("name", ["reason", "is_downstream"])
def test_a_column_that_a_feed_has_for_itself_cannot_become_an_attributes(
    name: str, kind: str, followed: Followed
) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    before, fields = followed.stream, followed.stream.fields
    attributes = {**fields.attributes, name: Attribute(field="page", type=kind)}
    followed.stream = before.model_copy(update={"fields": fields.model_copy(update={"attributes": attributes})})
    refused = rf"events\.event_changes has told of changes in a column '{name}' since it began, .*: choose another one"
    for act in (followed.platform.repair, followed.platform.publish_changes, followed.platform.ingest):
        with pytest.raises(IncompatibleChangeError, match=refused):
            act(EVENTS)
    with pytest.raises(IncompatibleChangeError, match=refused):
        followed.platform.change_buckets(EVENTS, 4)
    followed.stream = before
    followed.take_in(followed.event("b", 60))
    followed.publish()


@pytest.mark.parametrize("at_once", some([1, 2, 3, 4], quick=[1, 4]))
def test_a_late_event_renames_no_session(at_once: int, followed: Followed) -> None:
    """10:00, 10:05, 10:20 and 10:31 arrive in this order, in batches, and 09:57 last."""
    events = [followed.event(name, minutes) for name, minutes in zip("abcd", (0, 5, 20, 31), strict=True)]
    for first in range(0, len(events), at_once):
        followed.take_in(*events[first : first + at_once])
        followed.publish()
    [before] = followed.sessions()
    followed.take_in(followed.event("late", -3))
    followed.publish()
    [after] = followed.sessions()
    assert (after["started_at"], after["ended_at"]) == (TEN - 3 * MINUTE, TEN + 31 * MINUTE)
    assert after["session_id"] == before["session_id"]
    last = followed.feed()[-1]["_commit_version"]
    assert followed.kinds()[-2:] == [(last, "update_preimage", "grown"), (last, "update_postimage", "grown")]
    assert [row["_commit_version"] for row in followed.feed()].count(last) == 2


def test_the_session_is_another_if_that_event_comes_first(tmp_path: Path) -> None:
    found = []
    for name, order in (("last", "abcde"), ("first", "eabcd")):
        followed = Followed(tmp_path / name)
        minutes = dict(zip("abcde", (0, 5, 20, 31, -3), strict=True))
        followed.take_in(*(followed.event(each, minutes[each]) for each in order))
        [session] = followed.sessions()
        found.append((session["session_id"], session["first_arrived_at"], session["started_at"]))
    assert found[0][0] != found[1][0]
    assert found[0][1:] == found[1][1:], "all else is the same"


def test_a_follower_that_comes_late_finds_every_commit(followed: Followed) -> None:
    for number in range(4):
        followed.take_in(followed.event(f"{number}", 20 * number))
    told = followed.publish()
    assert (told[SESSION_CHANGES].first_version, told[SESSION_CHANGES].last_version) == (1, 4)
    assert told[EVENT_CHANGES].changes == {"insert": 4}
    assert followed.kinds()[:3] == [
        (1, "insert", "new"),
        (2, "update_preimage", "grown"),
        (2, "update_postimage", "grown"),
    ]
    assert followed.laws.behind(followed.stream, _state(followed)) == []


def test_nothing_new_is_nothing_written(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    snapshots = _snapshots(followed)
    followed.platform.recompute(EVENTS, SESSIONS, [followed.stream.partitions.ordinal(TEN)])
    followed.platform.change_buckets(EVENTS, 4)
    followed.remember()
    told = followed.publish()
    assert [each.last_version for each in told.values()] == [0, 0, 0]
    assert _snapshots(followed) == snapshots
    followed.take_in(followed.event("b", 1))
    assert followed.publish()[SESSION_CHANGES].last_version == 2


def test_a_session_that_moves_to_the_day_before_is_an_update(followed: Followed) -> None:
    followed.take_in(followed.event("a", 14 * 60 + 5))
    followed.publish()
    followed.take_in(followed.event("b", 14 * 60 - 5))
    followed.publish()
    assert followed.kinds()[1:] == [(2, "update_preimage", "moved"), (2, "update_postimage", "moved")]


def test_a_session_that_falls_apart_is_merged_into_the_half_that_holds_its_first_event(followed: Followed) -> None:
    """Both halves get an event that arrived earlier, and what held them together went elsewhere, in one commit."""

    def at(name: str, minutes: int, arrived: int) -> Record:
        return record("e", name, TEN + minutes * MINUTE, ARRIVED + arrived * MINUTE)

    followed.take_in(at("c", 50, 4), at("a", 0, 5), at("b", 25, 6))
    followed.publish()
    [before] = followed.sessions()
    followed.take_in(at("b", 600, 1), at("x", 1, 2), at("y", 51, 3))
    followed.publish()
    _, last, _ = sorted(followed.sessions(), key=lambda row: row["started_at"])[:3]
    assert last["started_at"] == TEN + 50 * MINUTE == before["first_arrived_event_time"]
    [gone] = [row for row in followed.feed() if row["_change_type"] == "delete"]
    assert (gone["session_id"], gone["reason"], gone["merged_into"]) == (
        before["session_id"],
        "merged",
        last["session_id"],
    )


def test_two_publishers_at_once_publish_each_version_once(followed: Followed) -> None:
    followed.stream = followed.stream.model_copy(update={"claims": Claims(on_repeat="process")})
    followed.take_in(followed.event("a", 0))
    other, append = followed.platform, FeedTable.append
    came_between = list[str]()

    def late(feed: FeedTable, *arguments: Any) -> int:
        if not came_between:
            came_between.append(feed.name)
            other.publish_changes(EVENTS)
        return append(feed, *arguments)

    with patch.object(FeedTable, "append", late):
        told = followed.publish()
    assert came_between == [EVENT_CHANGES]
    assert [each.last_version for each in told.values()] == [0, 0, 0], "the other one published all"
    assert followed.kinds() == [(1, "insert", "new")]


def test_a_publisher_that_slept_is_refused(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    platform = followed.platform
    feed = FeedTable(platform.lake.catalog, followed.stream, SESSIONS)
    position = feed.prepare()
    followed.publish()
    with pytest.raises(ConflictError, match="another process published changes first"):
        feed.append(position, [], 1, 1)


@contextmanager
def overtaken(catalog: Catalog, act: Callable[[], object]) -> Iterator[None]:
    """Let another process act just before the next commit."""
    commit, acts = catalog.iceberg.commit_table, iter([act])

    def late(*arguments: Any) -> Any:
        next(acts, lambda: None)()
        return commit(*arguments)

    with patch.object(catalog.iceberg, "commit_table", late):
        yield


def test_a_publisher_that_is_overtaken_in_its_commit_publishes_nothing(followed: Followed) -> None:
    followed.stream = followed.stream.model_copy(update={"claims": Claims(on_repeat="process")})
    followed.take_in(followed.event("a", 0))
    followed.publish()
    followed.take_in(followed.event("b", 60))
    platform, other = followed.platform, followed.platform
    with overtaken(platform.lake.catalog, lambda: other.publish_changes(EVENTS)):
        told = platform.publish_changes(EVENTS)
    assert [each.last_version for each in told] == [0, 0, 0], "the other one published all"
    assert followed.publish()[SESSION_CHANGES].last_version == 0
    assert followed.kinds() == [(1, "insert", "new"), (2, "insert", "new")]


def test_nobody_goes_on_from_where_another_one_went_on_without_rows(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    catalog = followed.platform.lake.catalog
    feed, other = (FeedTable(each, followed.stream, SESSIONS) for each in (catalog, followed.platform.lake.catalog))
    position = feed.prepare()
    with (
        overtaken(catalog, lambda: other.append(position, [], 2, 0)),
        pytest.raises(ConflictError, match="another process published changes first"),
    ):
        feed.append(position, [], 1, 0)
    assert feed_position(other.load()).up_to == 2


def test_what_was_taken_back_is_compensated(followed: Followed) -> None:
    for number in range(3):
        followed.take_in(followed.event(f"{number}", 60 * number))
    followed.publish()
    followed.move_main(SESSIONS, 2)
    followed.publish()
    assert followed.kinds()[3:] == [(4, "delete", "erased")] * 2
    followed.platform.repair(EVENTS)
    followed.remember()
    followed.publish()
    assert followed.kinds()[5:] == [(5, "insert", "new")] * 2
    assert followed.laws.behind(followed.stream, _state(followed)) == []


def test_what_was_taken_back_and_forgotten_is_found_in_the_feed(followed: Followed) -> None:
    for number in range(3):
        followed.take_in(followed.event(f"{number}", 20 * number))
    followed.publish()
    gone = head(followed.platform.lake.catalog.load_table(EVENTS, SESSIONS)).snapshot_id
    followed.move_main(SESSIONS, 1)
    loaded = followed.platform.lake.catalog.load_table(EVENTS, SESSIONS)
    loaded.maintenance.expire_snapshots().by_ids([gone]).commit()
    followed.publish()
    assert followed.kinds()[5:] == [(4, "update_preimage", "shrunk"), (4, "update_postimage", "shrunk")]


def test_upkeep_keeps_what_is_not_read_yet(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    for number in range(4):
        followed.take_in(followed.event(f"{number}", 10 * number))
    followed.clock.advance(timedelta(days=30))
    followed.platform.maintain(EVENTS)
    assert followed.publish()[SESSION_CHANGES].last_version == 5
    followed.clock.advance(timedelta(days=30))
    followed.platform.maintain(EVENTS)
    table = followed.platform.lake.catalog.load_table(EVENTS, SESSIONS)
    assert len(list(ancestry(table))) < 4, "what was read goes"


def test_upkeep_keeps_what_was_taken_back_until_it_is_compensated(followed: Followed) -> None:
    for number in range(2):
        followed.take_in(followed.event(f"{number}", 20 * number))
    followed.publish()
    told = head(followed.platform.lake.catalog.load_table(EVENTS, SESSIONS)).snapshot_id
    followed.move_main(SESSIONS, 1)
    followed.clock.advance(timedelta(days=30))
    followed.platform.maintain(EVENTS, [SESSIONS])
    assert followed.platform.lake.catalog.load_table(EVENTS, SESSIONS).snapshot_by_id(told)


def test_a_feed_of_a_table_whose_history_is_gone_begins_with_what_there_is(followed: Followed) -> None:
    for number in range(3):
        followed.take_in(followed.event(f"{number}", 60 * number))
    followed.clock.advance(timedelta(days=30))
    followed.platform.maintain(EVENTS)
    followed.remember()
    followed.publish()
    assert followed.kinds() == [(1, "insert", "new")] * 3


def test_a_feed_whose_own_history_is_gone_knows_how_far_it_came(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    feed = followed.platform.lake.catalog.load_table(EVENTS, SESSION_CHANGES)
    known = feed_position(feed)
    with patch.object(lake_feeds, "summary", lambda *_: None):
        assert feed_position(feed) == known
        followed.take_in(followed.event("b", 60))
        followed.publish()
    assert followed.kinds() == [(1, "insert", "new"), (2, "insert", "new")]


def test_many_commits_of_a_table_are_few_of_its_feed(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "COMMIT_STEPS", 2)
    monkeypatch.setattr(feeds, "FILE_ROWS", 1)
    for number in range(5):
        followed.take_in(followed.event(f"{number}", 60 * number), followed.event(f"{number}", 60 * number, "f"))
    told = followed.publish()[SESSION_CHANGES]
    assert (told.first_version, told.last_version, told.changes) == (1, 5, {"insert": 10})
    assert len(_snapshots(followed)) == 1 + 3


def test_a_large_commit_is_worked_out_share_by_share(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [followed.event("a", 0, f"{number}") for number in range(20)]
    followed.take_in(*events)
    followed.publish()
    monkeypatch.setattr(differences, "CHUNK_BYTES", 500)
    followed.take_in(*(followed.event("b", 10, f"{number}") for number in range(0, 20, 2)))
    told = followed.publish()[SESSION_CHANGES]
    assert told.changes == {"update_preimage": 10, "update_postimage": 10}


@pytest.mark.parametrize("rows_a_file", some([1, 5, 1000], quick=[5]))
def test_what_is_copied_unread_is_told_as_what_is_read(
    rows_a_file: int, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FILE_ROWS", rows_a_file)
    for day in range(3):
        minutes = [(24 * 60 * day + 7 * each, f"e{each % 4}") for each in range(12)]
        followed.take_in(*(followed.event(f"{minute}", minute, entity) for minute, entity in minutes))
    followed.platform.repair(EVENTS)
    with patch.object(differences, "LARGE_ROWS", 10**6), patch.object(WholeFiles, "write", side_effect=AssertionError):
        followed.publish()
    read = {feed: followed.feed(feed) for feed in FEED_OF.values()}
    for feed in FEED_OF.values():
        followed.platform.lake.catalog.iceberg.drop_table((EVENTS, feed))
    with (
        patch.object(differences, "LARGE_ROWS", 1),
        patch.object(differences, "WHOLE_ROWS", 2),
        patch.object(WholeFiles, "write", autospec=True, side_effect=WholeFiles.write) as written,
    ):
        followed.platform.publish_changes(EVENTS)
    assert written.call_count >= 3
    assert {feed: followed.feed(feed) for feed in FEED_OF.values()} == read


def test_a_new_aggregate_comes_to_the_feed(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0, page="here"))
    followed.publish()
    more = {**followed.stream.aggregates, "first_page": {"first": "page"}}
    rules = followed.stream.model_dump() | {
        "sessions": {"timeout": followed.stream.session_timeout, "aggregates": more}
    }
    origin = followed.stream.origin
    followed.stream = Stream.model_validate(rules, context={"origin": origin})
    followed.platform.repair(EVENTS)
    followed.remember()
    followed.publish()
    pre, post = followed.feed()[1:]
    assert (pre["first_page"], post["first_page"], post["changed_columns"]) == (None, "here", ["first_page"])
    assert (post["is_db_update"], post["is_downstream"]) == (True, False)


def test_downstream_is_what_the_stream_file_names(tmp_path: Path) -> None:
    followed = Followed(tmp_path)
    followed.stream = followed.stream.model_copy(
        update={"publish": followed.stream.publish.model_copy(update={"downstream": ("event_count",)})}
    )
    followed.take_in(followed.event("a", 0), followed.event("b", 10))
    followed.publish()
    followed.take_in(followed.event("c", 5))
    followed.publish()
    assert [row["is_downstream"] for row in followed.feed()] == [True, True, True]
    followed.take_in(followed.event("c", 5))
    followed.publish()
    assert followed.platform.publish_changes(EVENTS)[1].last_version == 0


def test_a_late_event_costs_a_small_commit(followed: Followed) -> None:
    events: Sequence[Record] = [followed.event("a", 0, f"{number}") for number in range(300)]
    followed.take_in(*events)
    followed.publish()
    followed.take_in(followed.event("b", 10, "7"))
    assert 0 < followed.publish()[SESSION_CHANGES].bytes_written < 20_000


def _snapshots(followed: Followed) -> list[int]:
    table = followed.platform.lake.catalog.load_table(EVENTS, SESSION_CHANGES)
    return [snapshot.snapshot_id for snapshot in ancestry(table)]


def _state(followed: Followed) -> Any:
    return Reader().read(followed.platform, followed.stream)


def test_upkeep_of_a_feed_keeps_its_versions_and_where_it_is(followed: Followed) -> None:
    for number in range(4):
        followed.take_in(followed.event(f"{number}", 60 * number))
        followed.publish()
    before = followed.feed()
    followed.clock.advance(timedelta(days=30))
    done = {each.table: each for each in followed.platform.maintain(EVENTS)}
    assert done[SESSION_CHANGES].snapshots_expired == 4
    assert followed.feed() == before
    with patch.object(Table, "scan", side_effect=AssertionError("read for a position")):
        assert followed.publish()[SESSION_CHANGES].last_version == 0


def test_upkeep_after_a_commit_that_changed_no_row_leaves_commits_apart(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    followed.platform.change_buckets(EVENTS, 2)
    followed.clock.advance(timedelta(days=30))
    followed.platform.maintain(EVENTS)
    for number in range(2):
        followed.take_in(followed.event(f"{number}", 60 + 60 * number))
    done = followed.publish()[SESSION_CHANGES]
    assert (done.first_version, done.last_version) == (2, 3)


def test_a_follower_that_looked_at_the_table_too_early_takes_nothing_back(followed: Followed) -> None:
    followed.take_in(followed.event("a", 0))
    followed.publish()
    prepare, rounds = FeedTable.prepare, iter(range(100))

    def meanwhile(feed: FeedTable) -> FeedPosition:
        if next(rounds) == 0:
            followed.take_in(followed.event("b", 60))
            followed.publish()
        return prepare(feed)

    with patch.object(FeedTable, "prepare", meanwhile):
        followed.platform.publish_changes(EVENTS)
    followed.publish()
    assert [kind for _, kind, _ in followed.kinds()] == ["insert", "insert"]
