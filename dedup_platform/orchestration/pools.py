"""Pools of Dagster: one step at a time writes a table. Here is what Dagster itself forgets about them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

import dagster as dg
from sqlalchemy.exc import DBAPIError

from dedup_platform.stream import Stream

_SECONDS = 5.0
"""Between two looks at the waiting steps."""


def pool(stream: Stream, table: str) -> str:
    """The pool that lets one step at a time write a table."""
    return f"{stream.name}.{table}"


def busy_pools(instance: dg.DagsterInstance, pools: Sequence[str]) -> list[str]:
    """Those of the pools whose slots are all taken."""
    slots = instance.event_log_storage
    if not slots.supports_global_concurrency_limits:
        return []
    known = slots.get_concurrency_keys()
    return [pool for pool in pools if pool in known and slots.get_concurrency_info(pool).active_slot_count > 0]


def free_slots(instance: dg.DagsterInstance) -> None:
    """Free the slots of all runs that ended, and give free ones to steps that wait for them.

    A step that begins to wait in the moment in which a slot is given back is seen by nobody: it looked for a free slot
    before it said that it waits, and whoever gave the slot back looked for waiting steps before that. Neither looks
    again, and so the step would wait until another one came by.
    """
    slots = instance.event_log_storage
    if not slots.supports_global_concurrency_limits:
        return
    for run_id in slots.get_concurrency_run_ids():
        holder = instance.get_run_by_id(run_id)
        if holder is None or holder.is_finished:
            slots.free_concurrency_slots_for_run(run_id)
    # Dagster's storages in SQL have it, which are all of its own. Who gets a slot that is none waits as before.
    assign: Callable[[Sequence[str]], None] = getattr(slots, "assign_pending_steps", lambda _: None)
    for name in slots.get_concurrency_keys():
        told = slots.get_concurrency_info(name)
        if told.pending_step_count and told.assigned_step_count < told.slot_count:
            assign([name])


@contextmanager
def looked_after(instance: dg.DagsterInstance, seconds: float = _SECONDS) -> Iterator[None]:
    """Free slots again and again while a run is executed that no daemon of Dagster's looks after."""
    done = Event()

    def look() -> None:
        while not done.wait(seconds):
            # What is locked now is looked at next time.
            with suppress(DBAPIError):
                free_slots(instance)

    watch = Thread(target=look, name="pools", daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()
