"""A process of its own that reads inputs of a task, and announces each step: where it ends tells what ended it.

Each input is read together first, as a task of Spark would. One that ended a process is read one record after the
other, by a `Plan` that says what earlier processes ended at.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, MutableSequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from multiprocessing.connection import Connection

import polars as pl

from dedup_platform.sources.batches import Delivered, Input, RawBatches
from dedup_platform.sources.records import UNFORESEEN, Content, unprocessable, watch_contents
from dedup_platform.spark.task_limits import TaskLimits, limited, memory_not_limited, note_progress
from dedup_platform.stream import Stream

__all__ = [
    "NUMBERS",
    "Begun",
    "Done",
    "Inputs",
    "Kind",
    "OutOfMemory",
    "Plan",
    "Step",
    "Work",
    "read_inputs",
    "step_of",
]

Inputs = Callable[[int], Iterator[Input]]
"""From the number of a task to what it reads. Can be pickled."""

_ROWS = 1000
_BYTES = 2**20
"""As much is decoded together, as long as that ends no process."""


NUMBERS = 5
"""A step is announced in so many 64-bit integers, in memory that both processes share."""


class Kind(IntEnum):
    """What a step does: read on in a part, read a record's content, or decode rows."""

    NOTHING, READ, CONTENT, DECODE = range(4)


@dataclass(frozen=True)
class Step:
    """What a process is at. `part` and `count`: it has read so many records of the part of this number.

    `first` and `upto`: of contents its number, of rows those that are decoded, from 0 and without the last.
    """

    kind: Kind
    part: int
    count: int
    first: int
    upto: int


@dataclass(frozen=True)
class Plan:
    """How an input is read that ended a process. All numbers count from 0 within the input."""

    done: int = 0
    """So many rows have arrived."""
    few_until: int = 0
    """Below this only `few` rows are decoded together."""
    few: int = 1
    contents: Mapping[int, str] = field(default_factory=dict)
    """Records whose content must not be read, and why."""
    rows: Mapping[int, str] = field(default_factory=dict)
    """Records that must not be decoded, and why."""
    parts: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """Parts of which only so many records can be read, and why."""


@dataclass(frozen=True)
class Work:
    """What to read: the inputs of a task from the number `first` on; that one by `plan`, if there is one."""

    stream: Stream
    inputs: Inputs
    task: int
    limits: TaskLimits
    first: int = 0
    plan: Plan | None = None


@dataclass(frozen=True)
class Begun:
    """What a process sends before the frames of an input."""

    number: int
    is_file: bool


class Done:
    """What a process sends at the end."""


class OutOfMemory:
    """What a process sends before it ends for lack of memory, if it still can."""


class Announcer:
    """Announces the steps of this process. What a step is about is written before its kind."""

    def __init__(self, numbers: MutableSequence[int]) -> None:
        self._numbers = numbers

    def part(self, number: int) -> None:
        """A part is begun."""
        self._numbers[1], self._numbers[2] = number, 0
        self.read_on()

    def read_on(self, more: int = 0) -> None:
        """More is read of the part, of which so many more records are there."""
        self._numbers[2] += more
        self._numbers[0] = Kind.READ

    def content(self, number: int) -> None:
        """The content of a record is read."""
        self._numbers[3] = number
        self._numbers[0] = Kind.CONTENT

    def decode(self, first: int, upto: int) -> None:
        """Rows are decoded."""
        self._numbers[3], self._numbers[4] = first, upto
        self._numbers[0] = Kind.DECODE


def step_of(numbers: MutableSequence[int]) -> Step:
    """The newest step that was announced."""
    kind, *others = numbers
    return Step(Kind(kind), *others)


def read_inputs(sender: Connection, announced: MutableSequence[int], work: Work) -> None:
    """Send the rows of all inputs, as `Begun`, frames and, at the end, `Done`; or the error that came instead."""
    try:
        with limited(work.limits):
            for sent in _sent(work, Announcer(announced)):
                _send(sender, sent)
                note_progress()
        sender.send(Done())
    except MemoryError:
        sender.send(OutOfMemory())
    except Exception as error:
        sender.send(_that_travels(error))


def _send(sender: Connection, sent: Begun | pl.DataFrame) -> None:
    try:
        sender.send(sent)
    except OSError as error:
        if error.errno is None:
            # What Polars makes of a MemoryError of the buffer that it writes to.
            raise MemoryError from error
        raise


def _that_travels(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _sent(work: Work, announcer: Announcer) -> Iterator[Begun | pl.DataFrame]:
    batches = RawBatches(work.stream)
    for number, each in enumerate(work.inputs(work.task)):
        if number >= work.first:
            yield Begun(number, each.is_file)
            if work.plan and number == work.first:
                yield from _OneByOne(batches, work.plan, announcer).frames(each)
            else:
                yield from batches.of(each.together())


class _OneByOne:
    """Reads one input by its plan."""

    def __init__(self, batches: RawBatches, plan: Plan, announcer: Announcer) -> None:
        self._batches = batches
        self._plan = plan
        self._announcer = announcer
        self._contents = 0

    def frames(self, each: Input) -> Iterator[pl.DataFrame]:
        """The rows that have not arrived yet."""
        watch_contents(self._content)
        try:
            yield from self._decoded(self._records(each))
        finally:
            watch_contents(None)

    def _decoded(self, records: Iterator[Delivered]) -> Iterator[pl.DataFrame]:
        some: list[Delivered] = []
        size = 0
        for row, delivered in enumerate(records):
            if row < self._plan.done:
                continue
            some.append(self._judged(row, delivered))
            size += self._batches.held(delivered)
            if len(some) >= self._most(row) or size >= _BYTES:
                yield from self._frames(some, row + 1)
                some, size = [], 0
        if some:
            yield from self._frames(some, row + 1)

    def _most(self, row: int) -> int:
        """How many rows may be decoded with this one, which is the last of them."""
        plan = self._plan
        return plan.few if row < plan.few_until else _ROWS

    def _judged(self, row: int, delivered: Delivered) -> Delivered:
        (payload, content, context), delivery, place = delivered
        return (payload, self._plan.rows.get(row, content), context), delivery, place

    def _frames(self, some: list[Delivered], upto: int) -> Iterator[pl.DataFrame]:
        first = upto - len(some)
        # What is left alone is not decoded. It is copied as it is, which must not fail for lack of memory again.
        is_left_alone = self._plan.rows.keys() >= set(range(first, upto))
        with memory_not_limited() if is_left_alone else nullcontext():
            self._announcer.decode(first, upto)
            # All of them before the first is sent: what has arrived is what was decoded without an end.
            frames = list(self._batches.of(some))
            note_progress()
            yield pl.concat(frames)
            self._announcer.read_on()

    def _records(self, each: Input) -> Iterator[Delivered]:
        for number, part in enumerate(each.parts()):
            last = None
            upto, reason = self._plan.parts.get(number, (None, None))
            self._announcer.part(number)
            try:
                for last in islice(part.records, upto):
                    note_progress()
                    self._announcer.read_on(1)
                    yield last
            except MemoryError:
                raise
            except UNFORESEEN as error:
                if isinstance(error, OSError) and error.errno is not None:
                    # The machine's, and not the record's.
                    raise
                reason = unprocessable(error)
            if reason:
                yield part.rest(last, reason)

    def _content(self, read: Callable[[bytes], Content], payload: bytes) -> Content:
        number = self._contents
        self._contents += 1
        if reason := self._plan.contents.get(number):
            return reason
        self._announcer.content(number)
        content = read(payload)
        self._announcer.read_on()
        return content
