"""The reference for people, docs/reference.md: `page.md` beside this, with tables in the place of its comments."""

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from pydantic import BaseModel

from dedup_platform.reference.models import meanings, models
from dedup_platform.reference.schema import SPELLED, Json, schema
from dedup_platform.settings import ENV_PREFIX, Settings
from dedup_platform.stream import EPOCH_UNITS, Stream

__all__ = ["page"]

_MEBI = 2**20
_SIZES = {2**30: "GiB", _MEBI: "MiB"}


def page() -> str:
    """The whole page."""
    text = files(__package__).joinpath("page.md").read_text("utf-8")
    for name, lines in {"stream": _sections(), "units": _units(), "settings": _settings()}.items():
        text = text.replace(f"<!-- {name} -->", "\n".join(lines))
    return text


def _units() -> Iterator[str]:
    for name, ticks in EPOCH_UNITS.items():
        are = "is a second" if ticks == 1 else "are a second"
        yield f"| `{name}` | a number since 1970-01-01 00:00 UTC, of which {ticks:,} {are} |"


def _sections() -> Iterator[str]:
    kept = schema()
    for model in models(Stream):
        part = {"Stream": kept, **kept["$defs"]}[model.__name__]
        title = "the whole" if model is Stream else _title(model)
        yield f"### {title}\n\n{_paragraphs(part['description'])}\n"
        yield "| key | type | default | meaning |\n|---|---|---|---|"
        for name, field in model.model_fields.items():
            properties = (part["anyOf"][-1] if model.__name__ in SPELLED else part).get("properties", {})
            key = field.alias or name
            told = properties.get(key) or model.model_json_schema()["properties"][name]
            told.setdefault("description", meanings(model)[name])
            default = f"`{_shown(told['default'])}`" if "default" in told else "needed" if field.is_required() else ""
            yield f"| `{key}` | {_type(told)} | {default} | {_cell(told['description'])} |"
        yield ""


def _title(model: type[BaseModel]) -> str:
    return _TITLES[model.__name__]


_TITLES = {
    "FilesSource": "`source` of kind `files`",
    "KafkaSource": "`source` of kind `kafka`",
    "Lane": "`source.lane`",
    "CsvFormat": "`source.csv`",
    "JsonFormat": "`source.json`",
    "AvroFormat": "`source.avro`",
    "ProtobufFormat": "`source.protobuf`",
    "Registry": "`registry`",
    "Fields": "`fields`",
    "FirstOf": "a field as `first_of`",
    "Join": "a field as `join`",
    "TextPattern": "a field as `pattern`",
    "Constant": "a field as `constant`",
    "FilePath": "a field as `path`",
    "FieldId": "`event_id` of one field",
    "FieldList": "`event_id` of several fields",
    "FieldHash": "`event_id` as `hash`",
    "TimeField": "a time in a field",
    "ZoneField": "`timezone` in a field",
    "FileName": "`arrival_time` as `file_name`",
    "FileModified": "`arrival_time` as `file_modified`",
    "KafkaAppendTime": "`arrival_time` as `kafka_append_time`",
    "Attribute": "`fields.attributes`, each",
    "Partitions": "`partitions`",
    "Deduplicate": "`deduplicate`",
    "Sessions": "`sessions`",
    "Aggregate": "`sessions.aggregates`, each",
    "Late": "`late`",
    "Retries": "`retries`",
    "Reject": "`reject`",
    "Maintenance": "`maintenance`",
    "Publish": "`publish`",
    "PostgresSink": "`publish.sinks`, each of kind `postgres`",
    "KafkaSink": "`publish.sinks`, each of kind `kafka`",
    "FilesSink": "`publish.sinks`, each of kind `files`",
    "CustomSink": "`publish.sinks`, each of kind `custom`",
    "Points": "`publish.points`",
    "Claims": "`claims`",
    "Health": "`health`",
}
"""Model -> where in a stream file it is."""


def _type(told: Json) -> str:
    if (name := str(told.get("title", ""))) and not name.istitle():
        return name
    if reference := told.get("$ref"):
        model = reference.rpartition("/")[2]
        title = _TITLES[model]
        return f"[{title}](#{_anchor(title)})"
    if "const" in told:
        return f"`{_shown(told['const'])}`"
    if "enum" in told:
        return ", ".join(f"`{each}`" for each in told["enum"])
    if several := told.get("anyOf") or told.get("oneOf"):
        names = dict.fromkeys(_type(each) for each in several if each.get("type") != "null")
        return "field" if "field" in names else " or ".join(names)
    match told.get("type"):
        case "array":
            return f"list of {_type(told.get('items', {'title': 'fields'}))}"
        case "object":
            inner = next(iter(told.get("patternProperties", {}).values()), told.get("additionalProperties"))
            return f"mapping to {_type(inner)}" if isinstance(inner, dict) else "mapping"
        case "integer":
            return (
                "whole number"
                + (f" from {told['minimum']}" if told.get("minimum") is not None else "")
                + (f" to {told['maximum']}" if told.get("maximum") is not None else "")
            )
    return {"string": "text", "boolean": "`true` or `false`", "number": "number"}.get(str(told.get("type")), "text")


def _anchor(title: str) -> str:
    kept = "".join(char for char in title.lower() if char.isalnum() or char in " -_")
    return kept.replace(" ", "-")


def _shown(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= _MEBI:
        unit = next((unit for unit in _SIZES if value % unit == 0), None)
        if unit:
            return f"{value // unit}{_SIZES[unit]}"
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _settings() -> Iterator[str]:
    for name in Settings.model_fields:
        yield f"| `{ENV_PREFIX}{name.upper()}` | {_default(name)} | {_cell(meanings(Settings)[name])} |"


def _default(name: str) -> str:
    field = Settings.model_fields[name]
    if name == "home":
        return "`.dedup_platform` in the current folder"
    if field.default_factory and name in _BELOW_HOME:
        return f"`{_BELOW_HOME[name]}`"
    value = field.get_default(call_default_factory=True, validated_data={})
    return "none" if value is None else f"`{value}`"


_BELOW_HOME = {
    "warehouse": "<home>/warehouse",
    "catalog_uri": "sqlite:////<home>/catalog.db",
    "control_uri": "sqlite:////<home>/control.db",
}
