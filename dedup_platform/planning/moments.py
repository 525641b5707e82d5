"""Moments and durations as whole microseconds, the unit of all times in tables."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Clock = Callable[[], datetime]
"""Tells the time, with its zone."""
_MICROSECOND = timedelta(microseconds=1)


def in_microseconds(duration: timedelta) -> int:
    """Whole microseconds of a duration, exact."""
    return duration // _MICROSECOND


def microseconds(moment: datetime) -> int:
    """Whole microseconds from 1970-01-01 UTC to an aware datetime."""
    return (moment - EPOCH) // _MICROSECOND


def utc_datetime(moment: int) -> datetime:
    """The datetime of some microseconds since 1970-01-01 UTC."""
    return EPOCH + timedelta(microseconds=moment)


def utc_now() -> datetime:
    """The clock on the wall."""
    return datetime.now(UTC)
