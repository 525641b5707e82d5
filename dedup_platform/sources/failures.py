"""What made a worker fail at its source, told in the driver by the error that the worker raised."""

import re

from dedup_platform.errors import DedupPlatformError, SourceChangedError, SourceError

__all__ = ["reading_failure"]

_FAILURE = re.compile(r"dedup_platform\.errors\.(SourceError|SourceChangedError): (.*)")


def reading_failure(error: BaseException) -> DedupPlatformError | None:
    """The SourceError or SourceChangedError of a worker that made a Spark job fail; None if it failed otherwise."""
    found = _FAILURE.search(str(error))
    if not found:
        return None
    if found[1] == "SourceChangedError":
        return SourceChangedError(found[2])
    path, _, reason = found[2].partition(": ")
    return SourceError(path, reason)
