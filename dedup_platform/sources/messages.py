"""Messages: what the value of one holds, as records. A message may hold one event or many."""

from collections.abc import Iterator
from typing import Any

from dedup_platform.sources.csv_records import csv_content, csv_records
from dedup_platform.sources.json_records import canonical, json_content
from dedup_platform.sources.lines import Lines
from dedup_platform.sources.records import (
    DAMAGED_FILE,
    MALFORMED_RECORD,
    MAX_RECORD_BYTES,
    Content,
    Record,
    context_text,
    oversized,
    undivided,
)
from dedup_platform.stream import Stream

__all__ = ["MessageReader"]


class MessageReader:
    """Takes apart the messages of one stream, and reads single records again. It is made where it is used."""

    def __init__(self, stream: Stream) -> None:
        self._format = stream.source.format
        self._columns = stream.source.csv.columns if stream.source.csv else ()
        self._batch = stream.source.json_format.records if stream.source.json_format else None

    def records(self, value: bytes) -> Iterator[Record]:
        """The records of one message in order. Raises for nothing that a message may hold.

        A message without any bytes, and any other that cannot be taken apart, is one rejected record.
        """
        facts = {"format": self._format}
        if self._format == "csv":
            return _csv_message(value, self._columns, facts)
        return _json_batch(value, self._batch, facts) if self._batch else _json_message(value, facts)

    def content(self, payload: bytes, context: dict[str, Any]) -> Content:
        """What a record of raw_events holds, from its payload and the facts of its payload_context."""
        if "damage" in context:
            return DAMAGED_FILE
        if "oversized" in context:
            return MALFORMED_RECORD
        if "undivided" in context:
            return self._only_content(payload)
        if context["format"] == "csv":
            return csv_content(payload, context["header"])
        return json_content(payload)

    def _only_content(self, value: bytes) -> Content:
        """That of a message which could not be taken apart before; of one with many events it still cannot be told."""
        contents = [content for _, content, _ in self.records(value)]
        return contents[0] if len(contents) == 1 else MALFORMED_RECORD


def _csv_message(value: bytes, columns: tuple[str, ...], facts: dict[str, Any]) -> Iterator[Record]:
    is_blank = True
    for record in csv_records(Lines(iter([value])), columns, **facts):
        is_blank = False
        yield record
    if is_blank:
        yield undivided(value, MALFORMED_RECORD, **facts)


def _json_message(value: bytes, facts: dict[str, Any]) -> Iterator[Record]:
    if len(value) > MAX_RECORD_BYTES:
        yield oversized(value, **facts)
    else:
        yield value, json_content(value), context_text(**facts)


def _json_batch(value: bytes, name: str, facts: dict[str, Any]) -> Iterator[Record]:
    """The objects of the list `name`; the payload of each is its canonical JSON."""
    content = json_content(value)
    events = content.get(name) if isinstance(content, dict) else None
    if not isinstance(events, list):
        yield undivided(value, MALFORMED_RECORD, **facts)
        return
    context = context_text(**facts)
    for event in events:
        payload = canonical(event).encode()
        if len(payload) > MAX_RECORD_BYTES:
            yield oversized(payload, **facts)
        else:
            yield payload, event if isinstance(event, dict) else MALFORMED_RECORD, context
