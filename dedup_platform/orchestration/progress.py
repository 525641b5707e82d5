"""How long work tells a person what it does: sentences, and a bar that moves."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


@dataclass(frozen=True)
class Listener:
    """Who is told while work goes on: `say` gets sentences, `done` the part of the total that is done."""

    say: Callable[[str], None]
    done: Callable[[int], None]


@contextmanager
def shown(console: Console, name: str, total: int | None) -> Iterator[Listener]:
    """A bar while work goes on (where the console is a terminal), and above it what is said."""
    with _progress(console, has_bar=bool(total)) as progress:
        yield _listener(progress, name, total, prefix="")


@contextmanager
def shown_together(console: Console, totals: Mapping[str, int]) -> Iterator[Callable[[str], Listener]]:
    """A bar for each piece of work, once it asks for its listener. Of several, what one says begins with its name."""
    with _progress(console, has_bar=True) as progress:
        yield lambda name: _listener(progress, name, totals[name], prefix=f"{name}: " if len(totals) > 1 else "")


def _progress(console: Console, has_bar: bool) -> Progress:
    bar = BarColumn(), MofNCompleteColumn(separator=" of ")
    columns = SpinnerColumn(), TextColumn("{task.description}"), *(bar if has_bar else ()), TimeElapsedColumn()
    return Progress(*columns, console=console, transient=True)


def _listener(progress: Progress, name: str, total: int | None, prefix: str) -> Listener:
    task = progress.add_task(name, total=total)

    def say(text: str) -> None:
        told = text if text.startswith(prefix) else prefix + text
        progress.console.print(told, markup=False, highlight=False, soft_wrap=True)

    return Listener(say, done=lambda number: progress.update(task, completed=number))
