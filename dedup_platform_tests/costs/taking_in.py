"""A process that takes in what waits and does all of it itself, as one worker would.

python -m dedup_platform_tests.costs.taking_in FOLDER

`FOLDER/events.yaml` is the stream. It prints one line of JSON: how many records there are then, how many of them were
rejected, and how many bytes the process had resident at most before it began and until its end.
"""

import json
import sys
from pathlib import Path

from dedup_platform.stream import load_stream
from dedup_platform.testing import HeldClock, light_platform, utc


def main(folder: Path) -> None:
    """Take in all that waits, in as many batches as it is."""
    stream = load_stream(folder / "events.yaml")
    platform = light_platform(folder / "home", stream, HeldClock(utc("2025-01-01T00:00:00")))
    before = peak()
    platform.ingest(stream.name)
    raw = platform.lake.catalog.load_table(stream.name, "raw_events")
    rejected = raw.scan(row_filter="rejection_reason is not null").count()
    found = {"records": raw.scan().count(), "rejected": rejected, "before": before, "peak": peak()}
    sys.stdout.write(f"{json.dumps(found)}\n")


def peak() -> int:
    """The most bytes that this process had resident. What its parent had before it began is not in it."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
