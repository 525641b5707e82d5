"""Which rows are chosen: those that fit every kind of which something is named."""

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from dedup_platform.changes import Choice
from dedup_platform.tables import DEDUPLICATED_EVENTS, SESSIONS
from dedup_platform.testing import make_stream, utc

DAY = utc("2024-03-01")
ROWS = pl.DataFrame(
    {
        "session_id": ["1", "2", "3", "4"],
        "entity_id": ["a", "a", "b", None],
        "started_at": [DAY, DAY + timedelta(days=1), DAY, DAY],
    }
)
FIRST = (DAY - utc("1970-01-01")).days


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        (Choice(), "1234"),
        (Choice(entities=frozenset("a")), "12"),
        (Choice(partitions=frozenset([FIRST])), "134"),
        (Choice(partitions=frozenset([FIRST, FIRST + 1])), "1234"),
        (Choice(entities=frozenset("ab"), partitions=frozenset([FIRST])), "13"),
        (Choice(entities=frozenset("b"), sessions=frozenset("13")), "3"),
        (Choice(sessions=frozenset("x")), ""),
    ],
)
def test_rows_that_fit(tmp_path: Path, choice: Choice, chosen: str) -> None:
    fits = choice.fits(make_stream(tmp_path), SESSIONS)
    assert "".join(ROWS.filter(fits)["session_id"]) == chosen


def test_what_lets_files_be_left_out_holds_of_all_that_is_chosen(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    said = str(Choice(entities=frozenset("a"), partitions=frozenset([FIRST])).prunes(stream, DEDUPLICATED_EVENTS))
    for part in ("entity_id", "event_time", "2024-03-01T00:00:00", "2024-03-02T00:00:00"):
        assert part in said
    assert str(Choice(sessions=frozenset("1")).prunes(stream, SESSIONS)) == "AlwaysTrue()"


def test_what_is_everything_and_what_names_nothing_but_sessions() -> None:
    assert Choice().is_everything
    assert not Choice(sessions=frozenset("1")).is_everything
    assert Choice(sessions=frozenset("1")).is_of_sessions
    assert not Choice(sessions=frozenset("1"), entities=frozenset("a")).is_of_sessions
