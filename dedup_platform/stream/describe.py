"""Pydantic's errors about a stream file, told as `line: key: what is wrong; what is allowed`."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dedup_platform.stream.definitions import KEY_OF
from dedup_platform.stream.positions import Document

__all__ = ["describe_errors"]

_LONGEST_VALUE = 80


def describe_errors(error: ValidationError, document: Document, model: type[BaseModel]) -> list[tuple[int, str]]:
    """(line, `key: what is wrong; what is allowed`) of every problem, by line."""
    return sorted(_describe(details, document, model) for details in error.errors(include_url=False))


def _describe(details: ErrorDetails, document: Document, model: type[BaseModel]) -> tuple[int, str]:
    loc = details["loc"]
    line, steps = document.locate(_as_written(loc, document))
    if details["type"] == "missing":
        steps.append(loc[-1])
    key = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    reason = _reason(details, _part_at(model, loc))
    return line, f"{key}: {reason}" if key else reason


def _as_written(loc: Sequence[str | int], document: Document) -> Sequence[str | int]:
    """`loc` without the key `field` where what defines the field stands beside the part's other keys."""
    for place, (step, kind) in enumerate(pairwise(loc)):
        if (
            step == "field"
            and kind in KEY_OF
            and document.locate([*loc[:place], KEY_OF[kind]])[1][-1:] == [KEY_OF[kind]]
        ):
            return [*loc[:place], *loc[place + 1 :]]
    return loc


def _reason(details: ErrorDetails, part: type[BaseModel]) -> str:
    kind, value, allowed = details["type"], details["input"], list(_keys(part))
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"unknown key{_meant(str(details['loc'][-1]), allowed)}; allowed: {', '.join(allowed)}"
    if kind in ("model_type", "model_attributes_type"):
        return f"must be a mapping; allowed keys: {', '.join(allowed)}{_got(value)}"
    if kind == "dict_type":
        return f"must be a mapping{_got(value)}"
    if kind == "too_short":
        return f"must have at least {details['ctx']['min_length']} in it{_got(value)}"
    if kind == "stream":
        return details["msg"]
    reason = details["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    expected = re.findall(r"'([^']*)'", reason) if kind == "literal_error" else []
    return f"{reason}{_got(value)}{_meant(str(value), expected)}"


def _got(value: Any) -> str:
    # What stands before the @ of an address may be a password.
    text = re.sub(r"//[^\s]*@", "//…@", repr(value))
    return f" (got {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '…'})"


def _meant(word: str, allowed: Sequence[str]) -> str:
    close = get_close_matches(word, allowed, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _part_at(model: type[BaseModel], loc: Sequence[str | int]) -> type[BaseModel]:
    """The model that the last step of `loc` is a key of; in between stand keys, tags of unions and list positions."""
    parts = [model]
    for step in loc:
        tagged = [part for part in parts if part.__name__ == step]
        field = _keys(parts[0]).get(str(step))
        parts = tagged or (_models_in(field.annotation) if field else []) or parts
    return parts[0]


def _keys(part: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in part.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
