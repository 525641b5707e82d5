"""Which fields of a record say what the event is."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)

from dedup_platform.stream.definitions import Definition, spelled
from dedup_platform.stream.paths import FieldSpelling, field_path, field_spelling
from dedup_platform.stream.time_formats import EPOCH_UNITS, TimeFormats, formats_of
from dedup_platform.stream.values import (
    AttributeType,
    ColumnName,
    FieldName,
    Part,
    TimezoneName,
)

__all__ = [
    "Attribute",
    "FieldHash",
    "FieldId",
    "FieldList",
    "Fields",
    "FileModified",
    "FileName",
    "KafkaAppendTime",
    "TimeField",
    "ZoneField",
    "definitions",
]


def _distinct(fields: tuple[Definition, ...]) -> tuple[Definition, ...]:
    if len(set(fields)) != len(fields):
        raise ValueError("names one field twice")
    return fields


class FieldId(Part):
    """The event id is one field."""

    field: Definition
    """The field."""


class FieldList(Part):
    """The event id is made of several fields."""

    fields: Annotated[tuple[Definition, ...], Field(min_length=1), AfterValidator(_distinct)]
    """The fields, in order."""


def _hashed(value: Any) -> Any:
    if value == "*":
        return value
    fields = tuple(map(field_spelling, value)) if isinstance(value, list | tuple) else ()
    if not fields or len({field_path(field).text for field in fields}) != len(fields):
        raise ValueError('must be "*" (all fields) or a list of distinct field names')
    return fields


class FieldHash(Part):
    """The event id is a hash of fields, `"*"` for all of them, as sorted pairs of name and text."""

    hash: Annotated[
        str | tuple[FieldSpelling, ...],
        PlainValidator(_hashed),
        PlainSerializer(lambda value: value, return_type=Any),
        WithJsonSchema({"title": "fields", "anyOf": [{"const": "*"}, {"type": "array", "minItems": 1}]}),
    ]
    """A list of fields, or `"*"` for all."""


def _event_id_spelling(value: Any) -> Any:
    return {"fields": value} if isinstance(value, list | tuple) else spelled(value)


def _kind_by_key(kinds: dict[str, str]) -> Any:
    def kind(value: Any) -> str | None:
        if isinstance(value, dict):
            return next((name for key, name in kinds.items() if key in value), None)
        return type(value).__name__

    return kind


EventId = Annotated[
    Annotated[FieldId, Tag("FieldId")]
    | Annotated[FieldList, Tag("FieldList")]
    | Annotated[FieldHash, Tag("FieldHash")],
    Discriminator(
        _kind_by_key({"hash": "FieldHash", "fields": "FieldList", "field": "FieldId"}),
        custom_error_type="event_id",
        custom_error_message='must be a field name, a list of field names, or {hash: "*"}',
    ),
    BeforeValidator(_event_id_spelling),
]


class ZoneField(Part):
    """The time zone stands in a field of the record: a name like Europe/Paris, or an offset like +02:00."""

    field: Definition
    """The field with the zone."""


def _zone_spelling(value: Any) -> Any:
    return spelled(value) if isinstance(value, dict) else value


def _zone_kind(value: Any) -> str:
    return "ZoneField" if isinstance(value, dict | ZoneField) else "text"


Timezone = Annotated[
    Annotated[TimezoneName, Tag("text")] | Annotated[ZoneField, Tag("ZoneField")],
    Discriminator(_zone_kind),
    BeforeValidator(_zone_spelling),
]


class TimeField(Part):
    """A time in a field. Without `format` it is ISO 8601; a text without an offset is in `timezone`."""

    field: Definition
    """The field with the time."""
    format: TimeFormats | None = None
    """How it is written; without it ISO 8601. Of several, the first that fits."""
    timezone: Timezone = "UTC"
    """The zone of a time that does not tell its offset."""


def _one_group(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"must have exactly one group, the time; it has {groups}")
    return pattern


class FileName(Part):
    """A time in the file's path below the source's root: the one group of the regular expression `file_name`."""

    file_name: Annotated[FieldName, AfterValidator(_one_group)]
    """The regular expression, with one group, which is the time."""
    format: TimeFormats | None = None
    """How it is written; without it ISO 8601."""
    timezone: TimezoneName = "UTC"
    """The zone of a time that does not tell its offset."""


class FileModified(Part):
    """The file's modification time."""

    file_modified: Literal[True] = True
    """Says so."""


