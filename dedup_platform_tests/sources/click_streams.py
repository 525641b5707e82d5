"""The stream that these tests read: clicks with the fields user, id and at."""

from pathlib import Path
from typing import Any

from dedup_platform.stream import Stream


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
