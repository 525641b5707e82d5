"""Times are read exactly, and what is no time is told apart from what is."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from dedup_platform.planning.moments import microseconds, utc_datetime
from dedup_platform.sources.times import ZONE_MARK, time_reader
from dedup_platform.stream import ZoneField


def read(text: str, time_format: str | tuple[str, ...] | None = None, timezone: str = "UTC") -> str | None:
    moment = time_reader(time_format, timezone)(text)
    return None if moment is None else utc_datetime(moment).isoformat()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01", "2024-03-01T00:00:00+00:00"),
        ("2024-03-01 12:30", "2024-03-01T12:30:00+00:00"),
        ("2024-03-01T12:30:45", "2024-03-01T12:30:45+00:00"),
        ("2024-03-01t12:30:45z", "2024-03-01T12:30:45+00:00"),
        ("2024-03-01T12:30:45.1Z", "2024-03-01T12:30:45.100000+00:00"),
        ("2024-03-01T12:30:45,123456Z", "2024-03-01T12:30:45.123456+00:00"),
        ("2024-03-01T12:30:45.123456999Z", "2024-03-01T12:30:45.123456+00:00"),
        ("2024-03-01T00:30:00+02:00", "2024-02-29T22:30:00+00:00"),
        ("2024-03-01T00:30:00-0530", "2024-03-01T06:00:00+00:00"),
        ("2024-03-01 00:30:00+01", "2024-02-29T23:30:00+00:00"),
        ("0001-01-01", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999+00:00"),
        ("1709296245", None),
        ("1709296245123", None),
        ("20240301", None),
        ("2024-03-01T123045", None),
        ("2024-W09-5", None),
        ("2024-02-30", None),
        ("2024-03-01T24:00:00", None),
        ("2024-03-01T23:59:60Z", None),
        ("10000-01-01", None),
        ("٢٠٢٤-03-01", None),
        (" 2024-03-01", None),
        ("2024-03-01T12:30:45 Z", None),
        ("2024-03-01T12:30:45+00:60", None),
        ("2024-03-01T12:30:45-0199", None),
        ("2024-03-01T12:30:45+24:00", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_iso_8601(text: str, expected: str | None) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("time_format", "text", "expected"),
    [
        ("%d/%m/%Y %H:%M", "01/03/2024 12:30", "2024-03-01T12:30:00+00:00"),
        ("%d/%m/%Y %H:%M:%S %z", "01/03/2024 12:30:00 +0200", "2024-03-01T10:30:00+00:00"),
        ("%d/%m/%Y %H:%M", "2024-03-01 12:30", None),
        ("epoch_ns", "1709296245123456789", "2024-03-01T12:30:45.123456+00:00"),
        ("epoch_ns", "-1", "1969-12-31T23:59:59.999999+00:00"),
        ("epoch_ns", "1.5", "1970-01-01T00:00:00+00:00"),
        ("iso8601", "2024-03-01T12:30:45Z", "2024-03-01T12:30:45+00:00"),
        (("%d.%m.%Y", "%m/%d/%Y", "iso8601"), "01.03.2024", "2024-03-01T00:00:00+00:00"),
        (("%d.%m.%Y", "%m/%d/%Y", "iso8601"), "03/01/2024", "2024-03-01T00:00:00+00:00"),
        (("%d.%m.%Y", "%m/%d/%Y", "iso8601"), "2024-03-01", "2024-03-01T00:00:00+00:00"),
        (("%d/%m/%Y", "%m/%d/%Y"), "01/03/2024", "2024-03-01T00:00:00+00:00"),
        (("%d.%m.%Y", "epoch_s"), "1709296245", "2024-03-01T12:30:45+00:00"),
        (("%d.%m.%Y", "epoch_s"), "2024-03-01", None),
        ("epoch_s", "1709296245", "2024-03-01T12:30:45+00:00"),
        ("epoch_s", "1709296245.123456", "2024-03-01T12:30:45.123456+00:00"),
        ("epoch_s", "1.709296245e9", "2024-03-01T12:30:45+00:00"),
        ("epoch_ms", "1709296245123", "2024-03-01T12:30:45.123000+00:00"),
        ("epoch_ms", "1709296245123.4567", "2024-03-01T12:30:45.123456+00:00"),
        ("epoch_us", "1709296245123456", "2024-03-01T12:30:45.123456+00:00"),
        ("epoch_s", "-1", "1969-12-31T23:59:59+00:00"),
        ("epoch_s", "-0.0000001", "1969-12-31T23:59:59.999999+00:00"),
        ("epoch_s", "2024-03-01", None),
        ("epoch_s", "1_709", None),
        ("epoch_s", "nan", None),
        ("epoch_s", "1e999999999", None),
    ],
)
def test_formats(time_format: str | tuple[str, ...], text: str, expected: str | None) -> None:
    assert read(text, time_format) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-07-01 12:00", "2024-07-01T10:00:00+00:00"),
        ("2024-01-01 12:00", "2024-01-01T11:00:00+00:00"),
        ("2024-01-01 12:00Z", "2024-01-01T12:00:00+00:00"),
        ("2024-10-27 02:30", "2024-10-27T00:30:00+00:00"),  # happens twice: the first
        ("2024-03-31 02:30", "2024-03-31T01:30:00+00:00"),  # never happens: as if the clock had not jumped
    ],
)
def test_a_time_without_offset_is_in_the_zone(text: str, expected: str) -> None:
    assert read(text, timezone="Europe/Paris") == expected


def test_a_time_beyond_the_years_of_datetime_is_a_number_still() -> None:
    assert time_reader(None, "UTC")("9999-12-31T23:00:00-02:00") == 253_402_304_400_000_000
    assert time_reader("epoch_s", "UTC")("99999999999999") == 99_999_999_999_999_000_000


@given(st.datetimes(timezones=st.just(UTC)))
def test_every_microsecond_comes_back(moment: datetime) -> None:
    assert time_reader(None, "UTC")(moment.isoformat()) == microseconds(moment)
    assert utc_datetime(microseconds(moment)) == moment


@given(st.integers(-(10**18), 10**18))
def test_epochs_are_exact(moment: int) -> None:
    sign, seconds, fraction = "-" * (moment < 0), *divmod(abs(moment), 1_000_000)
    assert time_reader("epoch_s", "UTC")(f"{sign}{seconds}.{fraction:06}") == moment
    assert time_reader("epoch_us", "UTC")(str(moment)) == moment


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Europe/Paris", "2024-03-01T11:30:00+00:00"),
        ("America/Argentina/Buenos_Aires", "2024-03-01T15:30:00+00:00"),
        ("UTC", "2024-03-01T12:30:00+00:00"),
        ("Etc/GMT+5", "2024-03-01T17:30:00+00:00"),
        ("Z", "2024-03-01T12:30:00+00:00"),
        ("+02:00", "2024-03-01T10:30:00+00:00"),
        ("-0530", "2024-03-01T18:00:00+00:00"),
        ("+14", "2024-02-29T22:30:00+00:00"),
        ("+24:00", None),
        ("+00:60", None),
        ("", None),
        ("Europe", None),
        ("Nowhere/Else", None),
        ("localtime", None),
        ("../etc/passwd", None),
        ("x" * 10_000, None),
    ],
)
def test_the_zone_of_a_record(zone: str, expected: str | None) -> None:
    read_time = time_reader(("%d.%m.%Y %H:%M", "iso8601", "epoch_s"), ZoneField(field="zone"))
    moment = read_time(f"01.03.2024 12:30{ZONE_MARK}{zone}")
    assert (None if moment is None else utc_datetime(moment).isoformat()) == expected
    for known in ("2024-03-01T14:30:00+02:00", "1709296200"):
        assert read_time(f"{known}{ZONE_MARK}{zone}") == microseconds(datetime(2024, 3, 1, 12, 30, tzinfo=UTC))


def test_numbers_of_a_zone_of_a_record_are_read_without_it() -> None:
    assert time_reader("epoch_ms", ZoneField(field="zone"))(f"5{ZONE_MARK}") == 5_000
