"""Where commands print: nothing that comes from outside does anything to a terminal."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment

from dedup_platform.escapes import one_line, visible

__all__ = ["EnoughReadError", "err", "out", "told_to_its_end"]

_UNBROKEN = 1_000  # columns: what goes to a file or another program is to be found there whole, a row a line


class EnoughReadError(Exception):
    """Who reads standard output has closed it, as `head` does: that is the end, and no failure."""


@contextmanager
def told_to_its_end() -> Iterator[None]:
    """What is written to standard output within; EnoughReadError if nobody reads it to its end."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise EnoughReadError from None


class _Console(Console):
    """Prints each text on one line, and nothing that a terminal would obey, whatever comes from outside."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(one_line(each) if isinstance(each, str) else each for each in objects), **how)

    def on_broken_pipe(self) -> None:
        raise EnoughReadError


class _Escaping(RenderHook):
    """Whatever else is printed, tables and bars, passes here."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Escaped(each) for each in renderables]


@dataclass(frozen=True)
class _Escaped:
    printed: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.printed, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def _console(stderr: bool = False) -> Console:
    console = _Console(stderr=stderr)
    console.push_render_hook(_Escaping())
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNBROKEN
    return console


out, err = _console(), _console(stderr=True)
