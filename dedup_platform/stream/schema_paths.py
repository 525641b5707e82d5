"""Whether a schema has what a path leads to. Each function gives what is wrong, or None.

Only what meets these formats imports this module: the libraries take longer to load than all stream files.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dedup_platform.stream.paths import FieldPath, Step, text_of_steps
from dedup_platform.stream.schemas import WRAPPERS

__all__ = ["wrong_in_avro", "wrong_in_protobuf"]

_ONE_VALUE = WRAPPERS | {"google.protobuf.Timestamp"}


@dataclass(frozen=True)
class _Parts:
    """What a value of some type has inside: all empty if it has no parts."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    """Name -> schema, of a record."""
    items: Any = None
    """The schema of a list's values."""
    values: Any = None
    """The schema of a map's values."""

    def inner(self, step: Step) -> Any:
        """The schema of what a step leads to; None if it leads to nothing."""
        if isinstance(step, int):
            return self.items
        return self.fields.get(step, self.values)

    @property
    def hint(self) -> str:
        if self.fields:
            return f"; allowed: {', '.join(self.fields)}"
        return ", it is a list; name a place in it like [0]" if self.items is not None else ", it has no parts"


def wrong_in_avro(path: FieldPath, record: Mapping[str, Any], to_list: Sequence[str] | None = None) -> str | None:
    """Of a record's schema, as `avro_record` gives it, or of the events in the list to which these names lead."""

    def parts_of(schema: Any) -> _Parts:
        return _avro_parts(schema, record["__named_schemas"])

    event: Any = record
    for step in to_list or ():
        parts = parts_of(event)
        event = parts.inner(step)
        if event is None:
            return f"explode: there is no {step!r}{parts.hint}"
    if to_list:
        parts = parts_of(event)
        event = parts.items
        if event is None:
            return f"explode: {to_list[-1]!r} is no list of events{parts.hint}"
    return _wrong(path, event, parts_of)


def wrong_in_protobuf(path: FieldPath, message: Descriptor) -> str | None:
    """Of a message."""
    return _wrong(path, message, _protobuf_parts)


def _wrong(path: FieldPath, schema: Any, parts_of: Callable[[Any], _Parts]) -> str | None:
    parts = parts_of(schema)
    if path.top not in parts.fields:
        return f"{path.top!r} is no field of the records{parts.hint}"
    for number, step in enumerate(path.steps):
        parts = parts_of(schema)
        schema = parts.inner(step)
        if schema is None:
            there = text_of_steps(path.steps[:number])
            return f"{path.text!r} leads nowhere: {there} has no {step!r}{parts.hint}"
    return None


def _avro_parts(schema: Any, named: Mapping[str, Any]) -> _Parts:
    """Of a union, those of all its branches."""
    if isinstance(schema, list):
        branches = [_avro_parts(branch, named) for branch in schema]
        fields = {name: inner for branch in branches for name, inner in branch.fields.items()}
        items = next((branch.items for branch in branches if branch.items is not None), None)
        values = next((branch.values for branch in branches if branch.values is not None), None)
        return _Parts(fields, items, values)
    if isinstance(schema, str):
        return _avro_parts(named[schema], named) if schema in named else _Parts()
    kind = schema["type"]
    if kind in ("record", "error"):
        return _Parts({each["name"]: each["type"] for each in schema["fields"]})
    if kind in ("array", "map"):
        return _Parts(items=schema.get("items"), values=schema.get("values"))
    return _Parts() if isinstance(kind, str) else _avro_parts(kind, named)


@dataclass(frozen=True)
class _Element:
    """A value of a repeated field."""

    field: FieldDescriptor


def _protobuf_parts(schema: Descriptor | FieldDescriptor | _Element) -> _Parts:
    if isinstance(schema, Descriptor):
        return _Parts({each.name: each for each in schema.fields})
    is_element = isinstance(schema, _Element)
    one: Any = schema.field if isinstance(schema, _Element) else schema
    message = one.message_type
    if message is not None and message.GetOptions().map_entry:
        return _Parts(values=message.fields_by_name["value"])
    if one.is_repeated and not is_element:
        return _Parts(items=_Element(one))
    return _Parts() if message is None or message.full_name in _ONE_VALUE else _protobuf_parts(message)
