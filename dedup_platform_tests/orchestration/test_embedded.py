"""Runs of several streams in one process."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dedup_platform.orchestration.embedded import jobs_of
from dedup_platform.settings import Settings
from dedup_platform.testing import make_stream
from dedup_platform_tests.orchestration.conftest import QUIET

THREADS = 6


@pytest.fixture
def restless_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("restless_threads")
def test_jobs_of_several_streams_are_made_side_by_side(tmp_path: Path) -> None:
    streams = [make_stream(tmp_path, f"stream_{number}") for number in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        made = list(threads.map(lambda each: jobs_of(Settings(home=tmp_path / "home"), each, QUIET), streams * 3))
    assert [[job.name for job in jobs] for jobs in made] == [[f"{each.name}_ingest"] for each in streams * 3]
