"""What every file format gives: records, each with its exact bytes, and the reasons why some cannot be events."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from dedup_platform.errors import DedupPlatformError
from dedup_platform.sources.compression import DamageError
from dedup_platform.spark.task_limits import is_for_lack_of_memory

__all__ = [
    "AMBIGUOUS",
    "BEFORE_START",
    "BEYOND_HORIZON",
    "DAMAGED_FILE",
    "ENDED_PROCESS",
    "EVENT_TIME_IN_FUTURE",
    "IMPOSSIBLE_EVENT_TIME",
    "MALFORMED_RECORD",
    "MAX_RECORD_BYTES",
    "MISSING_ENTITY",
    "MISSING_EVENT_ID",
    "MISSING_FIELD",
    "TOMBSTONE",
    "TOO_MANY_PARTITIONS",
    "UNFORESEEN",
    "UNKNOWN_SCHEMA",
    "UNPROCESSABLE",
    "UNREADABLE_ARRIVAL_TIME",
    "UNREADABLE_ATTRIBUTE",
    "UNREADABLE_EVENT_TIME",
    "Content",
    "Fields",
    "Record",
    "RejectedError",
    "bounded",
    "content_of",
    "context_text",
    "damaged",
    "encoded",
    "oversized",
    "pass_on_intended",
    "undivided",
    "unprocessable",
    "watch_contents",
]

_LOG = logging.getLogger(__name__)

MALFORMED_RECORD = "malformed_record"
MISSING_EVENT_ID = "missing_event_id"
MISSING_ENTITY = "missing_entity"
UNREADABLE_EVENT_TIME = "unreadable_event_time"
IMPOSSIBLE_EVENT_TIME = "impossible_event_time"
EVENT_TIME_IN_FUTURE = "event_time_in_future"
BEFORE_START = "before_start"
BEYOND_HORIZON = "beyond_horizon"
UNREADABLE_ARRIVAL_TIME = "unreadable_arrival_time"
UNREADABLE_ATTRIBUTE = "unreadable_attribute:"  # and the attribute's name
MISSING_FIELD = "missing_field:"  # and the field's name
DAMAGED_FILE = "damaged_file"
UNKNOWN_SCHEMA = "unknown_schema"
TOO_MANY_PARTITIONS = "too_many_partitions:"  # and how many there may be
UNPROCESSABLE = "unprocessable:"  # and the type of the error that nobody foresaw
ENDED_PROCESS = "ended_process:"  # and the signal, limit or error that ended it
TOMBSTONE = "tombstone"
"""A Kafka message without a value: it says that its key is gone, not that something happened."""

UNFORESEEN = (Exception, pl.exceptions.PanicException)
"""Whatever a record or a file raises costs that one only; what is raised on purpose is passed on."""

MAX_RECORD_BYTES = 16 * 2**20
"""A longer record is rejected and its payload is its beginning, so that one endless line cannot fill the memory."""

Fields = Mapping[str, Any]
"""A record's values by name: texts or, from JSON, also numbers (as their text), booleans, None, lists and dicts."""

Content = Fields | str
"""A record's fields, or the reason why it has none."""

Record = tuple[bytes, Content, str]
"""payload, content, payload_context"""

AMBIGUOUS = object()
"""The value of a field whose name stands in its file's header more than once."""


class RejectedError(Exception):
    """The record at hand cannot be an event."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def values_in(content: Content) -> int:
    """How many values a record has, with those that are nested."""
    count, inner = 0, [content]
    while inner:
        each = inner.pop()
        if isinstance(each, dict | list):
            count += len(each)
            inner += each.values() if isinstance(each, dict) else each
    return count


def context_text(**facts: Any) -> str:
    """A payload_context: what, with the payload, is enough to decode the record again."""
    try:
        return _remembered_text(tuple(facts.items()))
    except TypeError:  # a list or a mapping among them
        return encoded(facts)


def encoded(facts: Mapping[str, Any]) -> str:
    """Facts as the JSON of a payload_context."""
    return _ENCODER.encode(facts)


@lru_cache(256)
def _remembered_text(facts: tuple[tuple[str, Any], ...]) -> str:
    return encoded(dict(facts))


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def damaged(rest: bytes, damage: DamageError, **facts: Any) -> Record:
    """The one record that stands for the unreadable rest of a file; `rest` is the unfinished record before it."""
    context = context_text(**facts, damage={"reason": damage.reason, "offset": damage.offset})
    return rest[:MAX_RECORD_BYTES], DAMAGED_FILE, context


def bounded(payload: bytes, read: Callable[[bytes], Content], context: str, facts: Mapping[str, Any]) -> Record:
    """A record with what `read` finds in it, unless it is oversized; `context` is the text of the facts."""
    if len(payload) > MAX_RECORD_BYTES:
        return oversized(payload, **facts)
    return payload, content_of(read, payload), context


def content_of(read: Callable[[bytes], Content], payload: bytes) -> Content:
    """What `read` finds in a record of a file or message that is read record by record."""
    return read(payload) if _watcher is None else _watcher(read, payload)


Watcher = Callable[[Callable[[bytes], Content], bytes], Content]
"""Reads the content of a record, or gives a reason without."""
_watcher: Watcher | None = None


def watch_contents(watcher: Watcher | None) -> None:
    """From now on, in this process, `content_of` leaves it to `watcher` to read contents; to None, to nobody."""
    global _watcher  # whoever reads is many calls below of who watches, in a process of its own
    _watcher = watcher


def oversized(payload: bytes, **facts: Any) -> Record:
    """A record of more than MAX_RECORD_BYTES: its beginning is kept."""
    return payload[:MAX_RECORD_BYTES], MALFORMED_RECORD, context_text(**facts, oversized=True)


def unprocessable(error: BaseException) -> str:
    """The reason for a record that ends its reading or decoding with an error that nobody foresaw.

    Raises the error if it is one that is raised on purpose, or a refusal of memory: that may be of all that is held.
    """
    pass_on_intended(error)
    if is_for_lack_of_memory(error):
        raise error
    _LOG.warning("a record is rejected, since an error came that should not", exc_info=error)
    return UNPROCESSABLE + type(error).__name__


def pass_on_intended(error: BaseException) -> None:
    """Raise an error if it is one that is raised on purpose: it is about the source, and not about a record."""
    if isinstance(error, DedupPlatformError):
        raise error


def undivided(value: bytes, reason: str, **facts: Any) -> Record:
    """A message that cannot be taken apart into events: all of it is one rejected record."""
    if len(value) > MAX_RECORD_BYTES:
        return oversized(value, **facts)
    return value, reason, context_text(**facts, undivided=True)
