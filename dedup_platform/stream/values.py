"""What all parts of a stream file share: durations, sizes, time zones, and the names that it may choose.

Each type accepts the text of a stream file or the Python value; what it refuses, it refuses with what is allowed.
"""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)

__all__ = [
    "LATER",
    "PUBLISHED_COLUMNS",
    "RESERVED_COLUMNS",
    "AttributeType",
    "ColumnName",
    "Count",
    "Duration",
    "FieldName",
    "FieldNames",
    "Owner",
    "Part",
    "PathText",
    "PositiveDuration",
    "Problem",
    "Size",
    "StreamName",
    "TableColumn",
    "Text",
    "TimezoneName",
    "decimal_of",
    "only",
    "origin_of",
    "parse_duration",
]

_EVENT_COLUMNS = ("entity_id", "event_id", "event_time", "arrival_time")
_RAW_COLUMNS = ("payload", "payload_context", "rejection_reason")
_COORDINATES = ("source", "source_partition", "source_offset", "source_index")
_SESSION_COLUMNS = (
    "session_id",
    "started_at",
    "ended_at",
    "event_count",
    "first_arrived_at",
    "first_arrived_event_time",
)
_FRAGMENT_COLUMNS = ("first_event_time", "last_event_time", "first_arrived")
PUBLISHED_COLUMNS = (*_EVENT_COLUMNS, *_COORDINATES, *_SESSION_COLUMNS)
"""The columns of events and of sessions that every stream has."""
_CHANGE_COLUMNS = ("kind", "merged_into", "change", "changed_at")
RESERVED_COLUMNS = frozenset(
    (*_EVENT_COLUMNS, *_RAW_COLUMNS, *_COORDINATES, *_SESSION_COLUMNS, *_FRAGMENT_COLUMNS, *_CHANGE_COLUMNS)
) | {f"winner_{name}" for name in _COORDINATES}

LATER = "is not supported in this version"

_DURATION_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST_DURATION = timedelta(days=36_500)
_SIZE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIMPLE_TYPES = ("string", "long", "double", "boolean", "timestamp", "date")
# Namespaces and databases of these names mean something else to Spark, Iceberg or SQL.
_TAKEN_STREAM_NAMES = frozenset({"system", "default", "global_temp", "information_schema"})

Problem = tuple[tuple[str | int, ...], str]  # the path of keys, and what is wrong there


