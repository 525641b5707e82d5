"""The records of one Kafka message, as its stream's format says."""

from collections.abc import Iterator

from dedup_platform.sources.json_records import json_content
from dedup_platform.sources.records import MALFORMED_RECORD, Record, context_text
from dedup_platform.stream import Stream

__all__ = ["MessageReader"]


class MessageReader:
    """Reads the values of a stream's messages. Raises for nothing that bytes may hold."""

    def __init__(self, stream: Stream) -> None:
        self._context = context_text(format=stream.source.format)

    def records(self, value: bytes) -> Iterator[Record]:
        """The records of one message, in order."""
        yield value, json_content(value) if value else MALFORMED_RECORD, self._context
