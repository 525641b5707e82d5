"""From values of Protobuf messages to values of events: by the type of each field, made once for a message type."""

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from dedup_platform.sources.text.canonical_text import base64_text, double_text, float_text, timestamp_text
from dedup_platform.sources.text.json_records import Number
from dedup_platform.stream.schemas import WRAPPERS

TIMESTAMP = "google.protobuf.Timestamp"

Convert = Callable[[Any], Any]


class SetFields(dict[str, Any]):
    """The fields that are set, and for whoever asks by name the defaults of the others.

    So a hash of all fields stays the same when the schema gets one more, which the event does not have.
    """

    def __init__(self, fields: dict[str, Any], defaults: dict[str, Any]) -> None:
        super().__init__(fields)
        self._defaults = defaults

    def __missing__(self, name: str) -> Any:
        return self._defaults[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else self._defaults.get(name, default)


class Converters:
    """From Protobuf's values to those of an event, one function for each field."""

    def __init__(self) -> None:
        self._made: dict[str, Convert] = {}
        self._defaults: dict[str, dict[str, Any]] = {}

    def of(self, field: FieldDescriptor) -> Convert:
        convert = self._made.get(field.full_name)
        if convert is None:
            convert = self._made[field.full_name] = self._repeated(field) if field.is_repeated else self._single(field)
        return convert

    def default(self, field: FieldDescriptor) -> Any:
        """The value of a field that is not set."""
        if field.has_presence:
            return None
        return self.of(field)({} if is_map(field) else field.default_value)

    def set_fields(self, message: Message) -> SetFields:
        fields = {field.name: self.of(field)(value) for field, value in message.ListFields()}
        return SetFields(fields, self._defaults_of(message.DESCRIPTOR))

    def _defaults_of(self, kind: Descriptor) -> dict[str, Any]:
        defaults = self._defaults.get(kind.full_name)
        if defaults is None:
            defaults = self._defaults[kind.full_name] = {field.name: self.default(field) for field in kind.fields}
        return defaults

    def _repeated(self, field: FieldDescriptor) -> Convert:
        if is_map(field):
            convert_key, convert = (self.of(part) for part in field.message_type.fields)
            return lambda pairs: {_key(convert_key(key)): convert(value) for key, value in pairs.items()}
        convert = self._single(field)
        return lambda values: [convert(value) for value in values]

    def _single(self, field: FieldDescriptor) -> Convert:
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                return base64_text if field.type == FieldDescriptor.TYPE_BYTES else str
            case FieldDescriptor.CPPTYPE_BOOL:
                return bool
            case FieldDescriptor.CPPTYPE_DOUBLE:
                return double_text
            case FieldDescriptor.CPPTYPE_FLOAT:
                return float_text
            case FieldDescriptor.CPPTYPE_ENUM:
                names = {value.number: value.name for value in reversed(field.enum_type.values)}
                return lambda number: names.get(number) or Number(number)
            case FieldDescriptor.CPPTYPE_MESSAGE:
                return self._message(field.message_type)
            case _:
                return Number

    def _message(self, kind: Descriptor) -> Convert:
        if kind.full_name == TIMESTAMP:
            return _timestamp
        if kind.full_name in WRAPPERS:
            convert = self.of(kind.fields_by_name["value"])
            return lambda wrapper: convert(wrapper.value)
        return self.set_fields


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _key(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _timestamp(value: Any) -> Any:
    if not 0 <= value.nanos < 1_000_000_000:
        return {"nanos": Number(value.nanos), "seconds": Number(value.seconds)}
    return timestamp_text(value.seconds * 1_000_000_000 + value.nanos, 1_000_000_000, "Z")
