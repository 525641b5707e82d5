"""The click stream's files: gzipped json lines, and the stream file that describes them."""

import gzip
import json
import os
from datetime import datetime
from pathlib import Path

from dedup_platform.demo.truth import Click, Truth

FOLDER = "clicks"

STREAM = """\
# A generated click stream; its truth is known to the generator.
name: clicks
source:
  kind: files
  path: {folder}/*.json.gz
  format: json
fields:
  entity_id: user_id
  event_id: event_id
  event_time: occurred_at
  arrival_time: received_at
  attributes:
    page: page
    amount: {{field: amount, type: "decimal(10,2)"}}
missing_entity: keep
partitions: {{granularity: day, start: {start}}}
buckets: 4
deduplicate: {{key: [entity_id, event_id], window: 1d}}
sessions:
  timeout: 30m
  aggregates:
    revenue: {{sum: amount}}
    orders: {{count: amount}}
    landing_page: {{first: page}}
    exit_page: {{last: page}}
late: {{grace: 1h, settle: 5s, max_delay: 15m, min_rows: 1, max_future: 10m}}
"""


def stream_file(folder: Path, truth: Truth) -> Path:
    """Write the stream file of the clicks in `folder`."""
    path = folder / "clicks.yaml"
    path.write_text(STREAM.format(folder=FOLDER, start=truth.start.date()), encoding="utf-8")
    return path


def line(event: Click, received: datetime) -> str:
    """The event as a line of json, without the line feed."""
    fields: dict[str, str | float | None] = {
        "event_id": event.event_id,
        "user_id": event.user,
        "occurred_at": stamp(event.occurred_at),
        "received_at": stamp(received),
        "page": event.page,
    }
    if event.amount is not None:
        fields["amount"] = event.amount / 100
    return json.dumps(fields)


def stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def write_file(path: Path, lines: list[tuple[datetime, str]]) -> None:
    """Lines in order of receipt; the file is as old as its last line, so the same clicks are the same files."""
    lines.sort()
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{text}\n" for _, text in lines).encode()
    path.write_bytes(gzip.compress(content, compresslevel=1, mtime=0))
    modified = lines[-1][0].timestamp()
    os.utime(path, (modified, modified))
