"""Which files of a feed are read for the changes after a position, and in which order."""

from pathlib import Path
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given, strategies as st

from dedup_platform.changes import feeds
from dedup_platform.changes.reading import FeedReader
from dedup_platform.lake.feed_files import Change, FeedFile, feed_files, in_turns
from dedup_platform.lake.table_files import TableFiles
from dedup_platform.sinks import Position
from dedup_platform.tables import SESSION_CHANGES, SESSIONS
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced

CHANGE = st.tuples(st.integers(1, 6), st.integers(0, 6))
FILES = st.lists(st.tuples(CHANGE, CHANGE).map(sorted), max_size=8)


def files(bounds: list[list[Change]]) -> list[FeedFile]:
    """Files of these first and last changes; each stands for itself."""
    return sorted(
        (FeedFile(number, *each) for number, each in enumerate(bounds)),  # type: ignore[arg-type]
        key=lambda each: (each.first, each.last),
    )


@given(FILES, CHANGE)
def test_each_file_with_something_new_is_in_one_group(bounds: list[list[Change]], after: Change) -> None:
    found = [number for group in in_turns(files(bounds), after) for number in group]
    assert sorted(found) == [number for number, (_, last) in enumerate(bounds) if last > after]  # type: ignore[type-var]


@given(FILES, CHANGE)
def test_what_is_in_a_group_comes_before_all_of_the_next(bounds: list[list[Change]], after: Change) -> None:
    groups = list(in_turns(files(bounds), after))
    for place, group in enumerate(groups):
        last = max(bounds[number][1] for number in group)  # type: ignore[call-overload]
        assert all(bounds[number][0] > last for later in groups[place + 1 :] for number in later)  # type: ignore[call-overload]


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


def feed_of(followed: Followed) -> list[FeedFile]:
    return feed_files(followed.platform.lake.catalog.load_table(EVENTS, SESSION_CHANGES))


def test_a_large_version_lies_in_files_that_are_read_one_after_the_other(followed: Followed) -> None:
    with replaced(has_spark=False), patch.object(feeds, "FILE_ROWS", 4):
        followed.take_in(*(followed.event(f"{number}", 0, entity=f"e{number}") for number in range(2)))
        followed.take_in(*(followed.event(f"{number}", 0, entity=f"e{number}") for number in range(2, 20)))
        followed.take_in(
            *(followed.event(f"late{number}", 10, entity=f"e{number}") for number in range(10)),
            *(followed.event(f"new{number}", 500, entity=f"e{number}") for number in range(10)),
        )
        followed.publish()
    found = feed_of(followed)
    assert len(found) > 8
    groups = list(in_turns(found, (0, 0)))
    assert max(len(group) for group in groups) == 1, "no two files must be in memory to have their changes in order"


def test_changes_come_in_order_and_only_new_ones(followed: Followed) -> None:
    with replaced(has_spark=False), patch.object(feeds, "FILE_ROWS", 4):
        for number in range(4):
            events = (followed.event(f"{number}/{each}", 20 * number, entity=f"e{each}") for each in range(9))
            followed.take_in(*events)
            followed.publish()
        reader = FeedReader(followed.platform.lake, followed.stream, SESSIONS, "any")
        told = [(row["_commit_version"], row["_change_ordinal"]) for row in followed.feed()]
        for version, ordinal in [(0, None), (1, None), (2, 3), (3, None), (4, None)]:
            pieces = list(reader.changes(Position("feed", version, ordinal)))
            found = [change for piece in pieces for change in piece[["_commit_version", "_change_ordinal"]].rows()]
            done = (version, 2**63 if ordinal is None else ordinal)
            assert found == [change for change in told if change > done]


def test_reading_what_is_new_reads_no_old_file(followed: Followed) -> None:
    with replaced(has_spark=False):
        for number in range(6):
            followed.take_in(followed.event(f"{number}", 60 * number))
            followed.publish()
        reader = FeedReader(followed.platform.lake, followed.stream, SESSIONS, "any")
        read, whole = [], TableFiles.read

        def noting(of: TableFiles, chosen: list[object], names: list[str]) -> object:
            read.extend(chosen)
            return whole(of, chosen, names)  # type: ignore[arg-type]

        with patch.object(TableFiles, "read", noting):
            [piece] = reader.changes(Position("feed", 5))
    assert piece["_commit_version"].to_list() == [6]
    assert len(read) == 1


def test_upkeep_leaves_changes_in_order(followed: Followed) -> None:
    with replaced(has_spark=False):
        for number in range(6):
            followed.take_in(followed.event(f"{number}", 45 * number), followed.event(f"{number}b", 45 * number + 25))
            followed.publish()
        before = followed.feed()
        followed.clock.advance(followed.stream.maintenance.snapshot_age * 10)
        followed.platform.maintain(EVENTS)
        assert len(feed_of(followed)) == 1
        reader = FeedReader(followed.platform.lake, followed.stream, SESSIONS, "any")
        found = pl.concat(list(reader.changes(Position("feed", 0)))).to_dicts()
    assert found == [dict(row) for row in before]