class Part(BaseModel):
    """A part of a stream file: immutable, and it refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)

    def __eq__(self, other: object) -> bool:
        # Where a stream file lies (private) is not what it says.
        return type(self) is type(other) and self.__dict__ == other.__dict__


def parse_duration(value: Any) -> timedelta:
    """`250ms`, `60s`, `30m`, `12h`, `7d` (whole numbers) as a timedelta; a timedelta passes. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    match = re.fullmatch(r"([0-9]{1,15})(ms|s|m|h|d)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("is no duration; write a whole number and a unit: 250ms, 60s, 30m, 12h or 7d")
    try:
        duration = timedelta(**{_DURATION_UNITS[match[2]]: int(match[1])})
    except OverflowError:
        duration = timedelta.max
    if duration > _LONGEST_DURATION:
        raise ValueError(f"is too long; a duration is at most {_LONGEST_DURATION.days}d")
    return duration


def format_duration(value: timedelta) -> str:
    """As a stream file writes it, in the largest unit that is exact: `90m`, `36h`, `2d`."""
    for unit, letter in ((timedelta(days=1), "d"), (timedelta(hours=1), "h"), (timedelta(minutes=1), "m")):
        if value and not value % unit:
            return f"{value // unit}{letter}"
    return f"{value.total_seconds():g}s"


def decimal_of(type_name: str) -> tuple[int, int] | None:
    """(precision, scale) of `decimal(p,s)`; None for any other type."""
    match = re.fullmatch(r"decimal\(([1-9][0-9]?),(0|[1-9][0-9]?)\)", type_name)
    return (int(match[1]), int(match[2])) if match else None


def origin_of(context: Any) -> Path:
    """The stream file of a validation's context, absolute; values made in code lie in the current folder."""
    return Path(context["origin"] if context else "stream.yaml").absolute()


def only(*allowed: str, later: tuple[str, ...] = ()) -> BeforeValidator:
    """Refuse what a later version will allow, in words other than those for a typing error."""

    def check(value: Any) -> Any:
        if value in later:
            raise ValueError(f"{LATER}; allowed: {', '.join(allowed)}")
        return value

    return BeforeValidator(check)


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"([1-9][0-9]{0,14}) ?([KMG]i?B|B)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"is no size; write bytes, or a whole number and a unit ({', '.join(_SIZE_UNITS)}): 512MB")
    return int(match[1]) * _SIZE_UNITS[match[2]]


def _timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("is no time zone; write a name like UTC or Europe/Paris") from None
    return value


def _attribute_type(value: str) -> str:
    name = value.replace(" ", "")
    decimal = decimal_of(name)
    if name in _SIMPLE_TYPES or (decimal and decimal[0] <= 38 and decimal[1] <= decimal[0]):
        return name
    # YAML ends a plain text inside { } at the comma.
    hint = '; inside { } write it in quotes: "decimal(18,4)"' if re.fullmatch(r"decimal\([0-9]+", name) else ""
    raise ValueError(f"is no type; allowed: {', '.join(_SIMPLE_TYPES)}, decimal(p,s) with s <= p <= 38{hint}")


def _lower_case_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", value):
        raise ValueError("is no name; write lower-case letters, digits and _, starting with a letter")
    return value


def _column_name(value: str) -> str:
    if value in RESERVED_COLUMNS:
        raise ValueError(f"is a column of the platform; choose a name other than {', '.join(sorted(RESERVED_COLUMNS))}")
    return _lower_case_name(value)


def _stream_name(value: str) -> str:
    if value in _TAKEN_STREAM_NAMES:
        raise ValueError(f"is taken; choose a name other than {', '.join(sorted(_TAKEN_STREAM_NAMES))}")
    return _lower_case_name(value)


def _field_name(value: str) -> str:
    if not value:
        raise ValueError("is empty; write the name of a field of the records")
    return value


def _path(value: str) -> str:
    if "\0" in value:
        raise ValueError("has a NUL character, which no path may have")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("has half a character, which UTF-8 does not write") from None
    return value


def _owner(value: str) -> str:
    # As Dagster has it, which would otherwise refuse the definitions of all streams.
    is_address = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}", value)
    if not is_address and not re.fullmatch(r"team:[^\s:][^\x00-\x1f\x7f]{0,99}", value):
        raise ValueError("is no owner; write an email address, or team: and its name behind it")
    return value


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("names one field twice")
    return names


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than 0s")
    return value


def _duration_text(value: timedelta) -> str:
    milliseconds = value // timedelta(milliseconds=1)
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


Text = Annotated[str, Strict()]
PathText = Annotated[Text, AfterValidator(_path)]
Count = Annotated[int, Strict()]
Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(_duration_text, when_used="json"),
    WithJsonSchema({"title": "duration", "type": "string", "pattern": "^[0-9]{1,15}(ms|s|m|h|d)$"}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
_OF_SIZES = [
    {"type": "integer", "minimum": 1},
    {"type": "string", "pattern": f"^[1-9][0-9]{{0,14}} ?({'|'.join(_SIZE_UNITS)})$"},
]
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"title": "size", "anyOf": _OF_SIZES})]
TimezoneName = Annotated[Text, AfterValidator(_timezone)]
_DECIMAL = {"type": "string", "pattern": r"^decimal\([1-9][0-9]?, ?[0-9]{1,2}\)$"}
AttributeType = Annotated[
    Text,
    AfterValidator(_attribute_type),
    WithJsonSchema({"title": "column type", "anyOf": [{"enum": list(_SIMPLE_TYPES)}, _DECIMAL]}),
]
_A_NAME = WithJsonSchema({"title": "name", "type": "string", "pattern": "^[a-z][a-z0-9_]{0,99}$"})
ColumnName = Annotated[Text, AfterValidator(_column_name), _A_NAME]
StreamName = Annotated[Text, AfterValidator(_stream_name), _A_NAME]
TableColumn = Annotated[Text, AfterValidator(_lower_case_name), _A_NAME]
Owner = Annotated[Text, AfterValidator(_owner)]
FieldName = Annotated[Text, AfterValidator(_field_name)]
FieldNames = Annotated[tuple[FieldName, ...], Field(min_length=1), AfterValidator(_distinct)]
