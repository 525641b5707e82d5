"""What a process that reads what others sent may take: past it the process ends, and no machine with it."""

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

__all__ = ["TaskLimits", "is_for_lack_of_memory", "limited", "memory_not_limited", "note_progress"]

_KILOBYTE = 1024


@dataclass(frozen=True)
class TaskLimits:
    """`memory`: bytes beyond what the process has already. `seconds`: processor time between two signs of progress."""

    memory: int
    seconds: float


_current: TaskLimits | None = None


def is_for_lack_of_memory(error: BaseException) -> bool:
    """Whether an error is the refusal of memory beyond the limit."""
    return _current is not None and isinstance(error, MemoryError)


@contextmanager
def limited(limits: TaskLimits | None) -> Iterator[None]:
    """Within it, memory beyond the limit is refused, and a loop without an end ends the process (SIGPROF).

    To be used in the main thread. A refusal is a MemoryError in Python; other libraries end the process (SIGABRT).
    Processor time is that of all threads, and is asked for no more often than `note_progress` is called. It is the
    system that ends the process, since code in C gives Python no turn to do it.
    """
    global _current  # of the process, as the limits are
    if limits is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    handler = signal.signal(signal.SIGPROF, signal.SIG_DFL)
    # A Rust library that has no memory to tell where it failed would wait for itself, for ever.
    os.environ["RUST_BACKTRACE"] = "0"
    _limit_memory(limits.memory, soft, hard)
    _current = limits
    note_progress()
    try:
        yield
    finally:
        _current = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, handler)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextmanager
def memory_not_limited() -> Iterator[None]:
    """Within it memory is not refused: for what takes a few copies of what the process holds already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def note_progress() -> None:
    """Something was done: the limit of processor time counts from here."""
    if _current is not None:
        signal.setitimer(signal.ITIMER_PROF, _current.seconds)


def _limit_memory(more: int, soft: int, hard: int) -> None:
    # At its first use Arrow's allocator reserves a gigabyte of addresses, which would count as if it were all in use.
    pa.allocate_buffer(1)
    wanted = _data_in_use() + more
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *known]), hard))


def _data_in_use() -> int:
    """Bytes that count for RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "VmData":
            return int(value.split()[0]) * _KILOBYTE
    raise ProcessLookupError("this system does not tell how much memory a process has")
