"""The JSON Schema of a stream file, as editors read it."""

import inspect
import json
from typing import Any

from pydantic import BaseModel

from dedup_platform.reference.models import meanings, models, written
from dedup_platform.stream import Stream

__all__ = ["SPELLED", "Json", "schema", "schema_text"]

Json = dict[str, Any]

_DEFINITIONS = ("FirstOf", "Join", "TextPattern", "Constant", "FilePath")
SPELLED = ("TimeField", "Attribute", "FieldId", "ZoneField")
"""Parts that a field alone may stand for, and whose `field` may be spelled beside their other keys."""


def schema() -> Json:
    """The JSON Schema of a stream file, as editors read it. What needs more than one key to be judged it lets pass."""
    found = Stream.model_json_schema(by_alias=True)
    parts = {"Stream": found, **found["$defs"]}
    for model in models(Stream):
        _describe(model, parts[model.__name__])
    definitions = found["$defs"]
    for name in SPELLED:
        definitions[name] = _also_spelled(definitions, name)
    definitions["Aggregate"] = _aggregate(definitions["Aggregate"])
    _allow_lists_of_fields(definitions["Fields"]["properties"]["event_id"])
    registry = definitions["KafkaSink"]["properties"]["registry"]
    registry["anyOf"] = [{"type": "string"}, *registry["anyOf"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": "A stream file"}


def schema_text() -> str:
    """The schema as it is kept."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _describe(model: type[BaseModel], part: Json) -> None:
    """Put meanings and defaults, as a stream file writes them, into a part of the schema; names of types stay."""
    part.pop("title", None)
    part["description"] = inspect.cleandoc(model.__doc__ or "")
    for name, field in model.model_fields.items():
        told = part["properties"][field.alias or name]
        if str(told.get("title", "")).istitle():
            del told["title"]
        told["description"] = meanings(model)[name]
        told.pop("default", None)
        if not field.is_required() and (default := written(field.get_default(call_default_factory=True))) is not None:
            told["default"] = default


def _also_spelled(definitions: Json, name: str) -> Json:
    part = definitions[name]
    beside = {key: told for each in _DEFINITIONS for key, told in definitions[each]["properties"].items()}
    others = {**part, "properties": {**beside, **part["properties"]}, "required": []}
    description = others.pop("description")
    del others["required"]
    # Instead of a zone in a field, a text is a zone.
    alone = [] if name == "ZoneField" else [{"type": "string"}, {"type": "array"}]
    return {"description": description, "anyOf": [*alone, others]}


def _aggregate(part: Json) -> Json:
    functions = part["properties"]["function"]["enum"]
    properties = {name: {"type": "string", "description": "An attribute."} for name in functions}
    told = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"description": part["description"], **told, "minProperties": 1, "maxProperties": 1}


def _allow_lists_of_fields(event_id: Json) -> None:
    variants = event_id.pop("oneOf")
    event_id["anyOf"] = [*variants, {"type": "array", "minItems": 1}]
