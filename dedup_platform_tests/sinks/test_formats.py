"""Times as texts are what Polars itself formats."""

from datetime import UTC, datetime

import polars as pl
import pytest

from dedup_platform.sinks.formats import TIME, times_as_text

FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    "times",
    [
        [],
        [None],
        [FIRST, LAST],
        [NEW_YEAR, None, NEW_YEAR],
        [BEFORE_1970, datetime(1970, 1, 1, tzinfo=UTC), BEFORE_1970.replace(microsecond=0)],
        [FIRST, FIRST.replace(day=2), FIRST.replace(day=3)],
        [LAST.replace(day=30, microsecond=1), LAST],
        [NEW_YEAR.replace(hour=hour, minute=59 - hour, microsecond=10**n) for hour in range(24) for n in range(6)],
    ],
    ids=["none", "null", "far apart", "null among others", "before 1970", "year one", "year 9999", "within a day"],
)
def test_times_are_formatted(times: list[datetime | None]) -> None:
    moments = pl.Series("at", times, pl.Datetime("us", "UTC"))
    found = times_as_text(moments)
    assert found.name == "at"
    assert found.to_list() == moments.dt.strftime(TIME).to_list()
    if times == [FIRST, LAST]:
        assert found.to_list() == ["0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z"]
