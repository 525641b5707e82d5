"""Files of a local warehouse that a power cut does not take away: what a commit names is on the disk before it.

A database syncs what it commits, and nobody syncs a file that was merely closed: after a power cut the catalog could
name files that are empty or gone. Synced one by one, a hundred files would take half a second, so each process notes
what it wrote and syncs all of it together: the writer of a commit before the catalog's own commit, and a worker before
its task ends.
"""

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from threading import Lock

import pyarrow as pa
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

_AT_ONCE = 16
_PUT_AWAY_AT_ONCE = 2

_lock: Lock
_open: dict[Path, pa.NativeFile] = {}
"""Only as long as they are open: a stream keeps its buffer of a megabyte when it is closed."""
_closed: set[Path] = set()
_known_folders: set[Path] = set()
_on_their_way: list[Future[None]] = []
_disk: ThreadPoolExecutor


def _have_threads() -> None:
    """A fork has none of the threads of its parent, and nobody to give up what they held."""
    global _lock, _disk
    _lock = Lock()
    _disk = ThreadPoolExecutor(_PUT_AWAY_AT_ONCE, thread_name_prefix="disk")
    _on_their_way.clear()


_have_threads()
os.register_at_fork(after_in_child=_have_threads)


class DurableFileIO(PyArrowFileIO):
    """PyArrow's file system of this machine; `sync_written` puts on the disk what was written through it."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to write."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _NotedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _NotedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> pa.NativeFile:
        stream = super().create(overwrite)
        with _lock:
            _note_closed()
            _open[Path(self._path)] = stream
        return stream


def send_ahead(file: OutputFile) -> None:
    """Have the disk begin with what there is of a large file that is still being written; nobody waits for it."""
    if isinstance(file, _NotedFile) and hasattr(os, "posix_fadvise"):
        _disk.submit(_send, Path(file._path))


def put_away(file: OutputFile) -> None:
    """Begin to put a large file on the disk that nobody is about to read, and let its pages in memory go.

    A copy of gigabytes then pushes out nothing that others read, and takes the pages that it has used before, which is
    several times faster than to have new ones. `sync_written` waits for it.
    """
    if isinstance(file, _NotedFile):
        with _lock:
            _on_their_way.append(_disk.submit(_sync, Path(file._path), lets_go=True))


def _note_closed() -> None:
    closed = [path for path, stream in _open.items() if stream.closed]
    for path in closed:
        del _open[path]
    _closed.update(closed)


def sync_written() -> None:
    """Put on the disk all files that this process wrote and closed since the last time, and the folders they are in."""
    with _lock:
        _note_closed()
        paths = list(_closed)
        _closed.clear()
        on_their_way = list(_on_their_way)
        _on_their_way.clear()
    for each in on_their_way:
        each.result()
    if not paths:
        return
    folders = _folders_of(paths)
    # All at once: the disk takes hardly longer than for one of them.
    with ThreadPoolExecutor(min(_AT_ONCE, len(paths) + len(folders))) as threads:
        list(threads.map(_sync, (*paths, *folders)))
    _known_folders.update(folders)


def _folders_of(paths: Iterable[Path]) -> set[Path]:
    """The folders of these files, and those around them of which it is not known that they were synced before."""
    found: set[Path] = set()
    for path in paths:
        found.add(path.parent)
        for inner, outer in pairwise(path.parents):
            if inner in _known_folders:
                break
            found.add(outer)
    return found


def _sync(path: Path, *, lets_go: bool = False) -> None:
    # What is gone by now is named by nobody, and what is not ours was not made by us.
    with suppress(FileNotFoundError, PermissionError):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
            if lets_go and hasattr(os, "posix_fadvise"):
                _let_go(opened)
        finally:
            os.close(opened)


def _send(path: Path) -> None:
    with suppress(FileNotFoundError):
        opened = os.open(path, os.O_RDONLY)
        try:
            _let_go(opened)
        finally:
            os.close(opened)


def _let_go(opened: int) -> None:
    """Let pages go that are on the disk; the others are on their way there from now on."""
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
