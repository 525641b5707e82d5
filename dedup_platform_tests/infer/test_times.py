"""Which texts are times, in which of the formats that a stream file takes, and when a session's gap ends."""

from datetime import timedelta

import polars as pl
import pytest

from dedup_platform.infer.columns import columns_of
from dedup_platform.infer.timeout import timeout_of
from dedup_platform.infer.times import FORMATS, TimeColumn, time_columns, zone_column
from dedup_platform.stream import TimeField
from dedup_platform.testing import utc

NOW = utc("2024-06-01")


def found(*texts: str, name: str = "at") -> TimeColumn | None:
    return next(iter(time_columns(columns_of([{name: text} for text in texts], is_flat=True), NOW)), None)


@pytest.mark.parametrize(
    ("texts", "time_format", "is_local"),
    [
        (["2024-03-01T10:00:00Z", "2024-03-01T11:00:00.5+02:00"], "iso8601", False),
        (["2024-03-01 10:00:00", "2024-03-01 11:00"], "iso8601", True),
        (["1709287200", "1709290800.5"], "epoch_s", False),
        (["1709287200000", "1709290800000"], "epoch_ms", False),
        (["1709287200000000", "1709290800000000"], "epoch_us", False),
        (["1709287200000000000", "1709290800000000000"], "epoch_ns", False),
        (["13/02/2024 10:00:00", "01/03/2024 10:00:00"], "%d/%m/%Y %H:%M:%S", True),
        (["02/13/2024 10:00", "03/01/2024 10:00"], "%m/%d/%Y %H:%M", True),
        (["02/28/2024 10:00 PM", "03/01/2024 1:00 AM"], "%m/%d/%Y %I:%M %p", True),
        (["01.03.2024, 10:00:00", "31.03.2024, 10:00:00"], "%d.%m.%Y, %H:%M:%S", True),
        (["01/Mar/2024:10:00:00 +0100"], "%d/%b/%Y:%H:%M:%S %z", False),
        (["Fri, 01 Mar 2024 10:00:00 GMT"], "%a, %d %b %Y %H:%M:%S GMT", False),
        (["20240301T100000Z"], "%Y%m%dT%H%M%SZ", False),
        (["20240301100000"], "%Y%m%d%H%M%S", True),
    ],
)
def test_formats(texts: list[str], time_format: str, is_local: bool) -> None:
    time = found(*texts)
    assert time is not None
    assert (time.format, time.is_local, time.is_ambiguous) == (time_format, is_local, False)


def test_day_and_month_that_may_be_the_other_way_round_lie_close_together_or_are_told() -> None:
    a_week = found("01/03/2024 10:00:00", "02/03/2024 10:00:00", "05/03/2024 10:00:00")
    assert a_week is not None
    assert (a_week.format, a_week.is_ambiguous) == ("%d/%m/%Y %H:%M:%S", False)
    one_day = found("03/03/2024 10:00:00", "03/03/2024 11:00:00")
    assert one_day is not None
    assert one_day.is_ambiguous


@pytest.mark.parametrize("text", ["2489395767", "17850.0", "12345", "Page 5", "203.0.113.70", "500.0", "20", "x" * 99])
def test_what_is_no_time(text: str) -> None:
    assert found(text, text) is None


@pytest.mark.parametrize("time_format", FORMATS)
def test_every_format_may_stand_in_a_stream_file(time_format: str) -> None:
    TimeField.model_validate({"field": "at", "format": time_format})


@pytest.mark.parametrize(
    ("values", "is_zone"), [(["Europe/Paris", "UTC"], True), (["+02:00"], True), (["500.0"], False)]
)
def test_zones_in_a_column(values: list[str], is_zone: bool) -> None:
    assert bool(zone_column(columns_of([{"tz": each} for each in values], is_flat=True))) == is_zone


def gaps_of(*minutes: float) -> tuple[pl.Series, pl.Series]:
    """Two hundred events for each of these gaps, of one entity."""
    steps = pl.Series([0.0, *(list(minutes) * 200)]).cum_sum() * 60_000_000
    return pl.Series(["a"] * len(steps)), steps.cast(pl.Int64)


@pytest.mark.parametrize(
    ("minutes", "timeout"),
    [
        ((0.5, 2.0, 600.0), 30),
        ((0.1, 0.2, 0.3, 25.0, 35.0, 40.0, 600.0, 700.0), 10),
        ((0.1, 20.0, 40.0, 50.0, 3000.0), 120),
        ((0.1,), 30),
    ],
    ids=["nothing near half an hour", "much near half an hour", "long pauses", "no pauses"],
)
def test_a_timeout_lies_where_there_are_fewest_gaps(minutes: tuple[float, ...], timeout: int) -> None:
    assert timeout_of(*gaps_of(*minutes)).length == timedelta(minutes=timeout)


def test_few_gaps_tell_nothing() -> None:
    timeout = timeout_of(pl.Series(["a", "a", "b"]), pl.Series([0, 1, 2]))
    assert (timeout.length, timeout.evidence) == (
        timedelta(minutes=30),
        "usual; 1 gaps between events of an entity are too few to tell",
    )
