"""Statistics of clocks: percentiles of added counts, what counts as ahead, and which sources are told apart."""

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.clock_skew import SHOWN, Observed, clocks, skew_bin, skew_seconds
from dedup_platform.sources.records import EVENT_TIME_IN_FUTURE, MALFORMED_RECORD

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TENS_OF_YEARS = 10**9


def rows(skews: list[float | None]) -> pl.DataFrame:
    """Rows of raw with these skews in seconds; a rejected row has none."""
    events = [None if skew is None else NOON - timedelta(seconds=skew) for skew in skews]
    of_type = pl.Datetime("us", "UTC")
    return pl.DataFrame(
        {"event_time": events, "arrival_time": [NOON] * len(skews)},
        schema={"event_time": of_type, "arrival_time": of_type},
    )


def observed(*skews: float | None, source: str = "a", rejected: dict[str, int] | None = None) -> Observed:
    found = rows(list(skews)).select(skew_bin().alias("bucket"), skew_seconds().alias("seconds")).drop_nulls()
    counts = dict(found["bucket"].value_counts().iter_rows())
    longest = [value for value in found["seconds"] if value is not None]
    return Observed(source, 0, rejected or {}, counts, max(longest, default=None))


@given(
    st.lists(st.floats(-TENS_OF_YEARS, TENS_OF_YEARS).map(lambda seconds: round(seconds, 6)), min_size=1, max_size=60),
    st.integers(0, 60),
)
def test_percentiles_of_any_split_are_right_to_a_hundredth(skews: list[float], cut: int) -> None:
    overall = clocks([observed(*skews[:cut]), observed(*skews[cut:])]).overall
    ordered = sorted(skews)
    for found, share in ((overall.p50, 50), (overall.p99, 99)):
        exact = ordered[-(-share * len(ordered) // 100) - 1]
        assert found == pytest.approx(exact, rel=0.011, abs=0.001)
    assert overall.max == pytest.approx(ordered[-1])
    assert (overall.events, overall.ahead) == (len(skews), sum(skew <= -0.001 for skew in skews))


def test_records_that_were_rejected_for_being_ahead_are_ahead() -> None:
    overall = clocks([observed(1.0, -2.0, None, None, rejected={EVENT_TIME_IN_FUTURE: 1, MALFORMED_RECORD: 1})]).overall
    assert (overall.events, overall.ahead) == (2, 2)


def test_without_events_there_is_no_skew() -> None:
    overall = clocks([observed(None, rejected={MALFORMED_RECORD: 1})]).overall
    assert (overall.events, overall.p50, overall.p99, overall.max, overall.ahead) == (0, None, None, None, 0)


def test_the_worst_sources_are_told_apart_those_ahead_first() -> None:
    many = [observed(float(number), source=f"{number:03}") for number in range(SHOWN + 5)]
    found = clocks([*many, observed(-1.0, source="ahead")])
    assert len(found.worst) == SHOWN
    assert [skew.source for skew in found.worst[:3]] == ["ahead", "024", "023"]
    assert found.overall.events == SHOWN + 6


def test_parts_of_one_source_are_one() -> None:
    [skew] = clocks([observed(1.0), observed(3.0)]).worst
    assert (skew.events, skew.max) == (2, 3.0)
