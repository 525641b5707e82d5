"""Tables for people: where they are too wide for the terminal, rows one below the other instead."""

from __future__ import annotations

from typing import Literal

from rich import box
from rich.console import Console
from rich.measure import measure_renderables
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dedup_platform.escapes import one_line

_ANY_WIDTH = 10_000
"""More than any table wants."""
_AROUND_A_COLUMN = 3
"""Spaces."""


def plain_table(*columns: str) -> Table:
    """A table with these columns: numbers (`#` behind the name) stand to the right, long texts (`~`) are folded."""
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        right, long = column.endswith("#"), column.endswith("~")
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(column.rstrip("#~"), justify=justify, overflow="fold", no_wrap=not long)
    return table


def as_given(text: str) -> Text:
    """What comes from outside, for a cell of a table: no markup is read in it, and it stays one line."""
    return Text(one_line(text))


def print_table(console: Console, table: Table) -> None:
    """A table; where the console is so narrow that values would be cut, each row is a paragraph with all of them."""
    if _narrowest(console, table) <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title)
    first, *others = table.columns
    for place, title in enumerate(first.cells):
        named = Text(f"{first.header} ".lstrip()).append_text(_text(console, title))
        console.print(named, style="bold")
        values = ((column.header, _text(console, list(column.cells)[place])) for column in others)
        row = Text(", ").join(Text(f"{name} ".lstrip()).append_text(value) for name, value in values)
        console.print(Padding(row, (0, 0, 0, 2)))


def _narrowest(console: Console, table: Table) -> int:
    """The width at which no value is cut: of texts that are folded, that of the longest word."""
    options = console.options.update_width(_ANY_WIDTH)
    widths = (
        (
            column,
            measure_renderables(console, options, [_text(console, each) for each in (column.header, *column.cells)]),
        )
        for column in table.columns
    )
    lean = sum(found.maximum if column.no_wrap else found.minimum for column, found in widths)
    return lean + _AROUND_A_COLUMN * len(table.columns) + 1


def _text(console: Console, value: object) -> Text:
    return value if isinstance(value, Text) else console.render_str(str(value))
