"""What of a stream file decides what records become and what is made of events, key by key: two can be compared.

Nothing of how a source is reached is among it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from dedup_platform.stream.model import Stream

__all__ = ["Decides", "decides", "deciding"]

Decides = Literal["decoding", "rules"]
"""`decoding`: what a record becomes when it is taken in. `rules`: what derived tables are made of events by."""

_DECODING: Mapping[str, Any] = {
    "source": ("format", "csv", "json", "explode", "avro", "protobuf", "registry"),
    "fields": ("entity_id", "event_id", "event_time", "arrival_time", "attributes"),
    "missing_entity": (),
    "partitions": ("start",),
    "late": ("max_future", "horizon"),
}
_RULES: Mapping[str, Any] = {"deduplicate": ("key", "window"), "sessions": ("timeout", "aggregates")}
_BY_NAME = ("attributes", "aggregates")
"""Of these each name is a key by itself."""


def deciding(stream: Stream) -> dict[str, str]:
    """Key, as `fields.entity_id`, -> what the stream file says there, as JSON; what it leaves out is left out."""
    return dict(_said(stream.model_dump(mode="json"), {**_DECODING, **_RULES}))


def decides(key: str) -> Decides:
    """What a key of `deciding` decides."""
    return "rules" if key.partition(".")[0] in _RULES else "decoding"


def _said(file: Mapping[str, Any], keys: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, inner in keys.items():
        part = file.get(name)
        if not inner:
            yield name, _text(part)
        elif part is not None:
            yield from _said_in(name, part, inner)


def _said_in(name: str, part: Mapping[str, Any], keys: Iterable[str]) -> Iterator[tuple[str, str]]:
    for key in keys:
        value = part.get(key)
        if key in _BY_NAME and value:
            yield from ((f"{name}.{key}.{each}", _text(said)) for each, said in value.items())
        elif value is not None and key not in _BY_NAME:
            yield f"{name}.{key}", _text(value)


def _text(value: Any) -> str:
    """What a person would write, as far as one line goes: `{"field": "a"}` alone is `"a"`."""
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if each is not None and (key, each) != ("timezone", "UTC")}
        value = value["field"] if value.keys() == {"field"} else value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
