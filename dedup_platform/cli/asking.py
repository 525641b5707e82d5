"""Questions before what cannot be undone."""

import sys
from contextlib import suppress

import typer

from dedup_platform.cli.console import err
from dedup_platform.cli.exits import REFUSED


def confirm(question: str) -> None:
    """Go on if a person at a terminal says yes; where nobody is there, that is a no."""
    is_agreed = False
    if sys.stdin.isatty():
        with suppress(typer.Abort):
            is_agreed = typer.confirm(question, err=True)
    else:
        err.print(question, markup=False, highlight=False, soft_wrap=True)
    if not is_agreed:
        err.print("nothing was changed; --yes says yes beforehand")
        raise typer.Exit(REFUSED)
