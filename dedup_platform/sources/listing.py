"""Which files a source has: those that can be read now, in order, and those left for later, each with its reason."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

from dedup_platform.errors import SourceError
from dedup_platform.planning.moments import utc_datetime
from dedup_platform.regular_files import opened
from dedup_platform.sources.landing_folder import Links, opened_below
from dedup_platform.sources.times import FROM_YEAR_1
from dedup_platform.stream import Stream
from dedup_platform.stream.s3_path import SCHEME

__all__ = [
    "Listing",
    "SourceFile",
    "came_at",
    "changed_while_reading",
    "list_files",
    "stamp",
    "unfinished",
    "unsettled",
]

_MOST_AHEAD = timedelta(days=1)
"""What was modified so long after now was modified by a wrong clock, or copied with such a time: nobody is writing it,
as far as can be known."""

_LEADS_OUT = "is a link that leads out of the source's folder; `follow_links: true` in the stream file allows that"


@dataclass(frozen=True)
class SourceFile:
    """A file as it was listed. `path` is below the stream's root, with slashes; `location` is where to open it.

    That is a path of this machine, or `s3://bucket/key`. `folder` is the one that it must not lead out of.
    """

    path: str
    location: str
    size: int
    etag: str  # another one if the file is written again
    modified: datetime
    folder: str | None = None

    def opened(self) -> BinaryIO:
        """A file of this machine, to be read. OSError if it is none any more, or cannot be opened."""
        if self.folder is None:
            return opened(self.location)
        return opened_below(Path(self.folder), Path(self.location).relative_to(self.folder))

    @property
    def is_on_s3(self) -> bool:
        """Whether it is an object, and not a file of this machine."""
        return self.location.startswith(SCHEME)


@dataclass(frozen=True)
class Listing:
    """`ready` files by (modified, path); `waiting` ones as (path, reason), by path."""

    ready: tuple[SourceFile, ...]
    waiting: tuple[tuple[str, str], ...]


def list_files(stream: Stream, now: datetime) -> Listing:
    """The files of a folder that match `source.path`, as they are at `now`. SourceError if there is no such folder.

    Left for later: names that begin with `.` or `_` or end in `.tmp` (the file's own, or a folder's below the root),
    files modified less than `source.settle` ago or up to a day after `now`, what is no regular file, and what may not
    be read. A link is what it points to; `**` does not follow links to folders, so that a loop of links ends.
    """
    ready: list[SourceFile] = []
    waiting: dict[str, str] = {}
    links = None if stream.files.follow_links else Links(stream.files.root)
    for path, problem in _matches(stream, links).items():
        found = problem or _examine(stream, links, path, now)
        if isinstance(found, SourceFile):
            ready.append(found)
        else:
            waiting[path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")] = found
    return Listing(tuple(sorted(ready, key=lambda file: (file.modified, file.path))), tuple(sorted(waiting.items())))


def came_at(file: SourceFile) -> datetime:
    """When a file came to where it lies. A copy may keep the time at which another was modified, but not this one."""
    if not file.is_on_s3:
        with suppress(OSError):  # it may be gone
            return utc_datetime(min(Path(file.location).stat().st_ctime_ns // 1000, FROM_YEAR_1[-1]))
    return file.modified


def changed_while_reading(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Those that are no longer as they were listed: written again, gone, or closed to us."""
    return [file for file in files if _stamp_now(file) != (file.size, file.etag)]


def stamp(status: os.stat_result) -> tuple[int, str]:
    """The size and the etag that a file's status tells."""
    return status.st_size, f"{status.st_size:x}-{status.st_mtime_ns:x}"


def _stamp_now(file: SourceFile) -> tuple[int, str] | None:
    try:
        with file.opened() as content:
            return stamp(os.fstat(content.fileno()))
    except OSError:
        return None


def _matches(stream: Stream, links: Links | None) -> dict[str, str | None]:
    """Paths below the root, and folders that are not searched with the reason."""
    segments = stream.files.pattern.split("/")
    if segments[-1] == "**":
        segments.append("*")
    return dict(_search(stream.files.root, links, "", segments))


def _search(root: Path, links: Links | None, folder: str, segments: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    try:
        entries = list(os.scandir(root / folder))
    except OSError as error:
        if not folder:
            raise SourceError(root, f"the source's folder cannot be read: {error.strerror}") from None
        yield folder, f"cannot be searched: {error.strerror}"
        return
    segment, *rest = segments
    if segment == "**":
        yield from _search(root, links, folder, rest)
        below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        rest = list(segments)
    else:
        matching = [entry for entry in entries if fnmatchcase(entry.name, segment)]
        # A lone * is not meant for folders; what is named like a file is shown.
        yield from ((folder + entry.name, None) for entry in matching if not rest and not _is_passed_by(entry, segment))
        below = [entry for entry in matching if rest and entry.is_dir()]
    for entry in below:
        path = f"{folder}{entry.name}"
        if links and links.place(path) is None:
            yield f"{path}/", _LEADS_OUT
        else:
            yield from _search(root, links, f"{path}/", rest)


def _is_passed_by(entry: os.DirEntry[str], segment: str) -> bool:
    return segment == "*" and entry.is_dir()


def _examine(stream: Stream, links: Links | None, path: str, now: datetime) -> SourceFile | str:
    """The file, or why it waits."""
    if reason := unfinished(path):
        return reason
    root = stream.files.root
    place = links.place(path) if links else Path(path)
    if place is None:
        return _LEADS_OUT
    location = root / place
    try:
        status = location.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    modified = utc_datetime(min(status.st_mtime_ns // 1000, FROM_YEAR_1[-1]))
    if S_ISDIR(status.st_mode):
        return "is a folder"
    if not S_ISREG(status.st_mode):
        return "is no regular file"
    if not os.access(location, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        return "cannot be read: permission denied"
    return unsettled(stream, modified, now) or SourceFile(
        path, str(location), *stamp(status), modified, str(root) if links else None
    )


def unsettled(stream: Stream, modified: datetime, now: datetime) -> str | None:
    """Why a file that was modified then has to rest; None if it has rested."""
    if modified <= now - stream.files.settle or modified > now + _MOST_AHEAD:
        return None
    return f"modified at {modified.isoformat()}; it may still be written until it rests for {stream.files.settle}"


def unfinished(path: str) -> str | None:
    """Why a file of this path, below the root, is not looked at; None if its names are those of finished files."""
    for name in path.split("/"):
        if name.startswith((".", "_")):
            return f"the name {name} begins with {name[0]}"
        if name.endswith(".tmp"):
            return f"the name {name} ends in .tmp"
    try:
        path.encode()
    except UnicodeEncodeError:
        return "the name is not UTF-8"
    return None
