"""Files that are read wherever they come from: pipes and devices, which could keep us waiting for ever, are none."""

import os
from errno import EINVAL, EISDIR
from stat import S_ISDIR, S_ISREG
from typing import BinaryIO

__all__ = ["opened"]

# Without waiting for somebody who writes into it, should it be a pipe.
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def opened(path: str | os.PathLike[str], flags: int = 0, folder: int | None = None) -> BinaryIO:
    """A file to be read, with more flags of `os.open`, its path relative to an open folder's descriptor.

    OSError if there is none that can be read, or if it is no regular file.
    """
    descriptor = os.open(path, _READING | flags, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if S_ISDIR(mode):
        raise OSError(EISDIR, os.strerror(EISDIR))
    raise OSError(EINVAL, "it is no regular file")
