"""Processes: who they are, whether they still live, and how they do not outlive whoever started them."""

import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from functools import cache

import psutil  # type: ignore[import-untyped]

# A start time is told against the machine's boot time, which moves a little when its clock is set.
CLOCK_DRIFT_SECONDS = 5


def with_parent(command: Sequence[str], signal: str = "KILL") -> list[str]:
    """The command, so that it gets this signal as soon as the thread that started it has ended, however that was.

    Whoever is killed ends nothing that they started. As it is where no `setpriv` can do this (it is Linux's).
    """
    setpriv = _setpriv()
    return [setpriv, "--pdeathsig", signal, *command] if setpriv else list(command)


@cache
def _setpriv() -> str | None:
    """The program; None where there is none, or one that does not know how (those before 2.33, and BusyBox's)."""
    found = shutil.which("setpriv")
    if found and subprocess.run([found, "--pdeathsig", "KILL", "true"], capture_output=True, check=False).returncode:
        return None
    return found


def identity() -> str:
    """This process, as no other one is or was: `host/pid/start time`."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time():.2f}"


def is_gone(identity: str) -> bool:
    """Whether a process of this machine has ended; of those of other machines nobody knows."""
    host, _, process = identity.partition("/")
    if host != socket.gethostname():
        return False
    pid, _, started = process.partition("/")
    try:
        found = psutil.Process(int(pid))
        if found.status() == psutil.STATUS_ZOMBIE:
            # Whoever was killed ends thread by thread, and each ends what it does in the kernel: a write, a commit.
            return found.num_threads() <= 1
        return abs(found.create_time() - float(started)) > CLOCK_DRIFT_SECONDS
    except psutil.NoSuchProcess:
        return True
    except ValueError:
        return False


def free_port() -> int:
    """A port of the loopback interface that nobody has now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
