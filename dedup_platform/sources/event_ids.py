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

from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.records import MISSING_EVENT_ID, Fields, RejectedError
from dedup_platform.sources.text.json_records import canonical
from dedup_platform.sources.texts import ABSENT, text_of
from dedup_platform.stream import FieldHash, FieldId, FieldList
from dedup_platform.stream.definitions import Definition
from dedup_platform.stream.fields import EventId
from dedup_platform.stream.paths import field_path

__all__ = ["event_id_reader", "id_fields"]

EventIdReader = Callable[[Fields, str], str]
"""From a record's fields and the path of its file to its event id."""


def id_fields(event_id: EventId) -> Sequence[Definition]:
    """The fields that an event id names."""
    match event_id:
        case FieldId(field=field):
            return (field,)
        case FieldList(fields=fields):
            return fields
        case FieldHash(hash=fields):
            return () if fields == "*" else tuple(fields)


def event_id_reader(event_id: EventId, file_format: str) -> EventIdReader:
    """A function that reads the event ids of records of a format; it raises RejectedError where there is none.

    A field of an id that is absent, null or empty makes the id missing. To a hash an empty text or a null is a value
    like any other; only a field that is named and absent is missing.
    """
    fields = id_fields(event_id)
    readers = [field_reader(field, file_format) for field in fields]
    if isinstance(event_id, FieldId):
        find = readers[0].value
        return lambda record, path: _present(find(record, path))
    if isinstance(event_id, FieldList):
        return lambda record, path: canonical([_present(reader.value(record, path)) for reader in readers])
    if not fields:
        return lambda record, _: _hash_all(record)
    texts = [field_path(field).text for field in event_id.hash if field != "*"]
    names = _hashed_names(tuple(texts))
    if all(field_path(field).plain == field for field in event_id.hash):
        return lambda record, _: _hash(record, names)
    return lambda record, path: _hash(
        _there({text: reader.find(record, path) for text, reader in zip(texts, readers, strict=True)}), names
    )


def _present(value: Any) -> str:
    text = text_of(value)
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
