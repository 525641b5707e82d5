"""Records as files that the real source reads, and a stream that fits them."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import yaml

from dedup_platform.stream import Stream, load_stream
from dedup_platform.testing.oracle import group
from dedup_platform.testing.records import Record

ATTRIBUTES = {"page": "string", "amount": "decimal(12,2)", "quantity": "long"}
AGGREGATES = {
    "revenue": ("sum", "amount"),
    "pages": ("count", "page"),
    "total_quantity": ("sum", "quantity"),
    "smallest": ("min", "amount"),
    "largest": ("max", "quantity"),
    "landing_page": ("first", "page"),
    "exit_page": ("last", "page"),
}


def make_stream(
    folder: Path,
    name: str = "events",
    *,
    granularity: str = "day",
    window: str = "1d",
    timeout: str = "30m",
    start: str = "2024-01-01",
    buckets: int = 1,
    key: Sequence[str] = ("entity_id", "event_id"),
    attributes: Mapping[str, str] = ATTRIBUTES,
    aggregates: Mapping[str, tuple[str, str]] = AGGREGATES,
) -> Stream:
    """A stream of the files that `write_batch` writes to `folder / name`.

    `attributes`: name -> type; `aggregates`: name -> (function, attribute). All as a stream file would say it.
    """
    content = {
        "name": name,
        "source": {"kind": "files", "path": f"{name}/*.json", "format": "json"},
        "fields": {
            "entity_id": "entity",
            "event_id": "id",
            "event_time": "happened",
            "arrival_time": "arrived",
            "attributes": {column: {"field": column, "type": kind} for column, kind in attributes.items()},
        },
        "partitions": {"granularity": granularity, "start": start},
        "buckets": buckets,
        "deduplicate": {"key": list(key), "window": window},
        "sessions": {
            "timeout": timeout,
            "aggregates": {column: {function: attribute} for column, (function, attribute) in aggregates.items()},
        },
    }
    (folder / name).mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return load_stream(path)


def write_batch(stream: Stream, records: Iterable[Record], modified: datetime | None = None) -> list[Path]:
    """Write whole files of json lines so that each record gets its own coordinates when they are read.

    The files were modified when their last record arrived, unless `modified` says otherwise. ValueError if the records
    of a file are not all of its lines or if a file is there already.
    """
    return [
        write_file(stream.files.root / name, lines, modified)
        for name, lines in group(records, lambda each: each.source).items()
    ]


def write_file(path: Path, records: Iterable[Record], modified: datetime | None = None) -> Path:
    lines = sorted(records, key=lambda each: each.source_offset)
    if [each.coordinate[1:] for each in lines] != [(0, number, 0) for number in range(len(lines))]:
        raise ValueError(f"the records of {path.name} must be its lines 0 to {len(lines) - 1}, each once")
    if path.exists():
        raise ValueError(f"{path.name} was written before: a batch brings new files")
    path.write_text("".join(f"{json.dumps(fields(each))}\n" for each in lines), encoding="utf-8")
    seconds = (modified or max(each.arrival_time for each in lines)).timestamp()
    os.utime(path, (seconds, seconds))
    return path


def fields(record: Record) -> dict[str, object]:
    """Numbers are texts: a decimal must not pass through a float."""
    known = {name: str(value) for name, value in record.attributes.items() if value is not None}
    return {
        "entity": record.entity_id,
        "id": record.event_id,
        "happened": record.event_time.isoformat(timespec="microseconds"),
        "arrived": record.arrival_time.isoformat(timespec="microseconds"),
        **known,
    }
