"""What is counted of a cell's rows: when an event is late, and how long lateness is told."""

from datetime import timedelta

import polars as pl
import pytest

from dedup_platform.planning.figures import CellFigures, Lateness, added_up
from dedup_platform.rules.figures import lateness
from dedup_platform.testing import utc

CLOSES = utc("2024-03-02T01:00")
TICK = timedelta(microseconds=1)


def of(*delays: timedelta) -> Lateness:
    """The lateness of events that arrived so long after their partition closed."""
    arrivals = [CLOSES + delay for delay in delays]
    return lateness(pl.Series(arrivals, dtype=pl.Datetime("us", "UTC")), CLOSES)


def test_what_arrives_as_its_partition_closes_is_not_late() -> None:
    assert of() == of(timedelta(0), -TICK, timedelta(days=-3)) == Lateness()
    assert of(TICK, timedelta(0)) == Lateness({0: 1}, TICK)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(999, 999), (1000, 1000), (1009, 1000), (1010, 1010), (9999, 9990), (10_099, 10_000), (1_234_567, 1_230_000)],
)
def test_three_digits_of_seconds_are_told_and_the_longest_is_exact(seconds: int, told: int) -> None:
    exact = timedelta(seconds=seconds) + TICK
    assert of(exact) == Lateness({told: 1}, exact)


def test_cells_add_up() -> None:
    one, other = CellFigures(1, of(TICK, timedelta(hours=1))), CellFigures(2, of(timedelta(hours=1), timedelta(days=1)))
    assert added_up([one, other]) == CellFigures(3, Lateness({0: 1, 3600: 2, 86_400: 1}, timedelta(days=1)))
    assert added_up([]) == CellFigures()
