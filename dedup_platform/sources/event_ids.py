"""Event ids: a field's text, several of them, or a hash over fields.

Several are the canonical JSON array of their texts. The hash is the first 32 hexadecimal digits of the SHA-256 of the
UTF-8 of `[["name","text"],…]`, sorted by name, without spaces; JSON's null is null there. JSON's quoting keeps any two
different lists of pairs apart.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any

import polars as pl

from dedup_platform.sources.field_values import FieldReader, field_reader
from dedup_platform.sources.records import MISSING_EVENT_ID, Fields, RejectedError
from dedup_platform.sources.text.json_records import canonical
from dedup_platform.sources.texts import ABSENT, not_empty, quoted_texts, text_of
from dedup_platform.stream import FieldHash, FieldId, FieldList
from dedup_platform.stream.definitions import Definition
from dedup_platform.stream.fields import EventId
from dedup_platform.stream.paths import field_path

__all__ = ["event_id_reader", "id_fields", "id_readers", "ids_of"]


_MOST_NAMES = 200
"""A column takes about a millisecond whatever it holds: with more of them, records are sooner read one by one."""

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


def id_readers(
    event_id: FieldList | FieldHash, names: Sequence[str] | None, file_format: str
) -> Sequence[tuple[str, FieldReader]]:
    """The fields whose texts make up ids in columns, with their names in a hash; `names` are those of all fields where
    they are known. Empty if columns do not do."""
    if isinstance(event_id, FieldList):
        return [("", field_reader(field, file_format)) for field in event_id.fields]
    if event_id.hash == "*":
        some = names if names and len(names) <= _MOST_NAMES else ()
        return [(name, field_reader((name,), file_format)) for name in some]
    return [(field_path(field).text, field_reader(field, file_format)) for field in event_id.hash]


def ids_of(event_id: FieldList | FieldHash, fields: Sequence[tuple[str, pl.Series]]) -> pl.Series:
    """The ids of records from the texts of these fields; null where the record must be asked itself."""
    if isinstance(event_id, FieldList):
        parts = [quoted_texts(pl.select(not_empty(texts)).to_series()) for _, texts in fields]
        return _concatenated("[", *_between(parts, ","), "]")
    pairs = [
        _concatenated(f"[{encode_basestring(name)},", quoted_texts(texts), "]")
        for name, texts in sorted(fields, key=itemgetter(0))
    ]
    written = _concatenated("[", *_between(pairs, ","), "]")
    return pl.Series([None if text is None else _hash_of(text) for text in written], dtype=pl.String)


def _between(parts: Sequence[pl.Series], text: str) -> Sequence[pl.Series | str]:
    return [each for part in parts for each in (text, part)][1:]


def _concatenated(*parts: pl.Series | str) -> pl.Series:
    """One behind the other; null where one of them is."""
    return pl.select(pl.concat_str(pl.lit(part) if isinstance(part, str) else part for part in parts)).to_series()


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
    return _hash_of(pairs % _quoted(values))


def _hash_of(pairs: str) -> str:
    return hashlib.sha256(pairs.encode()).hexdigest()[:32]


def _quoted(values: list[Any]) -> tuple[str, ...]:
    try:
        return tuple(map(encode_basestring, values))
    except TypeError:  # not all are texts
        return tuple([canonical(text_of(value)) for value in values])
