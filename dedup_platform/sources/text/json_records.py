"""JSON lines: one object a line. Numbers keep their text; a name that stands twice in an object makes it malformed."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring
from typing import Any, NoReturn

from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    Content,
    Record,
    content_of,
    context_text,
    damaged,
    oversized,
)
from dedup_platform.sources.text.lines import Lines

__all__ = ["Number", "canonical", "has_too_many_levels", "json_content", "json_records", "json_value", "number_of"]

MAX_LEVELS = 100
"""Objects and lists inside one another; a record with more is malformed (Python would stop somewhere beyond)."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Number(str):
    """The text of a JSON number, so that no digit is lost and 1.0 stays 1.0."""

    __slots__ = ()


class _Numbers(dict[str, Number]):
    """The Number of each text. Short ones are the same object each time, so that very many of them stay small."""

    def __missing__(self, text: str) -> Number:
        number = Number(text)
        if len(text) <= _SHORT:
            self[number] = number
        return number


_SHORT, _LARGE = 4, 2**16
number_of = _Numbers().__getitem__
"""The Number that a text says; to look for a short one takes longer than to make it, and less memory."""


def json_records(lines: Lines) -> Iterator[Record]:
    """The records of one file, each with its bytes without the line's end. Blank lines are no records."""
    context = context_text(format="json")
    for block in lines:
        for line in block:
            payload = line.rstrip(b"\r\n")
            if len(payload) > MAX_RECORD_BYTES:
                yield oversized(payload, format="json")
            elif payload and not payload.isspace():
                yield payload, content_of(json_content, payload), context
    if lines.damage:
        yield damaged(lines.rest, lines.damage, format="json")


def json_content(payload: bytes) -> Content:
    """The fields of one record: texts, numbers as Number, booleans, None, lists and dicts."""
    content = json_value(payload)
    return content if isinstance(content, dict) else MALFORMED_RECORD


def json_value(payload: bytes) -> Any:
    """What `json_content` gives, of a list or a single value, too; None if it is malformed or null."""
    try:
        text = payload.decode()
        content = (_DECODER if len(text) < _LARGE else _DECODER_OF_LARGE).decode(text)
    except (ValueError, RecursionError):  # UnicodeError and JSONDecodeError are ValueErrors
        return None
    return None if _is_too_deep(content, text) or _has_half_characters(content, text) else content


def canonical(value: Any) -> str:
    """JSON without spaces and with sorted names: equal values have equal texts. Numbers keep their own text."""
    if isinstance(value, dict):
        return "{" + ",".join([f"{encode_basestring(name)}:{canonical(value[name])}" for name in sorted(value)]) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, str):
        return encode_basestring(value)
    return {True: "true", False: "false", None: "null"}[value]


def has_too_many_levels(content: Any) -> bool:
    """Whether there are more than MAX_LEVELS dicts and lists inside one another."""
    level = [content]
    for _ in range(MAX_LEVELS):
        level = [value for outer in level for value in _inner(outer)]
    return any(isinstance(value, dict | list) for value in level)


def _is_too_deep(content: Any, text: str) -> bool:
    return text.count("{") + text.count("[") > MAX_LEVELS and has_too_many_levels(content)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _has_half_characters(content: Any, text: str) -> bool:
    if not _SURROGATE.search(text):
        return False
    try:
        canonical(content).encode()
    except UnicodeEncodeError:
        return True
    return False


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice")
    return fields


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _decoder(read_number: Callable[[str], Number]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_float=read_number, parse_int=read_number, parse_constant=_refuse
    )


_DECODER, _DECODER_OF_LARGE = _decoder(Number), _decoder(number_of)
