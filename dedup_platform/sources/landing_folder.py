"""Files of a folder into which others put them, opened without ever leaving it.

Whoever may write there could put a link to what only the platform may read, or change a folder for one between listing
and reading. So a link is looked up when files are listed, and none is followed when they are opened.
"""

import os
from contextlib import ExitStack
from pathlib import Path, PurePath
from typing import BinaryIO

from dedup_platform.regular_files import opened

__all__ = ["Links", "opened_below"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Links:
    """Where the links in a folder lead, as they are now."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = folder.resolve()
        self._of_folders: dict[PurePath, PurePath | None] = {}

    def place(self, path: str) -> PurePath | None:
        """Where in the folder a path below it leads; None if that is not in the folder."""
        if (self._folder / path).is_symlink():
            return self._real_place(PurePath(path))
        above, name = PurePath(path).parent, PurePath(path).name
        if above not in self._of_folders:
            self._of_folders[above] = self._real_place(above)
        place = self._of_folders[above]
        return None if place is None else place / name

    def _real_place(self, path: PurePath) -> PurePath | None:
        place = (self._folder / path).resolve()
        return place.relative_to(self._real) if place.is_relative_to(self._real) else None


def opened_below(folder: Path, place: PurePath) -> BinaryIO:
    """A regular file in a folder, no part of whose path below that is a link. OSError for anything else."""
    with ExitStack() as closing:
        here = os.open(folder, _FOLDER)
        closing.callback(os.close, here)
        for each in place.parent.parts:
            here = os.open(each, _FOLDER | os.O_NOFOLLOW, dir_fd=here)
            closing.callback(os.close, here)
        return opened(place.name, os.O_NOFOLLOW, here)