class KafkaAppendTime(Part):
    """When the broker appended the message to its log; the topic must stamp with LogAppendTime."""

    kafka_append_time: Literal[True] = True
    """Says so."""


ArrivalTime = Annotated[
    Annotated[TimeField, Tag("TimeField")]
    | Annotated[FileName, Tag("FileName")]
    | Annotated[FileModified, Tag("FileModified")]
    | Annotated[KafkaAppendTime, Tag("KafkaAppendTime")],
    Discriminator(
        _kind_by_key(
            {
                "field": "TimeField",
                "file_name": "FileName",
                "file_modified": "FileModified",
                "kafka_append_time": "KafkaAppendTime",
            }
        ),
        custom_error_type="arrival_time",
        custom_error_message=(
            "must be a field, {file_name: a regular expression}, {file_modified: true} or {kafka_append_time: true}"
        ),
    ),
    BeforeValidator(spelled),
]


class Attribute(Part):
    """A typed column beside the event's own. `format` and `timezone` are for times and dates."""

    field: Definition
    """The field with the value."""
    type: AttributeType = "string"
    """The column's type."""
    format: TimeFormats | None = None
    """How a timestamp or a date is written; without it ISO 8601. Of several, the first that fits."""
    timezone: Timezone = "UTC"
    """The zone of a timestamp that does not tell its offset."""

    @model_validator(mode="after")
    def _format_fits_type(self) -> "Attribute":
        if self.format is not None and self.type not in ("timestamp", "date"):
            raise ValueError(f"format is for timestamp and date, not for {self.type}")
        epoch = [each for each in formats_of(self.format) if each in EPOCH_UNITS]
        if self.type == "date" and epoch:
            raise ValueError(f"a date has no {epoch[0]}; make it a timestamp, or write a format like %Y-%m-%d")
        if self.type != "timestamp" and isinstance(self.timezone, ZoneField):
            raise ValueError(f"the timezone of a field is for timestamp, not for {self.type}")
        return self


class Fields(Part):
    """Which fields of a record say what the event is."""

    entity_id: Definition
    """Whose event it is: a user, a device, an account."""
    event_id: EventId
    """What tells an event of an entity from its others."""
    event_time: Annotated[TimeField, BeforeValidator(spelled)]
    """When it happened."""
    arrival_time: ArrivalTime | None = None
    """When the log first had the record. Without it, what the source says: `file_modified` or
    `kafka_append_time`."""
    attributes: dict[ColumnName, Annotated[Attribute, BeforeValidator(spelled)]] = Field(default_factory=dict)
    """More columns of events: name of the column -> its field, or more about it."""


def definitions(fields: Fields) -> Iterator[tuple[tuple[str, ...], Definition]]:
    """What the stream file says of each field of a record, with the path of its key below `fields`."""
    yield ("entity_id",), fields.entity_id
    match fields.event_id:
        case FieldId(field=field):
            yield ("event_id",), field
        case FieldList(fields=parts):
            yield from ((("event_id",), part) for part in parts)
        case FieldHash(hash=parts) if parts != "*":
            yield from ((("event_id", "hash"), part) for part in parts)
    yield from ((("event_time",), field) for field in _fields_of(fields.event_time))
    if isinstance(fields.arrival_time, TimeField):
        yield from ((("arrival_time",), field) for field in _fields_of(fields.arrival_time))
    for column, attribute in fields.attributes.items():
        yield from ((("attributes", column), field) for field in _fields_of(attribute))


def _fields_of(part: TimeField | Attribute) -> Iterator[Definition]:
    yield part.field
    if isinstance(part.timezone, ZoneField):
        yield part.timezone.field
