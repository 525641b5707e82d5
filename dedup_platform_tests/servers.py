"""Real servers for tests: one of each kind that tests share, or one of a test's own that it may kill."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dedup_platform.errors import MissingPartError
from dedup_platform.testing.servers import ServerProcess

Kind = TypeVar("Kind", bound=ServerProcess)


@contextmanager
def running(kind: Callable[..., Kind], folder: Path, **options: Any) -> Iterator[Kind]:
    """A server while the block runs; the test is skipped where it is not installed (with CI=true it fails)."""
    try:
        server = kind(folder, **options)
    except MissingPartError as missing:
        pytest.skip(str(missing))
    with server:
        yield server


def new_name(prefix: str = "t") -> str:
    """A name for a topic, a bucket or a database that no other test has."""
    return f"{prefix}{secrets.token_hex(6)}"
