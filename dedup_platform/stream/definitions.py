"""What a field of a stream file may be besides a name or a path: found in one of several, joined, cut out, or known.

Wherever a field is named, each of these may stand in its place, and inside of each other.
"""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import SchemaError, SchemaValidator, core_schema

from dedup_platform.stream.paths import FieldPath, FieldRef, field_path
from dedup_platform.stream.values import Part, Text

__all__ = [
    "KEY_OF",
    "Constant",
    "Definition",
    "FilePath",
    "FirstOf",
    "Join",
    "TextPattern",
    "paths_in",
    "spelled",
    "told",
    "uses_file_path",
]

_GROUP = "must have exactly one group in ( ), which is what is wanted; it has {}"


def _pattern(value: str) -> str:
    try:
        # The engine of the patterns in workers is the same library: linear in the text, whatever the pattern.
        SchemaValidator(core_schema.str_schema(pattern=value))
    except SchemaError as error:
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
        raise ValueError(f"is no regular expression: {reason}") from None
    groups = _groups(value)
    if groups != 1:
        raise ValueError(_GROUP.format(groups))
    return value


def _groups(pattern: str) -> int:
    """How many groups a pattern has that is one: parentheses that are no letters and have no `?:` or flags."""
    groups = depth = at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 1
        elif depth or pattern[at] == "[":
            depth += {"[": 1, "]": -1}.get(pattern[at], 0)
            if pattern[at] == "[" and pattern[at + 1 :].removeprefix("^").startswith("]"):
                at = pattern.index("]", at)  # the first in a class is a letter
        elif pattern[at] == "(":
            groups += not pattern.startswith("(?", at) or pattern.startswith(("(?P<", "(?<"), at)
        at += 1
    return groups


Pattern = Annotated[Text, AfterValidator(_pattern)]


class FirstOf(Part):
    """The first of some fields that is there, and is neither null nor an empty text."""

    first_of: tuple["Definition", ...] = Field(min_length=1)
    """The fields, in the order in which they are looked for."""


class Join(Part):
    """The texts of some fields with a text in between; null if one of them is not there, null or empty."""

    join: tuple["Definition", ...] = Field(min_length=1)
    """The fields whose texts are joined."""
    between: Text = Field(alias="with")
    """The text in between."""


class TextPattern(Part):
    """What the one group of a regular expression finds in the text of a field; null if it finds nothing."""

    pattern: Pattern
    """The regular expression, with one group."""
    field: "Definition"
    """The field whose text it is looked for in."""


def _constant(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return value.isoformat() if isinstance(value, date | datetime) else value


class Constant(Part):
    """The same text in every record."""

    constant: Annotated[
        Text,
        BeforeValidator(_constant),
        Field(min_length=1),
        WithJsonSchema({"title": "text", "type": ["string", "number", "boolean"]}),
    ]
    """The text."""


class FilePath(Part):
    """What the one group of a regular expression finds in the file's path below the source's root, else null."""

    path: Pattern
    """The regular expression, with one group."""


_KEYS: dict[type[Part], tuple[str, ...]] = {
    FirstOf: ("first_of",),
    Join: ("join", "with"),
    TextPattern: ("pattern", "field"),
    Constant: ("constant",),
    FilePath: ("path",),
}
"""The keys of each; the first tells it."""
KEY_OF = {kind.__name__: keys[0] for kind, keys in _KEYS.items()}
"""The key that tells each, by the name that errors have for it."""


def _kind(value: Any) -> str | None:
    if isinstance(value, str | list | tuple):
        return "field"
    if isinstance(value, dict):
        return next((kind.__name__ for kind, keys in _KEYS.items() if keys[0] in value), None)
    return type(value).__name__


Definition = Annotated[
    Annotated[FieldRef, Tag("field")]
    | Annotated[FirstOf, Tag("FirstOf")]
    | Annotated[Join, Tag("Join")]
    | Annotated[TextPattern, Tag("TextPattern")]
    | Annotated[Constant, Tag("Constant")]
    | Annotated[FilePath, Tag("FilePath")],
    Discriminator(
        _kind,
        custom_error_type="field",
        custom_error_message=(
            "must be a field: a name, a path like actor.id or items[0].sku, a list of steps, {first_of: [a, b]}, "
            "{join: [a, b], with: …}, {pattern: …, field: a}, {constant: …} or {path: …}"
        ),
    ),
]

for _each in _KEYS:
    _each.model_rebuild()


def spelled(value: Any) -> Any:
    """What stands for a part with the key `field`: a field itself, or `{join: …, with: …}` beside the part's others."""
    if isinstance(value, str | list | tuple | FirstOf | Join | TextPattern | Constant | FilePath):
        return {"field": value}
    if not isinstance(value, dict):
        return value
    for keys in _KEYS.values():
        if keys[0] in value:
            field = {key: inner for key, inner in value.items() if key in keys}
            return {"field": field} | {key: inner for key, inner in value.items() if key not in keys}
    return value


def paths_in(field: Definition) -> Iterator[FieldPath]:
    """The fields of records that a definition looks at."""
    match field:
        case FirstOf(first_of=parts) | Join(join=parts):
            for part in parts:
                yield from paths_in(part)
        case TextPattern(field=part):
            yield from paths_in(part)
        case str() | tuple():
            yield field_path(field)


def uses_file_path(field: Definition) -> bool:
    """Whether a definition looks at the path of the file."""
    match field:
        case FirstOf(first_of=parts) | Join(join=parts):
            return any(map(uses_file_path, parts))
        case TextPattern(field=part):
            return uses_file_path(part)
    return isinstance(field, FilePath)


def told(field: Definition) -> str:
    """A definition in words for people."""
    match field:
        case FirstOf(first_of=parts):
            return f"the first of {', '.join(map(told, parts))}"
        case Join(join=parts, between=between):
            return f"{', '.join(map(told, parts))} joined by {between!r}"
        case TextPattern(pattern=pattern, field=part):
            return f"{pattern} in {told(part)}"
        case Constant(constant=text):
            return f"always {text}"
        case FilePath(path=pattern):
            return f"{pattern} in the file's path"
    return field_path(field).text
