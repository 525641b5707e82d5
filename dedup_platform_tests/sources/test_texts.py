"""Typed values as texts: nothing is rounded, and what no calendar has stays a number."""

import struct
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.text.canonical_text import (
    base64_text,
    date_text,
    decimal_text,
    double_text,
    float_text,
    time_text,
    timestamp_text,
)
from dedup_platform.sources.text.json_records import Number
from dedup_platform.sources.times import time_reader


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_of_32_bits_is_the_shortest_text_that_reads_back_equal(value: float) -> None:
    text = float_text(value)
    assert isinstance(text, Number)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    digits = len(text.lower().split("e")[0].replace(".", "").strip("-0"))
    assert digits < 2 or struct.pack("<f", float(f"{value:.{digits - 1}g}")) != struct.pack("<f", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_of_64_bits_reads_back_equal(value: float) -> None:
    assert struct.pack("<d", float(double_text(value))) == struct.pack("<d", value)


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity")]
)
def test_what_is_no_number_of_json_is_a_text(value: float, text: str) -> None:
    assert double_text(value) == float_text(value) == text
    assert not isinstance(double_text(value), Number)


@given(st.datetimes())
def test_a_moment_reads_back_equal(moment: datetime) -> None:
    ticks = microseconds(moment.replace(tzinfo=UTC))
    assert time_reader(None, "UTC")(timestamp_text(ticks, 1_000_000, "Z")) == ticks
    assert time_reader(None, "UTC")(timestamp_text(ticks * 1_000, 1_000_000_000, "")) == ticks


@pytest.mark.parametrize(
    ("ticks", "per_second", "text"),
    [
        (0, 1_000, "1970-01-01T00:00:00Z"),
        (-1, 1_000, "1969-12-31T23:59:59.999Z"),
        (1, 1_000_000, "1970-01-01T00:00:00.000001Z"),
        (1_000, 1_000_000, "1970-01-01T00:00:00.001Z"),
        (1_000_000, 1_000_000_000, "1970-01-01T00:00:00.001Z"),
        (-62_135_596_800_001, 1_000, "-62135596800001"),
        (253_402_300_799_999, 1_000, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, 1_000, "253402300800000"),
    ],
)
def test_moments(ticks: int, per_second: int, text: str) -> None:
    assert timestamp_text(ticks, per_second, "Z") == text


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0, "1970-01-01"),
        (-719_162, "0001-01-01"),
        (-719_163, "-719163"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "2932897"),
    ],
)
def test_dates(days: int, text: str) -> None:
    assert date_text(days) == text


@pytest.mark.parametrize(
    ("ticks", "text"), [(0, "00:00:00"), (86_399_999, "23:59:59.999"), (86_400_000, "86400000"), (-1, "-1")]
)
def test_times_of_day(ticks: int, text: str) -> None:
    assert time_text(ticks, 1_000) == text


@given(st.integers(-(10**38), 10**38), st.integers(0, 38))
def test_a_decimal_is_exact(unscaled: int, scale: int) -> None:
    text = decimal_text(unscaled, scale)
    assert "E" not in text
    assert Decimal(text) == Decimal(unscaled).scaleb(-scale) or len(str(unscaled)) > 28
    assert Decimal(text).as_tuple().exponent == -scale


def test_bytes_are_base64() -> None:
    assert (base64_text(b""), base64_text(b"\0\xff\xfe")) == ("", "AP/+")


def test_a_moment_is_text_but_no_moment_is_a_number() -> None:
    assert not isinstance(timestamp_text(0, 1, "Z"), Number)
    assert isinstance(timestamp_text(2**60, 1, "Z"), Number)
