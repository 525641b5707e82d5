"""Processes that are killed again and again, forked from one that has imported everything.

That spares the seconds in which nothing could be interrupted but imports.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Fork = Callable[[str], int]
"""Starts a process that does what a line says until it is killed; returns its id when it begins."""


@contextmanager
def forking(module: str, arguments: Sequence[str], log: Path, environment: dict[str, str]) -> Iterator[Fork]:
    """Forks of a module that calls `fork_for_each_line`; what they print goes to `log`."""
    command = [sys.executable, "-m", module, *arguments]
    found_in = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("ab") as output:
        parent = subprocess.Popen(
            command,
            env=os.environ | found_in | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
        )
    asked, answered = parent.stdin, parent.stdout
    assert asked
    assert answered

    def fork(line: str) -> int:
        asked.write(f"{line}\n")
        asked.flush()
        return int(answered.readline())

    try:
        yield fork
    finally:
        parent.kill()
        parent.communicate()


def fork_for_each_line(work: Callable[[str], None]) -> None:
    """Have a process do what each line says. `work` goes on for as long as `begun` does."""
    # Nobody waits for those that were killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                work(line.strip())
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)


def begun() -> Iterator[None]:
    """Tell the id of this process, and go on until it is killed, or nobody is there any more who could do that."""
    parent = os.getppid()
    sys.stdout.write(f"{os.getpid()}\n")
    sys.stdout.flush()
    while os.getppid() == parent:
        yield
        time.sleep(0.02)
