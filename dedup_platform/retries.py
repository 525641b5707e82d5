"""How often what failed is tried again, and after which pauses. Which failures those are, its user says.

The tries of ingests and sinks follow the stream file (`ledger.tries`), those of repairs `planning.triage`.
"""

from collections.abc import Callable
from functools import partial

from tenacity import (
    Retrying,
    retry,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_not_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from dedup_platform.errors import ClaimLostError, ConflictError, FilesReplacedError

retry_commits = partial(retry, stop=stop_after_attempt(12), wait=wait_random_exponential(0.05, 2), reraise=True)
"""For one commit to a catalog that others commit to as well: a fraction of a second each."""
retry_reads = partial(retry, stop=stop_after_attempt(6), wait=wait_random_exponential(0.2, 5), reraise=True)
"""For one piece of a file that a server broke off."""
retry_work = partial(retry, stop=stop_after_attempt(5), wait=wait_random_exponential(0.2, 5), reraise=True)
"""For work that is done anew from its beginning."""


def retry_while(may_pass: Callable[[BaseException], bool], pause: Callable[[], float]) -> Retrying:
    """Calls what it is given anew for as long as `may_pass` says so of what was raised, `pause` seconds later."""
    return Retrying(retry=retry_if_exception(may_pass), wait=lambda _: pause(), reraise=True)


retry_on_conflict = retry_work(
    retry=retry_if_exception_type(ConflictError) & retry_if_not_exception_type(ClaimLostError)
)
"""Wraps a function that may raise ConflictError: it is called anew, at most five times, unless another has its work."""
retry_with_same_files = retry_work(
    retry=retry_if_exception_type(ConflictError) & retry_if_not_exception_type(FilesReplacedError)
)
"""The same for a function that only commits files made before: they are of no use where others were replaced first."""
