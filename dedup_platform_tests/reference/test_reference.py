"""The reference is what the models say, and its schema takes what they take."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dedup_platform.errors import StreamFileError
from dedup_platform.reference import page, schema, schema_text
from dedup_platform.stream import load_stream
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.stream.test_definitions import SHOP
from dedup_platform_tests.stream.test_stream import FULL

SCHEMA = schema()
EXAMPLES = {path.stem: path.read_text("utf-8") for path in sorted((PROJECT / "streams").glob("*.yaml"))}

_SEVERAL = ("anyOf", "oneOf")


def fits(value: Any, rule: dict[str, Any]) -> bool:
    """Whether a value fits a rule, in as much of JSON Schema as ours uses."""
    if "$ref" in rule:
        return fits(value, SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]])
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float, "boolean": bool}
    told = rule.get("type", list(kinds))
    allowed = tuple(kinds[kind] for kind in ([told] if isinstance(told, str) else told) if kind != "null")
    if "type" in rule and not (value is None if told == "null" else isinstance(value, allowed)):
        return False
    if isinstance(value, bool) and told in ("integer", "number"):
        return False
    matching = {several: sum(fits(value, each) for each in rule[several]) for several in _SEVERAL if several in rule}
    if not matching.get("anyOf", 1) or matching.get("oneOf", 1) != 1:
        return False
    if ("enum" in rule and value not in rule["enum"]) or ("const" in rule and value != rule["const"]):
        return False
    if isinstance(value, str):
        return re.search(rule.get("pattern", ""), value) is not None
    if isinstance(value, list):
        return len(value) >= rule.get("minItems", 0) and all(fits(each, rule.get("items", {})) for each in value)
    if isinstance(value, dict):
        return _fits_object(value, rule)
    return not isinstance(value, int) or rule.get("minimum", value) <= value <= rule.get("maximum", value)


def _fits_object(value: dict[str, Any], rule: dict[str, Any]) -> bool:
    known, others = rule.get("properties", {}), rule.get("additionalProperties", {})
    patterns = rule.get("patternProperties", {})
    for key, each in value.items():
        inner = known.get(key) or next((found for name, found in patterns.items() if re.search(name, key)), others)
        if inner is False or not fits(each, inner):
            return False
    number = rule.get("minProperties", 0) <= len(value) <= rule.get("maxProperties", len(value))
    return number and set(rule.get("required", ())) <= value.keys()


def parsed(text: str) -> Any:
    """As editors read YAML: dates are texts."""
    return _as_json(yaml.safe_load(text))


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_json(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else value.isoformat()


def test_what_is_kept_is_what_is_written() -> None:
    for file, text in {"reference.md": page(), "stream.schema.json": schema_text()}.items():
        kept = (PROJECT / "docs" / file).read_text("utf-8")
        assert kept == text, f"docs/{file} is not what the models say: run `python -m dedup_platform.reference`"


@pytest.mark.parametrize("text", [*EXAMPLES.values(), FULL, SHOP], ids=[*EXAMPLES, "all keys", "definitions"])
def test_the_schema_takes_stream_files(text: str) -> None:
    assert fits(parsed(text), SCHEMA)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("late", {"grace": "1 hour"}),
        ("late", {"gracee": "1h"}),
        ("buckets", 5000),
        ("missing_entity", "drop"),
        ("fields", {"entity_id": "a", "event_id": "b"}),
        ("fields", {"entity_id": "a", "event_id": "b", "event_time": {"field": "c", "format": "epoch_millis"}}),
        ("fields", {"entity_id": "a", "event_id": "b", "event_time": "c", "attributes": {"d": {"type": "int"}}}),
        ("sessions", {"timeout": "30m", "aggregates": {"total": {"median": "amount"}}}),
        ("publish", {"sinks": {"copy": {"kind": "postgres", "follows": "sessions"}}}),
        ("name", "Clicks"),
    ],
)
def test_the_schema_and_the_models_refuse_the_same(key: str, value: Any, tmp_path: Path) -> None:
    content = yaml.safe_load(EXAMPLES["clicks"]) | {key: value}
    assert not fits(_as_json(content), SCHEMA)
    (tmp_path / "clicks.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(StreamFileError, match=key):
        load_stream(tmp_path / "clicks.yaml")


def test_every_link_of_the_page_leads_somewhere() -> None:
    headings = {
        "".join(char for char in title.lower() if char.isalnum() or char in " -_").replace(" ", "-")
        for title in re.findall(r"^#+ (.*)$", page(), re.MULTILINE)
    }
    assert set(re.findall(r"\(#([^)]+)\)", page())) <= headings
