"""What is another thing in a life than in a deployment: never what decides rows, commits or facts."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

from dedup_platform.recompute.session_tasks import Sessionization
from dedup_platform_tests.lives import upkeep
from dedup_platform_tests.lives.shortcuts import SHORTCUTS

_SMALL = {
    "tenacity.nap.time": SimpleNamespace(sleep=lambda _: None),
    # So that few rows are cut into many pieces.
    "dedup_platform.recompute.chunks.CHUNK_BYTES": 1,
    "dedup_platform.changes.difference.CHUNK_BYTES": 4 * 1024,
    "dedup_platform.changes.difference.LARGE_ROWS": 6,
    "dedup_platform.changes.difference.WHOLE_ROWS": 2,
    "dedup_platform.changes.publisher.BATCH_ROWS": 5,
    "dedup_platform.changes.aliases.COMMIT_ROWS": 4,
    "dedup_platform.changes.aliases.FILE_ROWS": 2,
    "dedup_platform.recompute.build.Sessionization": partial(Sessionization, slice_bytes=1),
}
_WITHOUT_SPARK = {
    "dedup_platform.maintenance.upkeep.procedures": upkeep,
    "dedup_platform.maintenance.feeds.procedures": upkeep,
}
# Ten seconds a table, and none of a life's is old enough to go.
_WITH_SPARK = {"dedup_platform.maintenance.procedures.remove_orphans": upkeep.remove_orphans}


@contextmanager
def replaced(*, has_spark: bool) -> Iterator[None]:
    """Have it so for as long as lives are lived."""
    with ExitStack() as stack:
        for target, replacement in (_SMALL | SHORTCUTS | (_WITH_SPARK if has_spark else _WITHOUT_SPARK)).items():
            stack.enter_context(patch(target, replacement))
        yield
