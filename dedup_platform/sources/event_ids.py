"""Event ids: a field's text, several of them, or a hash over fields.

Several are the canonical JSON array of their texts. The hash is the first 32 hexadecimal digits of the SHA-256 of the
UTF-8 of `[["name","text"],…]`, sorted by name, without spaces; JSON's null is null there. JSON's quoting keeps any two
different lists of pairs apart.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any

from dedup_platform.sources.field_values import ABSENT, FieldReader, field_reader
from dedup_platform.sources.records import AMBIGUOUS, MALFORMED_RECORD, MISSING_EVENT_ID, Fields, RejectedError
from dedup_platform.sources.text.json_records import Number, canonical
from dedup_platform.stream import FieldHash, FieldId, FieldList
from dedup_platform.stream.fields import EventId
from dedup_platform.stream.paths import FieldSpelling

__all__ = ["event_id_reader", "id_fields", "text_of"]


def text_of(value: Any) -> str | None:
    """The text of a field's value: None for null, canonical JSON for nested values, a number as it was written."""
    if type(value) is str or value is None:
        return value
    if value is AMBIGUOUS:
        raise RejectedError(MALFORMED_RECORD)
    return str(value) if isinstance(value, Number) else canonical(value)


def id_fields(event_id: EventId, file_format: str) -> tuple[FieldReader, ...]:
    """The fields that an event id names, of records of a format."""
    match event_id:
        case FieldId(field=field):
            named: Sequence[FieldSpelling] = (field,)
        case FieldList(fields=fields):
            named = fields
        case FieldHash(hash=fields):
            named = () if fields == "*" else tuple(fields)
    return tuple(field_reader(field, file_format) for field in named)


def event_id_reader(event_id: EventId, file_format: str) -> Callable[[Fields], str]:
    """A function from a record's fields to its event id; it raises RejectedError where there is none.

    A field of an id that is absent, null or empty makes the id missing. To a hash an empty text or a null is a value
    like any other; only a field that is named and absent is missing.
    """
    readers = id_fields(event_id, file_format)
    if isinstance(event_id, FieldId):
        return lambda fields: _present(fields, readers[0])
    if isinstance(event_id, FieldList):
        return lambda fields: canonical([_present(fields, reader) for reader in readers])
    if not readers:
        return _hash_all
    names = _hashed_names(tuple(reader.path.text for reader in readers))
    if all(reader.path.plain == reader.path.text for reader in readers):
        return lambda fields: _hash(fields, names)
    found = {reader.path.text: reader.find for reader in readers}
    return lambda fields: _hash(_there({name: find(fields) for name, find in found.items()}), names)


def _present(fields: Fields, reader: FieldReader) -> str:
    text = text_of(reader.value(fields))
    if not text:
        raise RejectedError(MISSING_EVENT_ID)
    return text


def _there(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not ABSENT}


def _hash_all(fields: Fields) -> str:
    if not fields:
        raise RejectedError(MISSING_EVENT_ID)
    return _hash(fields, _hashed_names(tuple(fields)))


@lru_cache(256)
def _hashed_names(names: Sequence[str]) -> tuple[list[str], str]:
    """The names in order, and the pairs' JSON with a place for the JSON of each value."""
    ordered = sorted(names)
    pairs = ",".join([f"[{encode_basestring(name).replace('%', '%%')},%s]" for name in ordered])
    return ordered, f"[{pairs}]"


def _hash(fields: Fields, names: tuple[list[str], str]) -> str:
    ordered, pairs = names
    try:
        values = [fields[name] for name in ordered]
    except KeyError:
        raise RejectedError(MISSING_EVENT_ID) from None
    return hashlib.sha256((pairs % _quoted(values)).encode()).hexdigest()[:32]


def _quoted(values: list[Any]) -> tuple[str, ...]:
    try:
        return tuple(map(encode_basestring, values))
    except TypeError:  # not all are texts
        return tuple([canonical(text_of(value)) for value in values])
