"""How often whoever lost a race to another writer tries again."""

from functools import partial

from tenacity import (
    retry,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from dedup_platform.errors import ConflictError, FilesReplacedError

_five_times = partial(retry, stop=stop_after_attempt(5), wait=wait_random_exponential(0.2, 5), reraise=True)

retry_on_conflict = _five_times(retry=retry_if_exception_type(ConflictError))
"""Wraps a function that may raise ConflictError: it is called anew, at most five times."""
retry_with_same_files = _five_times(
    retry=retry_if_exception_type(ConflictError) & retry_if_not_exception_type(FilesReplacedError)
)
"""The same for a function that only commits files made before: they are of no use where others were replaced first."""
