"""A process that takes in and repairs one stream and kills itself, for real, at a named step.

`python -m dedup_platform_tests.crashes.child '{"home": …}'` has a Spark of its own. Without an argument it forks such a
process for each line of that kind that it reads, and answers how that ended: forked from a process that has imported
everything, on the Spark of a server, a run takes a fraction of the time.

`job` is `run`, or `buckets` (the number of buckets is changed after the ingest), or `replay` (rejected records are
replayed). `victim` is `all`, or `python`: then the Java process lives on.
"""

import json
import os
import signal
import sys
import time
import traceback
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


def main(home: str, stream: str, now: str, step: str, victim: str, job: str, remote: str | None = None) -> None:
    """Run once; the process does not come back from the step."""
    settings = Settings(home=Path(home), spark_master="local[1]", spark_remote=remote)
    defined = load_stream(Path(stream))
    clock = HeldClock(datetime.fromisoformat(now))
    platform = Platform(settings, {defined.name: defined}, lambda: spark_session(settings), clock)
    die = {"all": die_wholly, "python": lambda: die_without_java(Path(home))}[victim]

    def hear(come_to: str) -> None:
        sys.stderr.write(f"{time.monotonic():.1f} {come_to}\n")
        if come_to == step:
            die()

    tell_steps(platform, hear)
    platform.ingest(defined.name)
    if job == "replay":
        platform.rejected.replay(defined.name)
    elif job == "buckets":
        platform.change_buckets(defined.name, BUCKETS)
    else:
        platform.repair(defined.name)


def fork_for_each_line() -> None:
    """Answer each line of JSON with the exit code of the process that did what it says; `log` is where it wrote."""
    for line in iter(sys.stdin.readline, ""):
        asked = json.loads(line)
        log = asked.pop("log")
        child = os.fork()
        if child == 0:
            os.setsid()
            with Path(log).open("w") as said:
                for stream in (sys.stdout, sys.stderr):
                    os.dup2(said.fileno(), stream.fileno())
            run_and_exit(asked)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run_and_exit(asked: dict[str, str]) -> None:
    """End without what the process that it was forked from would do at its end."""
    try:
        main(**asked)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


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
    main(**json.loads(sys.argv[1])) if sys.argv[1:] else fork_for_each_line()
