"""`python -m dedup_platform_tests.crashes.publishing HOME STREAM_FILE SINK`: publish, in many small transactions.

Prints a line when it begins, and one when it is done.
"""

import sys
from pathlib import Path
from unittest.mock import patch

from dedup_platform.planning.moments import utc_now
from dedup_platform.stream import load_stream
from dedup_platform.testing import light_platform

ROWS = 3
"""In one transaction."""


def main(home: str, file: str, sink: str) -> None:
    """Bring one sink up to date."""
    stream = load_stream(Path(file))
    platform = light_platform(Path(home), stream, utc_now)
    print("begins", flush=True)  # noqa: T201
    with patch("dedup_platform.changes.publisher.BATCH_ROWS", ROWS):
        platform.publish(stream.name, sink)
    print("done", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
