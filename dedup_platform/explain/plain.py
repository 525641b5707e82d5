"""Explanations for programs: plain values under keys that stay, with times in ISO 8601 and snapshot ids as text."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from dedup_platform import tables
from dedup_platform.explain.commits import TableCommit
from dedup_platform.explain.event import EventAnswer
from dedup_platform.explain.history import RowChange
from dedup_platform.explain.record import RecordAnswer
from dedup_platform.explain.sentences import Told, Words
from dedup_platform.explain.session import SessionAnswer

_COORDINATES = ("coordinates", "winner")
_SNAPSHOTS = ("snapshot_id", "published_with")


def event_value(answer: EventAnswer, told: Told, words: Words) -> dict[str, Any]:
    """What is known of an event's id."""
    known = {name: value for name, value in _plain(answer, words).items() if name != "entity"}
    return {"found": bool(answer.events), "sentence": told.sentence, **known}


def record_value(answer: RecordAnswer, told: Told, words: Words) -> dict[str, Any]:
    """What is known of a record's coordinates."""
    return {"found": answer.arrival_time is not None, "sentence": told.sentence, **_plain(answer, words)}


def session_value(answer: SessionAnswer, told: Told, words: Words) -> dict[str, Any]:
    """What is known of a session's id."""
    value = {"found": answer.session is not None, "sentence": told.sentence, **_plain(answer, words)}
    if answer.session:
        value["session"] |= {"first_arrived": _plain(answer.session.first_arrived, words)}
    return value


def _plain(value: Any, words: Words) -> Any:
    if isinstance(value, TableCommit | RowChange):
        return _fields(value, words) | {"run_id": words.run(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value, words)
    if isinstance(value, Mapping):
        return {name: _plain(each, words) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each, words) for each in value]
    return _scalar(value)


def _fields(value: Any, words: Words) -> dict[str, Any]:
    return dict(_named(each.name, getattr(value, each.name), words) for each in fields(value))


def _named(name: str, value: Any, words: Words) -> tuple[str, Any]:
    if name in _COORDINATES:
        return name, dict(zip(tables.COORDINATES, value, strict=True)) if value else None
    if name in _SNAPSHOTS:
        # As text: a snapshot id has more digits than the numbers of most readers of JSON.
        return name, None if value is None else str(value)
    if name == "partition":
        return name, words.stream.partitions.key(value)
    if name == "late_by":
        return "late_seconds", value.total_seconds() if value else None
    return name, _plain(value, words)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no such number
    return str(value) if isinstance(value, Decimal) else value
