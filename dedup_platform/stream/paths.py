"""Where in a record a value lies: the name of a field, or a path through what is nested in it.

A text is first of all a name: if the record itself has a field of just this name, dots and brackets and all, that is
meant. Only a record that has none is entered by the steps that the text spells: `actor.id`, `items[0].sku`,
`['user.name'].first`. A list of steps (`[actor, id]`) is never taken for a name.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

__all__ = ["FieldPath", "FieldRef", "FieldSpelling", "Step", "field_path", "field_spelling", "text_of_steps"]

Step = str | int
"""The name of a field of a record or of a key of a map, or a place in a list, from 0."""

FieldSpelling = str | tuple[Step, ...]

_STEP = re.compile(
    r"""\[(?P<place>[0-9]{1,9})\]|\['(?P<single>[^']+)'\]|\["(?P<double>[^"]+)"\]|\.(?P<name>[^.\[\]]+)"""
)
_PLAIN_NAME = re.compile(r"""[^.\[\]'"]+""")


@dataclass(frozen=True)
class FieldPath:
    """Where a value lies. `text` is how people are told of it."""

    text: str
    name: str | None
    """The field of the record itself that this is, wherever there is one."""
    steps: tuple[Step, ...]
    """The way to it otherwise, the first a name; empty if the text spells none."""

    @property
    def plain(self) -> str | None:
        """The name, if this is one and nothing else."""
        if self.name is None:
            return str(self.steps[0]) if len(self.steps) == 1 else None
        return self.name if self.steps in ((), (self.name,)) else None

    @property
    def not_a_step(self) -> str | None:
        """Where a text that has dots or brackets and spells no path stops being one; None of paths and of plain names.

        It is taken for a name, which is seldom what was meant.
        """
        if self.steps or self.name is None:
            return None
        return self.name[_steps_in(self.name)[1] :]

    @property
    def top(self) -> str:
        """The field of the record itself that the value is in, if no field has the whole text for its name."""
        return str(self.steps[0]) if self.steps else self.text


@lru_cache(4096)
def field_path(spelling: FieldSpelling) -> FieldPath:
    """The path that a stream file spells, as a text or as a list of steps."""
    if isinstance(spelling, str):
        return FieldPath(spelling, spelling, _steps_of(spelling))
    return FieldPath(text_of_steps(spelling), None, spelling)


def field_spelling(value: Any) -> FieldSpelling:
    """A text or a list of steps as it may stand in a stream file. ValueError with what is allowed for all others."""
    if isinstance(value, str):
        if not value:
            raise ValueError("is empty; write the name of a field of the records")
        return value
    if not isinstance(value, list | tuple):
        raise ValueError("must be a field: a name, a path like actor.id or items[0].sku, or a list of steps")
    if not value or not isinstance(value[0], str):
        raise ValueError("a list of steps begins by the name of a field of the records: [actor, id]")
    for step in value:
        if not _is_step(step):
            raise ValueError(f"{step!r} is no step; a step is a name, or a place in a list: 0 or more")
    return tuple(value)


def text_of_steps(steps: tuple[Step, ...]) -> str:
    """The text that spells these steps."""
    return "".join(map(_spelled, steps)).removeprefix(".")


_A_STEP = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}
_STEPS = {"type": "array", "items": _A_STEP, "minItems": 1}
FieldRef = Annotated[
    FieldSpelling,
    PlainValidator(field_spelling),
    PlainSerializer(lambda value: value, return_type=Any),
    WithJsonSchema({"title": "field", "anyOf": [{"type": "string"}, _STEPS]}),
]


def _is_step(step: Any) -> bool:
    return bool(step) if isinstance(step, str) else type(step) is int and step >= 0


def _steps_of(text: str) -> tuple[Step, ...]:
    """The steps of a text; none if it spells no path."""
    steps, end = _steps_in(text)
    return tuple(steps) if end == len(text) else ()


def _steps_in(text: str) -> tuple[list[Step], int]:
    """The steps that a text spells, and where it goes on as something else: a path begins by a name."""
    dots = 0 if text.startswith("[") else 1
    rest = "." * dots + text
    steps: list[Step] = []
    at = 0
    while (found := _STEP.match(rest, at)) and (steps or not found["place"]):
        steps.append(int(found["place"]) if found["place"] else found["single"] or found["double"] or found["name"])
        at = found.end()
    return steps, max(0, at - dots)


def _spelled(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_NAME.fullmatch(step):
        return f".{step}"
    return f"['{step}']" if "'" not in step else f'["{step}"]'
