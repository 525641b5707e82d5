"""The id of a session is that of its first-arrived event, whatever comes late and however it is cut into batches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup_platform.tables import SESSION_CHANGES
from dedup_platform.testing import Record
from dedup_platform_tests.changes.test_feeds import Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.variants import some

# The minutes after ten at which events happened, in the order in which they arrive.
FIRST_FOUR = {"A": 0, "B": 5, "C": 20, "D": 31}
LATE = {"E": -3}


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[Followed]:
    with replaced(has_spark=False):
        yield Followed(tmp_path)


def events(followed: Followed, minutes: dict[str, int]) -> list[Record]:
    return [followed.event(name, minute) for name, minute in minutes.items()]


def the_session(followed: Followed) -> tuple[str, str, str, int]:
    [row] = followed.sessions()
    return row["session_id"], f"{row['started_at']:%H:%M}", f"{row['ended_at']:%H:%M}", row["event_count"]


@pytest.mark.parametrize("size", some([1, 2, 3, 4], quick=[1, 2]))
def test_a_late_event_before_all_others_updates_one_session(followed: Followed, size: int) -> None:
    arriving = events(followed, FIRST_FOUR)
    for first in range(0, len(arriving), size):
        followed.take_in(*arriving[first : first + size])
        followed.publish()
    session_id, *_ = the_session(followed)
    before = len(followed.feed())
    followed.take_in(*events(followed, LATE))
    done = followed.publish()[SESSION_CHANGES]
    assert the_session(followed) == (session_id, "09:57", "10:31", 5)
    assert dict(done.changes) == {"update_preimage": 1, "update_postimage": 1}
    old, new = followed.feed()[before:]
    assert (old["session_id"], new["session_id"]) == (session_id, session_id)
    assert new["reason"] == "grown"
    assert set(new["changed_columns"]) == {"started_at", "event_count"} | set(new["changed_columns"])


def test_the_batches_do_not_decide_the_id(followed: Followed, tmp_path: Path) -> None:
    followed.take_in(*events(followed, FIRST_FOUR))
    at_once, *_ = the_session(followed)
    other = Followed(tmp_path / "other")
    for event in events(other, FIRST_FOUR):
        other.take_in(event)
    assert the_session(other)[0] == at_once


def test_the_event_that_arrives_first_gives_the_id(followed: Followed, tmp_path: Path) -> None:
    followed.take_in(*events(followed, FIRST_FOUR))
    by_a, *_ = the_session(followed)
    other = Followed(tmp_path / "other")
    other.take_in(*events(other, LATE))
    by_e, *_ = the_session(other)
    other.take_in(*events(other, FIRST_FOUR))
    assert the_session(other) == (by_e, "09:57", "10:31", 5)
    assert by_e != by_a
