"""How long work tells a person what it does: sentences, and a bar that moves."""

from collections.abc import Callable, Iterator
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
    bar = BarColumn(), MofNCompleteColumn(separator=" of ")
    columns = SpinnerColumn(), TextColumn("{task.description}"), *(bar if total else ()), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield Listener(
            say=lambda text: progress.console.print(text, markup=False, highlight=False, soft_wrap=True),
            done=lambda number: progress.update(task, completed=number),
        )
