"""Processes that others start so that they fall asleep in the middle of their work."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from dedup_platform_tests.claims.sleeper import BRIEF

PATIENCE = 60


@contextmanager
def sleeper(
    home: Path, stream_file: Path, target: str, step: str, environment: Mapping[str, str]
) -> Iterator[Callable[[], str]]:
    """A process that fell asleep at a step, so long ago that its claim is over; wakes it when called, to its end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dedup_platform_tests.claims.sleeper", str(home), str(stream_file), target, step],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
    )

    def wake() -> str:
        process.send_signal(signal.SIGCONT)
        return process.communicate(timeout=PATIENCE)[0].strip()

    try:
        until = time.monotonic() + PATIENCE
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
            assert process.poll() is None, "it never slept"
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(BRIEF.total_seconds())
        yield wake
    finally:
        process.kill()
        process.communicate()
