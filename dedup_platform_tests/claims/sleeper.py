"""`python -m dedup_platform_tests.claims.sleeper HOME STREAM_FILE TARGET STEP`: falls asleep at a step of its work.

It stops itself (SIGSTOP), and says what it came to once somebody wakes it (SIGCONT).
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock
from typing import Any
from unittest.mock import patch

from dedup_platform.errors import DedupPlatformError
from dedup_platform.ledger import Boards
from dedup_platform.planning.moments import utc_now
from dedup_platform.stream import load_stream
from dedup_platform.testing import light_platform

BRIEF = timedelta(seconds=1)
"""So long its claims live, so that nobody waits for it for long."""
ROWS = 3
"""In one transaction."""
STEPS = {
    "before it reads": ("dedup_platform.recompute.build.Recompute._begin", 0, False),
    "before it publishes": ("dedup_platform.lake.publishing.Publisher._move_main", 0, False),
    "after its token was looked at": ("dedup_platform.lake.publishing.check_token", 0, True),
    "before it writes to Postgres": ("dedup_platform.sinks.postgres.PostgresTable.write", 1, False),
    "before it writes to Kafka": ("dedup_platform.sinks.kafka.KafkaTopic.write", 1, False),
}
"""What is slept at: a function, how often it is called before, and whether behind it."""


@contextmanager
def asleep(step: str) -> Iterator[None]:
    """Fall asleep once at this step, but not while the control database is locked: others would wait for that."""
    target, calls, is_behind = STEPS[step]
    left, awake, change = [calls], Lock(), Boards.change

    def change_awake(*args: Any) -> Any:
        with awake:
            return change(*args)

    def sleep() -> None:
        with awake:
            os.kill(os.getpid(), signal.SIGSTOP)

    def sleepy(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            is_time = left[0] == -1
            if is_time and not is_behind:
                sleep()
            result = function(*args, **kwargs)
            if is_time and is_behind:
                sleep()
            return result

        return called

    with patch.object(Boards, "change", change_awake), patch(target, sleepy(resolve_name(target))):
        yield


def main(home: str, file: str, target: str, step: str) -> None:
    """Bring a table or a sink up to date."""
    stream = load_stream(Path(file))
    platform = light_platform(Path(home), stream, utc_now)
    with (
        patch("dedup_platform.planning.claims.TIME_TO_LIVE", BRIEF),
        patch("dedup_platform.platform.claims.TIME_TO_LIVE", BRIEF),
        patch("dedup_platform.changes.publisher.BATCH_ROWS", ROWS),
        asleep(step),
    ):
        try:
            if target in stream.publish.sinks:
                platform.publish(stream.name, target)
            else:
                platform.recompute_stale(stream.name, target)
        except DedupPlatformError as error:
            print(type(error).__name__)  # noqa: T201
        else:
            print("done")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
