"""`init`: a folder with a stream file and its sample data, which run as they are."""

import os
import shlex
import time
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from dedup_platform.cli.console import out
from dedup_platform.errors import AlreadyThereError

__all__ = ["init"]

_STARTER = "starter"
_AGE = 60
"""Seconds: files that were just written are left alone for a while, in case somebody still writes them."""

NEXT = """\
Next:

  cd {folder}
  dedup-platform check
  dedup-platform run
  dedup-platform export visits sessions --to -

streams/visits.yaml says what the sample holds and what must come of it. A stream file for data of your own:

  dedup-platform infer PATH
"""


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder; it is made if it is not there.")],
) -> None:
    """Lay out a deployment: a stream file, and sample data on which it runs. Overwrites nothing."""
    made = lay_out(folder)
    for path in made:
        out.print(f"made {path}", markup=False)
    out.print()
    for line in NEXT.format(folder=shlex.quote(str(folder))).splitlines():
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def lay_out(folder: Path) -> list[Path]:
    """Write the stream file and its data below a folder; AlreadyThereError, and nothing is written, if one is there."""
    contents = {folder / path: each for path, each in _found(files(__package__) / _STARTER, Path())}
    for path in contents:
        if os.path.lexists(path):
            raise AlreadyThereError(path, "name another folder")
    written = time.time() - _AGE
    for path, content in contents.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Nothing is overwritten, whoever has been quicker.
        with path.open("xb") as file:
            file.write(content.read_bytes())
        os.utime(path, (written, written))
    return list(contents)


def _found(folder: Traversable, below: Path) -> Iterator[tuple[Path, Traversable]]:
    for each in sorted(folder.iterdir(), key=lambda found: found.name):
        if each.is_dir():
            yield from _found(each, below / each.name)
        else:
            yield below / each.name, each
