"""Reads the inputs of a task in lone processes, and narrows down what ends one, until exactly that is rejected.

A record that ends the process that reads it (a fault in a library, too much memory, too much time) ends every task
that reads it. Here it ends a lone process only. The next one reads the same input without it.
"""

import logging
import multiprocessing
import signal
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess

import polars as pl

from dedup_platform.ingest.one_by_one import (
    NUMBERS,
    Begun,
    Done,
    Kind,
    OutOfMemory,
    Plan,
    Step,
    Work,
    read_inputs,
    step_of,
)
from dedup_platform.sources.records import ENDED_PROCESS

__all__ = ["MOST_DEATHS", "read_apart"]

_LOG = logging.getLogger(__name__)

MOST_DEATHS = 8
"""So many records of a file may end a process; then the rest of it is one rejected record. Of a topic as many as there
are, since behind each message others come."""
_DIVISOR = 32
"""Of rows that end a process when they are decoded together, as many parts are tried: of a thousand, two times."""
_SECONDS_TO_END = 10.0
_TASK_MEMORY, _RECORD_SECONDS = "task_memory", "record_seconds"


@dataclass(frozen=True)
class _Death:
    """Where a process ended: at which input, with so many rows of it sent, in which step, and of what."""

    input: int
    is_file: bool
    rows: int
    step: Step
    cause: str


def read_apart(work: Work) -> Generator[pl.DataFrame, None, None]:
    """The rows of all inputs of a task, one frame after the other; raises what the task would raise.

    Also RuntimeError if a process ends where no record can be to blame.
    """
    while death := (yield from _attempt(work)):
        _LOG.warning("a process that read records ended (%s); what it was at is narrowed down", death.cause)
        known = work.plan if death.input == work.first else None
        plan = _narrowed(known, death)
        if plan == known:
            raise RuntimeError(f"a process ended ({death.cause}) again at what it was told to leave alone")
        work = replace(work, first=death.input, plan=plan)


def _narrowed(plan: Plan | None, death: _Death) -> Plan:
    """What is left alone from now on; at first nothing, until the input was read one by one."""
    if plan is None:
        return Plan(done=death.rows)
    step, reason = death.step, ENDED_PROCESS + death.cause
    plan = replace(plan, done=plan.done + death.rows)
    is_alone = step.upto - step.first == 1
    if death.is_file and len(plan.contents) + len(plan.rows) >= MOST_DEATHS:
        count = step.first if step.kind is Kind.DECODE else step.count
        return replace(plan, parts={step.part: (count, reason)})
    match step.kind:
        case Kind.CONTENT:
            return replace(plan, contents={**plan.contents, step.first: reason})
        case Kind.DECODE if is_alone:
            return replace(plan, rows={**plan.rows, step.first: reason})
        case Kind.DECODE:
            return replace(plan, few_until=step.upto, few=-(-(step.upto - step.first) // _DIVISOR))
        case _:
            return replace(plan, parts={**plan.parts, step.part: (step.count, reason)})


def _attempt(work: Work) -> Generator[pl.DataFrame, None, _Death | None]:
    """The rows that one process reads; returns where it ended, or None if it came to the end of all inputs."""
    numbers = _context().RawArray("q", NUMBERS)
    begun: Begun | None = None
    rows, is_out_of_memory = 0, False
    with _process(numbers, work) as (process, receiver):
        while True:
            try:
                sent = receiver.recv()
            except (EOFError, OSError):
                # Between two frames or within one.
                break
            match sent:
                case Exception():
                    raise sent
                case Begun():
                    begun, rows = sent, 0
                case pl.DataFrame():
                    rows += len(sent)
                    yield sent
                case OutOfMemory():
                    is_out_of_memory = True
                case Done():
                    return None
        process.join(_SECONDS_TO_END)
        cause = _TASK_MEMORY if is_out_of_memory else _cause(process.exitcode)
    if begun is None:
        raise RuntimeError(f"a process ended ({cause}) before it began to read")
    return _Death(begun.number, begun.is_file, rows, step_of(numbers), cause)


def _cause(code: int | None) -> str:
    """What ended a process, as the reason of a rejected record names it."""
    if code is None:
        return "unknown"
    if code == -signal.SIGPROF:
        return _RECORD_SECONDS
    return signal.Signals(-code).name if code < 0 else f"exit_{code}"


@contextmanager
def _process(numbers: object, work: Work) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that reads, and what it sends. It is ended, however this is left."""
    receiver, sender = _context().Pipe(duplex=False)
    process = _context().Process(target=read_inputs, args=(sender, numbers, work))
    with closing(receiver):
        with closing(sender):
            process.start()
        try:
            yield process, receiver
        finally:
            process.kill()
            process.join(_SECONDS_TO_END)


def _context() -> ForkServerContext:
    """Processes are forked from one that has imported all they take and has done nothing yet.

    Not from this one: in it libraries have threads, of which a forked process has none.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([read_inputs.__module__])
    return context
