"""What Dagster is told of the checks of a commit's partitions."""

from pathlib import Path
from typing import Any

import pytest

from dedup_platform.orchestration.checks import TOLD_APART, evaluations
from dedup_platform.orchestration.partitions import listing
from dedup_platform.tables import SESSIONS
from dedup_platform.testing import make_stream


@pytest.mark.parametrize("more", [0, 1])
def test_sound_partitions_are_told_together_where_they_are_many(tmp_path: Path, more: int) -> None:
    stream = make_stream(tmp_path, start="2024-03-01")
    first, many = stream.partitions.ordinal(stream.partitions.start), TOLD_APART + more
    rows = {first + day: day for day in range(many)}
    found = list(evaluations(stream, SESSIONS, rows, {first + 3: {"gaps": 2}}, listing(stream)))
    told: list[Any] = [
        (each.passed, each.partition, each.metadata["rows"].value) for each in found if each.check_name == "gaps"
    ]
    wrong, sound = (False, "2024-03-04", 3), sum(range(many)) - 3
    if more:
        assert told == [wrong, (True, None, sound)]
        assert [each.metadata["partitions"].value for each in found if each.check_name == "inside"] == [many]
    else:
        assert len(told) == many
        assert wrong in told
        assert sum(rows for passed, _, rows in told if passed) == sound
