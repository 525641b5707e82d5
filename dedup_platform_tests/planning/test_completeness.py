"""When partitions are open, closed and settled: the boundaries."""

from datetime import datetime, timedelta

import pytest

from dedup_platform.planning.completeness import completeness
from dedup_platform.planning.moments import EPOCH

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)
CLOSES = EPOCH + DAY + HOUR
NOW = EPOCH + 10 * DAY


def states(latest: datetime | None, *stale: int, now: datetime = NOW) -> dict[int, str]:
    """The states of days 0 and 1, the latest arrival being in day 1."""
    return dict(completeness({0: EPOCH, 1: latest}, stale, DAY, HOUR, now).states)


@pytest.mark.parametrize(
    ("latest", "state"), [(CLOSES - TICK, "open"), (CLOSES, "settled"), (CLOSES + TICK, "settled")]
)
def test_a_partition_closes_when_the_watermark_reaches_its_end_and_the_grace(latest: datetime, state: str) -> None:
    assert states(latest) == {0: state, 1: "open"}


def test_a_closed_partition_with_something_stale_is_not_settled() -> None:
    assert states(CLOSES, 0) == {0: "closed", 1: "open"}
    assert states(CLOSES, 1) == {0: "settled", 1: "open"}


def test_a_stale_partition_without_records_is_shown() -> None:
    assert states(CLOSES, -3) == {-3: "closed", 0: "settled", 1: "open"}


def test_an_arrival_ahead_of_the_clock_closes_nothing_that_now_would_not() -> None:
    found = completeness({0: EPOCH, 1: NOW + 100 * DAY}, (), DAY, HOUR, now=CLOSES)
    assert found.watermark == CLOSES
    assert dict(found.states) == {0: "settled", 1: "open"}


def test_without_arrivals_all_is_open() -> None:
    assert states(None)[1] == "open"
    assert completeness({}, (), DAY, HOUR, NOW).watermark is None
    assert dict(completeness({}, (3,), DAY, HOUR, NOW).states) == {3: "open"}


def test_the_last_partition_there_is_never_closes() -> None:
    last = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // DAY
    assert dict(completeness({last: NOW}, (), DAY, HOUR, NOW).states) == {last: "open"}
