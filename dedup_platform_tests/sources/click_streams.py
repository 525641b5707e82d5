"""The stream that these tests read: clicks with the fields user, id and at."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pydantic import model_validator

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.decoding import EventDecoder, Row
from dedup_platform.sources.files import list_files, read_group
from dedup_platform.stream import Stream
from dedup_platform.stream.format import Format


def click_stream(
    file_format: str, folder: Path = Path("/inbox"), path: str = "*", settle: str = "0s", **parts: Any
) -> Stream:
    """Files at `path` below `folder`; `fields` adds to the three, other parts are those of a stream file."""
    return Stream.model_validate(
        {
            "name": "clicks",
            "source": {"kind": "files", "path": f"{folder}/{path}", "format": file_format, "settle": settle},
            "fields": {"entity_id": "user", "event_id": "id", "event_time": "at"} | parts.pop("fields", {}),
            "partitions": {"granularity": "day", "start": "2024-01-01"},
            "sessions": {"timeout": "30m"},
        }
        | parts
    )


class Messages(Format):
    """A source of messages as far as their formats go."""

    @model_validator(mode="after")
    def _format_fits_messages(self) -> "Messages":
        self.check_messages()
        return self


def message_stream(
    message_format: str, folder: Path | None = None, fields: dict[str, Any] | None = None, **parts: Any
) -> Stream:
    """Clicks that arrive in messages; `parts` are those of the source, with schemas below `folder`."""
    source = Messages.model_validate({"format": message_format} | parts, context={"origin": (folder or Path()) / "x"})
    stream = click_stream("json", fields=fields or {})
    return stream.model_copy(update={"source": source})


def decode_kept(decoder: EventDecoder, payload: bytes | None, context: str, source: str, modified: datetime) -> Row:
    """The row of a record as raw_events holds it."""
    return decoder.decode(*decoder.kept(payload, context, source, modified))


def taken_in(stream: Stream) -> list[dict[str, Any]]:
    """The rows of `raw_events` that a stream's files become, in their order; decoded again, each is seen to stay."""
    files = [(file, 0) for file in list_files(stream, datetime.max.replace(tzinfo=UTC)).ready]
    rows = [row for frame in read_group(stream, [files], 0) for row in frame.iter_rows(named=True)] if files else []
    decoder = EventDecoder(stream)
    for row in rows:
        again = decode_kept(decoder, row["payload"], row["payload_context"], row["source"], row["arrival_time"])
        names = ("entity_id", "event_id", "event_time", "arrival_time", *stream.attributes, "rejection_reason")
        assert list(again) == [_plain(row[name]) for name in names], row
    return sorted(rows, key=lambda row: (row["source"], row["source_offset"], row["source_index"]))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value
