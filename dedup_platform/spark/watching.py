"""How far work has come inside of its long steps: told while it goes on, to whoever waits for it in this thread.

Spark is asked for the tasks of the jobs that a thread has at work. What is no task, such as files that wait, says so
itself (`tell`). Nobody need listen: then nothing is asked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread, get_ident
from typing import Any, Literal

from pyspark.sql import SparkSession

__all__ = ["Told", "Unit", "note_session", "tell", "watching"]

Unit = Literal["files", "messages", "tasks"]
Told = Callable[[Unit, int, int], None]
"""Of what, how many are done, and how many there are."""

_SECONDS = 0.3
"""Between two looks. A server of Spark Connect says so by itself."""
_GROUP = "spark.jobGroup.id"
_listeners: dict[int, Told] = {}
_contexts: dict[int, Any] = {}


@contextmanager
def watching(told: Told) -> Iterator[None]:
    """Tell how far the work of this thread has come, while the block runs."""
    thread, over = get_ident(), Event()
    _listeners[thread] = told
    looks = Thread(target=_look, args=(thread, told, over), name="progress", daemon=True)
    looks.start()
    try:
        yield
    finally:
        over.set()
        looks.join()
        del _listeners[thread]


def tell(unit: Unit, done: int, total: int) -> None:
    """Say how far the work of this thread has come; nothing happens where nobody waits for it."""
    if told := _listeners.get(get_ident()):
        told(unit, done, total)


def note_session(session: Any) -> None:
    """Have a session tell of the jobs that this thread asks it for."""
    if isinstance(session, SparkSession):
        session.sparkContext.setLocalProperty(_GROUP, _group(get_ident()))
        _contexts[get_ident()] = session.sparkContext
    else:
        session.clearProgressHandlers()
        session.registerProgressHandler(_of_server)


def _look(thread: int, told: Told, over: Event) -> None:
    while not over.wait(_SECONDS):
        # Spark may be about to end: what is not known now is known at the next look, or never.
        with suppress(Exception):
            if (context := _contexts.get(thread)) and (found := _of_jobs(context.statusTracker(), _group(thread))):
                told("tasks", *found)


def _of_jobs(tracker: Any, group: str) -> tuple[int, int] | None:
    """The tasks of a group's jobs that are at work, done and all; None if there are none."""
    active = set(tracker.getActiveJobsIds()) & set(tracker.getJobIdsForGroup(group))
    jobs = [job for number in active if (job := tracker.getJobInfo(number))]
    stages = [stage for job in jobs for number in job.stageIds if (stage := tracker.getStageInfo(number))]
    total = sum(stage.numTasks for stage in stages)
    return (sum(stage.numCompletedTasks for stage in stages), total) if total else None


def _of_server(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:  # noqa: ARG001
    """Called in the thread that waits for an operation."""
    if total := sum(stage.num_tasks for stage in stages or ()):
        tell("tasks", sum(stage.num_completed_tasks for stage in stages), total)


def _group(thread: int) -> str:
    return f"thread {thread}"
