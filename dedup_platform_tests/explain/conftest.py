"""A stream whose rows are explained, without Spark."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dedup_platform_tests.explain.histories import Explained
from dedup_platform_tests.lives.replaced import replaced


@pytest.fixture
def explained(tmp_path: Path) -> Iterator[Explained]:
    with replaced(has_spark=False):
        yield Explained(tmp_path, buckets=4)
