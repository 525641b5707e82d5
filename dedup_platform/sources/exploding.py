"""Records that hold lists of events, taken apart: each event is a record of its own, as canonical JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from dedup_platform.sources.records import (
    MALFORMED_RECORD,
    Record,
    RejectedError,
    bounded,
    context_text,
    undivided,
)
from dedup_platform.sources.text.json_records import canonical, json_content

__all__ = ["events_of", "exploded"]


def exploded(record: Record, steps: Sequence[str], file_format: str) -> Iterator[Record]:
    """The events of one record of a file; a rejected one stays what it is, one without the list is rejected."""
    payload, content, context = record
    if isinstance(content, str):
        yield record
        return
    try:
        yield from events_of(content, steps, format=file_format, encoding="json")
    except RejectedError as rejected:
        yield undivided(payload, rejected.reason, **json.loads(context))


def events_of(content: Any, steps: Sequence[str], **facts: Any) -> Iterator[Record]:
    """The events in what a record holds, which share these facts. RejectedError, before the first, if there is no list
    of them."""
    context = context_text(**facts)
    for event in _events_in(content, steps):
        yield bounded(canonical(event).encode(), json_content, context, facts)


def _events_in(content: Any, steps: Sequence[str]) -> Sequence[Any]:
    """The list to which these names lead. RejectedError if they lead to none."""
    for step in steps:
        content = content.get(step) if isinstance(content, dict) else None
    if not isinstance(content, list):
        raise RejectedError(MALFORMED_RECORD)
    return content
