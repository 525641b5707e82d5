"""`python -m dedup_platform.worker_daemon`: Spark's daemon of Python workers, which has imported what tasks take.

Spark starts it for the first task in Python, and it forks a worker whenever none is idle. After a minute without work
Spark ends its workers. Those of its own daemon import everything anew, which is most of what a small batch costs.

A forked process has no thread but the one that forked it. What a library left to another one, nobody does, and a lock
that another one held stays locked. So libraries are imported here and never used; where they began threads
nevertheless, Spark's own daemon takes over.
"""

import gc
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TAKEN_BY_TASKS = (
    "dedup_platform.ingest.append",
    "dedup_platform.recompute.session_tasks",
    "dedup_platform.replay.rewrite",
    "dedup_platform.sources.avro.files",
    "dedup_platform.sources.files",
    "dedup_platform.sources.kafka.reading",
    "dedup_platform.sources.protobuf.records",
    "pyiceberg_core.transform",
)
"""Without those of S3: Boto takes a fifth of a second, which the first task of every session would wait for."""
# When they are loaded, the allocators of Polars and Arrow begin threads, and so does what NumPy multiplies with.
_ALLOCATORS = ("_RJEM_MALLOC_CONF", "JE_ARROW_MALLOC_CONF")
_NO_THREAD = "background_thread:false"
# It waits for files to delete that Polars' streaming engine wrote, which no task uses.
_HARMLESS_THREAD = "polars-ooc-clea S"
_SECONDS_AT_REST = 1.0
_SECONDS_TO_REST = 60.0  # a thread that began may have to wait for its turn where the machine is busy
# Longer than Spark keeps idle workers, a minute: one that it knows is lost with its daemon, and the task with it.
_SECONDS_UNUSED = 300.0


def main() -> None:
    """Serve until Spark ends, or until there was no worker for five minutes: when it is needed, Spark starts another.

    Spark would keep it: it has a daemon for each session of a server, and forgets it when the session has ended.
    """
    sys.path[:] = without_archives(sys.path)
    _want_no_threads()
    try:
        for module in TAKEN_BY_TASKS:
            import_module(module)
    except ImportError as error:
        _become_sparks_own(f"{error}")
    if threads := threads_in_the_way():
        _become_sparks_own(f"there are other threads, {', '.join(threads)}")
    # Else each worker would copy all that is here to look for garbage in it.
    gc.freeze()
    from pyspark import daemon

    waiting = SimpleNamespace(select=until_unused(_SECONDS_UNUSED), error=select.error)
    daemon.select = waiting  # type: ignore[assignment, attr-defined]  # the only way to have a say in its loop
    daemon.manager()


def _want_no_threads() -> None:
    """Ask libraries not to begin threads, unless somebody asked for them."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _ALLOCATORS:
        # Of what stands twice the last counts. Whoever started this may have imported Polars, which writes there.
        os.environ[name] = ",".join(filter(None, (_NO_THREAD, os.environ.get(name))))


def without_archives(path: list[str]) -> list[str]:
    """`sys.path` without the archives inside of an installed PySpark, from which Spark has Python import before it.

    They hold the same modules once more, but not compiled.
    """
    installed = [Path(folder, "pyspark") for folder in path if Path(folder, "pyspark", "__init__.py").is_file()]
    return [each for each in path if not _is_archive_of(Path(each), installed)]


def _is_archive_of(path: Path, installed: list[Path]) -> bool:
    return path.is_file() and any(path.is_relative_to(each) for each in installed)


def threads_in_the_way() -> set[str]:
    """Threads that must not be forked beside, by name and state: all but this one and those known to be harmless.

    One that has something to do is waited for, since even a harmless one may hold a lock then.
    """
    begun = time.monotonic()
    while found := _other_threads() - {_HARMLESS_THREAD}:
        is_at_rest = all(each.endswith(" S") for each in found)
        if time.monotonic() - begun > (_SECONDS_AT_REST if is_at_rest else _SECONDS_TO_REST):
            break
        time.sleep(0.01)
    return found


def _other_threads() -> set[str]:
    """Name, of up to 15 letters, and state of each; `S` is one that sleeps."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return {"those of a system that does not tell"}
    found = set()
    for task in tasks.iterdir():
        if int(task.name) != os.getpid():
            with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended meanwhile
                name, _, rest = (task / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
                found.add(f"{name} {rest.split()[0]}")
    return found


def until_unused(seconds: float) -> Callable[..., Any]:
    """`select.select` for the daemon, which waits a second at a time; ends the process after so long without workers.

    It ends between two waits, with nobody accepted: Spark, if it connects just then, is refused and starts another.
    """
    used = time.monotonic()

    def waited(*files: Any) -> Any:
        nonlocal used
        ready = select.select(*files)
        if any(ready) or _has_workers():
            used = time.monotonic()
        elif time.monotonic() - used > seconds:
            sys.exit()
        return ready

    return waited


def _has_workers() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _become_sparks_own(why: str) -> None:
    sys.stderr.write(f"Python workers import everything anew: {why}\n")
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])


if __name__ == "__main__":
    main()
