"""A process that takes in and repairs one stream and kills itself, for real, at a named step.

python -m dedup_platform_tests.crashes.child HOME STREAM_FILE NOW STEP all|python run|buckets|replay

Or it changes the number of buckets after it, or replays rejected records in its place.
"""

import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

from pyspark import SparkContext

from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.spark.session import spark_session
from dedup_platform.stream import load_stream
from dedup_platform.testing import HeldClock
from dedup_platform_tests.crashes.steps import tell_steps

LONGEST_LIFE = 900
"""Seconds after which a Java process that outlives its Python ends by itself, whatever became of the test."""


BUCKETS = 8


def main(home: Path, stream_file: Path, now: datetime, fatal: str, victim: str, job: str) -> None:
    """Run once; the process does not come back from the step named `fatal`."""
    settings = Settings(home=home, spark_master="local[1]")
    stream = load_stream(stream_file)
    platform = Platform.open(settings, {stream.name: stream}, lambda: spark_session(settings), HeldClock(now))
    die = {"all": die_wholly, "python": lambda: die_without_java(home)}[victim]

    def hear(step: str) -> None:
        sys.stderr.write(f"{time.monotonic():.1f} {step}\n")
        if step == fatal:
            die()

    tell_steps(platform, hear)
    platform.ingest(stream.name)
    if job == "replay":
        platform.replay(stream.name)
    elif job == "buckets":
        platform.change_buckets(stream.name, BUCKETS)
    else:
        platform.repair(stream.name)


def die_wholly() -> None:
    """Kill this process and its Java process at once; the parent gave them a process group of their own."""
    os.killpg(0, signal.SIGKILL)


def die_without_java(home: Path) -> None:
    """Kill this process only. Its Java process sleeps until somebody wakes it, and then goes on as if nothing was."""
    gateway = SparkContext._gateway
    assert gateway
    java, pipe = gateway.proc.pid, gateway.proc.stdin.fileno()
    os.kill(java, signal.SIGSTOP)
    (home / "java.pid").write_text(str(java))
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    # Java ends when the pipe to its parent closes. A copy of this process holds it open, and nothing else: Java should
    # find no Python at the other end of its sockets.
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    deadline = time.monotonic() + LONGEST_LIFE
    while (home / "java.pid").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(java, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), datetime.fromisoformat(sys.argv[3]), *sys.argv[4:])
