"""How often whoever lost a race to another writer tries again."""

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from dedup_platform.errors import ConflictError

again = retry(
    retry=retry_if_exception_type(ConflictError),
    stop=stop_after_attempt(5),
    wait=wait_random_exponential(0.2, 5),
    reraise=True,
)
"""Wraps a function that may raise ConflictError: it is called anew, at most five times."""
