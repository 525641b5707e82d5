"""How long work tells a person what it does: sentences, and bars that move, also within long steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import TaskID

_NARROW = 80
STEP = "step"
ROWS = "rows"


@dataclass(frozen=True)
class Listener:
    """Who is told while work goes on: `say` gets sentences, `done` the part of the total that is done."""

    say: Callable[[str], None]
    done: Callable[[int], None]


@contextmanager
def shown(console: Console, name: str, total: int | None, unit: str = STEP) -> Iterator[Listener]:
    """A bar while work goes on (where the console is a terminal), and above it what is said.

    Below it is how far the work of this thread has come within its step. `unit` is of the total.
    """
    with _progress(console) as progress, _Bars(progress, name, total, unit).listening(prefix="") as listener:
        yield listener


@contextmanager
def shown_together(
    console: Console, totals: Mapping[str, int]
) -> Iterator[Callable[[str], AbstractContextManager[Listener]]]:
    """Bars for each piece of work, in the thread that enters its context; the totals are numbers of steps.

    Of several, what one says begins with its name.
    """
    with _progress(console) as progress:
        yield lambda name: _Bars(progress, name, totals[name], STEP).listening(
            prefix=f"{name}: " if len(totals) > 1 else ""
        )


def _progress(console: Console) -> Progress:
    wide = console.width >= _NARROW
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(overflow="fold")),
        BarColumn(20 if wide else 6),
        _Extent(has_rate=wide),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


class _Extent(ProgressColumn):
    """How much is done of how much, how fast it goes, and how long it will take."""

    def __init__(self, *, has_rate: bool) -> None:
        super().__init__()
        self._has_rate = has_rate

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        done, total, unit = int(task.completed), int(task.total), task.fields["unit"]
        if unit == STEP:
            return Text(f"step {min(done + 1, total)} of {total}")
        told = [f"{done:,} of {total:,} {unit}"]
        if self._has_rate and task.speed:
            told.append(f"{task.speed:,.0f}/s" if task.speed >= 10 else f"{task.speed:.1f}/s")
        if task.time_remaining is not None and done < total:
            minutes, seconds = divmod(int(task.time_remaining), 60)
            told.append(f"{minutes}:{seconds:02} left")
        return Text(", ".join(told))


class _Bars:
    """The bar of one piece of work, and below it one of the step that it is at, if that tells how far it has come."""

    def __init__(self, progress: Progress, name: str, total: int | None, unit: str) -> None:
        self._progress = progress
        self._whole = progress.add_task(name, total=total, unit=unit)
        self._step: TaskID | None = None

    @contextmanager
    def listening(self, prefix: str) -> Iterator[Listener]:
        def say(text: str) -> None:
            told = text if text.startswith(prefix) else prefix + text
            self._progress.console.print(told, markup=False, highlight=False, soft_wrap=True)

        with self._watching():
            yield Listener(say, self._done)

    def _watching(self) -> AbstractContextManager[None]:
        if not self._progress.console.is_terminal:
            return nullcontext()
        # Loaded only where somebody looks: it is of Spark.
        from dedup_platform.spark.watching import watching

        return watching(self._come)

    def _done(self, number: int) -> None:
        self._progress.update(self._whole, completed=number)
        if self._step is not None:
            self._progress.update(self._step, visible=False)

    def _come(self, unit: str, done: int, total: int) -> None:
        if self._step is None:
            self._step = self._progress.add_task("  of this step", total=total, unit=unit)
        before = self._progress.tasks[self._progress.task_ids.index(self._step)]
        if (before.total, before.fields["unit"]) != (total, unit) or done < before.completed:
            self._progress.reset(self._step, total=total, unit=unit)
        self._progress.update(self._step, completed=done, visible=True)
