"""The models of a stream file, and what their fields mean: the text below each."""

import ast
import inspect
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from pydantic import BaseModel

from dedup_platform.stream import format_duration

__all__ = ["meanings", "models", "written"]


@cache
def meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Field -> the text below it, of a model and of those that it is made of."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not each.__module__.startswith("dedup_platform."):
            continue
        [body] = ast.parse(inspect.cleandoc("\n" + inspect.getsource(each))).body
        assert isinstance(body, ast.ClassDef), each
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                assert isinstance(text.value, ast.Constant), field.target.id
                found[field.target.id] = inspect.cleandoc(str(text.value.value)).replace("\n", " ")
    return found


def models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all that its fields may hold, each once, in the order of the fields."""
    found: dict[type[BaseModel], None] = {}

    def walk(annotation: Any) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
            found[annotation] = None
            for field in annotation.model_fields.values():
                walk(field.annotation)
                for each in field.metadata:
                    walk(each)
        for inner in getattr(annotation, "__args__", ()):
            walk(inner)

    walk(model)
    return list(found)


def written(value: Any) -> Any:
    """A default as a stream file writes it; None if there is nothing to write."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, BaseModel) or value in (None, {}, ()):
        return None
    return list(value) if isinstance(value, tuple) else value
