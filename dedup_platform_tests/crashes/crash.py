"""Starts runs that kill themselves: each in a process of its own, with a Spark of its own or with a server's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.homes import Home

CHILD = [sys.executable, "-m", "dedup_platform_tests.crashes.child"]
LONGEST = 600
"""Seconds after which a process that should have died is given up."""


def crash(home: Home, step: str, victim: str = "all", job: str = "run") -> tuple[int, str]:
    """A process with a Spark of its own kills itself at this step: how it ended, and what it said."""
    log = home.folder / "log"
    with log.open("w") as said:
        process = subprocess.run(
            [*CHILD, json.dumps(_asked(home, step, victim, job))],
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            timeout=LONGEST,
            check=False,
        )
    return process.returncode, log.read_text()


class Forks:
    """Runs on the Spark of a server, forked one after the other from a process that has imported everything."""

    def __init__(self, remote: str, folder: Path) -> None:
        self._remote = remote
        self._log = (folder / "forks.log").open("w")
        self._parent = subprocess.Popen(
            CHILD, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def crash(self, home: Home, step: str, job: str = "run") -> tuple[int, str]:
        """A process kills itself at this step: how it ended, and what it said. Its server finishes what it is at."""
        asked, answered = self._parent.stdin, self._parent.stdout
        assert asked
        assert answered
        log = home.folder / "log"
        asked.write(json.dumps({**_asked(home, step, "all", job), "remote": self._remote, "log": str(log)}) + "\n")
        asked.flush()
        return int(answered.readline()), log.read_text()

    def end(self) -> None:
        """End the process from which they were forked."""
        self._parent.kill()
        self._parent.communicate()
        self._log.close()


@contextmanager
def forking(remote: str, folder: Path) -> Iterator[Forks]:
    """Forks while the block runs."""
    forks = Forks(remote, folder)
    try:
        yield forks
    finally:
        forks.end()


def _asked(home: Home, step: str, victim: str, job: str) -> dict[str, str]:
    place = {"home": str(home.path), "stream": str(home.stream.origin), "now": home.clock.now.isoformat()}
    return {**place, "step": step, "victim": victim, "job": job}
