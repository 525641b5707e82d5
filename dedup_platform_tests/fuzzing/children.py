"""Work in a child process that may crash, hang or swell: it is ended, and what it did is told."""

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GIGABYTE = 2**30
_PAGE = resource.getpagesize()
_LOOK = 0.01


@dataclass(frozen=True)
class Outcome:
    """How a child ended: what was wrong, if anything; its processor time in seconds and its largest memory in bytes."""

    wrong: str | None
    said: str
    seconds: float
    memory: int


def in_child(work: Callable[[], object], log: Path, seconds: int, memory: int = GIGABYTE) -> Outcome:
    """Do it in a fork of this process, which must have begun no thread of its own.

    It may take so many seconds of processor time, thrice as long by the clock, and so many bytes of resident memory.
    """
    child = os.fork()
    if child == 0:
        os._exit(_do(work, log, seconds))
    until = time.monotonic() + 3 * seconds
    killed = None
    while True:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            break
        if killed is None and (killed := _beyond(child, until, memory)):
            os.kill(child, signal.SIGKILL)
        time.sleep(_LOOK)
    peak = used.ru_maxrss * 1024
    said = log.read_text(errors="replace")
    wrong = killed or _how_it_ended(status, said) or (f"held {peak:,} bytes" if peak > memory else None)
    return Outcome(wrong, said, used.ru_utime + used.ru_stime, peak)


def _do(work: Callable[[], object], log: Path, seconds: int) -> int:
    with log.open("wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        work()
    except BaseException as error:
        told = " ".join(str(error).split())
        with log.open("a") as output_too:
            output_too.write("".join(traceback.format_exception(error))[-4000:])
            output_too.write(f"\n{type(error).__name__}: {told[:500]}")
        return 1
    return 0


def _beyond(child: int, until: float, memory: int) -> str | None:
    if time.monotonic() > until:
        return "hung"
    resident = int(Path(f"/proc/{child}/statm").read_text().split()[1]) * _PAGE
    return f"held {resident:,} bytes" if resident > memory else None


def _how_it_ended(status: int, said: str) -> str | None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "took too long" if number == signal.SIGXCPU else f"died of {signal.Signals(number).name}"
    return (said.strip().splitlines() or ["ended"])[-1] if os.WEXITSTATUS(status) else None
