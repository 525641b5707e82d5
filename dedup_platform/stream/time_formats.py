"""How times are written: as ISO 8601, as a number of ticks since 1970, or in a format of strptime's."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

__all__ = ["EPOCH_UNITS", "ISO_8601", "TimeFormats", "formats_of"]

EPOCH_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
"""Name -> ticks per second."""
ISO_8601 = "iso8601"
"""The format of times that have no other, by its name among several."""

_UNITS_ELSEWHERE = {
    "epoch_s": ("s", "sec", "secs", "second", "seconds", "epoch", "unix", "unixtime", "unixtimestamp"),
    "epoch_ms": ("ms", "milli", "millis", "millisecond", "milliseconds"),
    "epoch_us": ("us", "micro", "micros", "microsecond", "microseconds"),
    "epoch_ns": ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
    "iso8601": ("iso", "iso8601", "rfc3339"),
}
"""What others call these formats, without underscores; `epoch`, `unix` or `timestamp` may stand before it."""


def formats_of(value: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The formats of a time, in the order in which they are tried."""
    return (value or ISO_8601,) if not isinstance(value, tuple) else value


def _time_formats(value: Any) -> str | tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return _time_format(value)
    if not value or len(set(map(str, value))) != len(value):
        raise ValueError("must be a format, or a list of distinct ones that are tried in order")
    return tuple(map(_time_format, value))


def _time_format(value: Any) -> str:
    if value in (*EPOCH_UNITS, ISO_8601):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"is no format; write a text like %Y-%m-%d %H:%M:%S, or {_any_of(EPOCH_UNITS)}")
    sample = datetime(2021, 11, 23, 17, 45, 56, 123_456, tzinfo=UTC)
    try:
        read = datetime.strptime(sample.strftime(value), value).date()
    except ValueError:
        raise ValueError(_no_format(value)) from None
    if read != sample.date():
        if "%" not in value:
            raise ValueError(_no_format(value))
        raise ValueError("does not tell the year, the month and the day; write a format like %Y-%m-%d %H:%M:%S")
    return value


def _no_format(value: str) -> str:
    known = (*EPOCH_UNITS, ISO_8601)
    if close := _meant_name(value):
        return f"is no format; did you mean {close}? Allowed: {_any_of(known)}, or one like %Y-%m-%d %H:%M:%S"
    return f"is no strptime format; write one like %Y-%m-%d %H:%M:%S, or {_any_of(known)}"


def _meant_name(value: str) -> str | None:
    """The name of a format that somebody meant who wrote another library's name for it, or mistyped ours."""
    name = re.sub(r"[^a-z0-9]", "", value.lower())
    for unit, others in _UNITS_ELSEWHERE.items():
        if any(name in (other, f"epoch{other}", f"unix{other}", f"timestamp{other}") for other in others):
            return unit
    close = get_close_matches(value.lower(), (*EPOCH_UNITS, ISO_8601), n=1) if "%" not in value else []
    return next(iter(close), None)


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(names)


_A_FORMAT = {"anyOf": [{"enum": [ISO_8601, *EPOCH_UNITS]}, {"type": "string", "pattern": "%"}]}
TimeFormats = Annotated[
    str | tuple[str, ...],
    PlainValidator(_time_formats),
    PlainSerializer(lambda value: value, return_type=Any),
    WithJsonSchema(
        {"title": "time format", "anyOf": [*_A_FORMAT["anyOf"], {"type": "array", "items": _A_FORMAT, "minItems": 1}]}
    ),
]
