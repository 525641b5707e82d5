"""Typed attributes hold the exact value of their text or are unreadable."""

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.attributes import attribute_reader
from dedup_platform.stream import Attribute


def read(kind: str, text: str, **more: str) -> Any:
    reader = attribute_reader(Attribute(field="x", type=kind, **more))
    assert reader is not None
    return reader(text)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("long", "12", 12),
        ("long", "-12", -12),
        ("long", "+12", 12),
        ("long", "0012", 12),
        ("long", "17850.0", 17850),
        ("long", "1.5e1", 15),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", "9223372036854775808", None),
        ("long", "1.5", None),
        ("long", "1e999", None),
        ("long", "1_000", None),
        ("long", "١٢", None),
        ("long", " 12", None),
        ("long", "twelve", None),
        ("double", "1.5", 1.5),
        ("double", "-1e-3", -0.001),
        ("double", ".5", 0.5),
        ("double", "inf", math.inf),
        ("double", "-Infinity", -math.inf),
        ("double", "1e400", None),
        ("double", "0x10", None),
        ("double", "1,5", None),
        ("boolean", "true", True),
        ("boolean", "False", False),
        ("boolean", "1", True),
        ("boolean", "0", False),
        ("boolean", "yes", None),
        ("decimal(6,2)", "1.5", Decimal("1.50")),
        ("decimal(6,2)", "1.500", Decimal("1.50")),
        ("decimal(6,2)", "1e3", Decimal("1000.00")),
        ("decimal(6,2)", "9999.99", Decimal("9999.99")),
        ("decimal(6,2)", "-9999.99", Decimal("-9999.99")),
        ("decimal(6,2)", "10000", None),
        ("decimal(6,2)", "1.005", None),
        ("decimal(6,2)", "0", Decimal("0.00")),
        ("decimal(6,2)", "NaN", None),
        ("decimal(2,2)", "0.99", Decimal("0.99")),
        ("decimal(2,2)", "1", None),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(38,0)", "9" * 39, None),
        ("decimal(38,38)", "0." + "9" * 38, Decimal("0." + "9" * 38)),
        ("decimal(38,38)", "0." + "9" * 39, None),
        ("timestamp", "2024-03-01T12:30:45.123456+01:00", 1_709_292_645_123_456),
        ("timestamp", "0001-01-01", -62_135_596_800_000_000),
        ("timestamp", "9999-12-31T23:00:00-02:00", None),
        ("timestamp", "1709296245", None),
        ("date", "1970-01-02", 1),
        ("date", "0001-01-01", -719_162),
        ("date", "2024-02-30", None),
        ("date", "2024-03-01T00:00:00", None),
        ("date", "20240301", None),
    ],
)
def test_values(kind: str, text: str, expected: Any) -> None:
    value = read(kind, text)
    assert value == expected
    assert type(value) is type(expected)
    assert str(value) == str(expected)


def test_not_a_number_is_a_double() -> None:
    assert math.isnan(read("double", "NaN"))


def test_zero_has_no_sign() -> None:
    assert math.copysign(1, read("double", "-0.0")) == 1


def test_format_and_zone() -> None:
    assert read("date", "2.1.1970", format="%d.%m.%Y") == 1
    assert read("timestamp", "2.1.1970", format="%d.%m.%Y", timezone="Europe/Paris") == 82_800_000_000


def test_texts_are_taken_as_they_are() -> None:
    assert attribute_reader(Attribute(field="x")) is None


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**30), max_value=10**30))
def test_decimals_keep_every_digit(number: Decimal) -> None:
    assert read("decimal(38,5)", str(number)) == number


@given(st.dates())
def test_every_date_comes_back(day: date) -> None:
    assert date.fromordinal(read("date", day.isoformat()) + date(1970, 1, 1).toordinal()) == day
