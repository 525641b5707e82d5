"""How many groups files are put into, and that these are about equally large."""

from datetime import UTC, datetime
from itertools import chain

import pytest

from dedup_platform.sources.files import grouped, is_little
from dedup_platform.sources.listing import SourceFile

KB, MB = 2**10, 2**20
AT = datetime(2024, 3, 1, tzinfo=UTC)


def files(count: int, size: int, folder: str = "/in") -> list[tuple[SourceFile, int]]:
    return [
        (SourceFile(f"{number}.json", f"{folder}/{number}.json", size, f"{number}", AT), 0) for number in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "size", "at_once", "groups"),
    [
        (1, 900 * MB, 2, 1),
        (100, KB, 2, 2),
        (10, KB, 2, 1),
        (200, 300 * KB, 2, 2),
        (200, 300 * KB, None, 16),
        (30, 10 * MB, 2, 4),
        (600, 10 * MB, None, 48),
        (600, 10 * MB, 64, 64),
    ],
    ids=[
        "a file stays whole",
        "small",
        "tiny",
        "as many as are read at once",
        "unknown",
        "rounds",
        "much",
        "many cores",
    ],
)
def test_groups(count: int, size: int, at_once: int | None, groups: int) -> None:
    given = files(count, size)
    made = grouped(given, at_once)
    assert len(made) == groups
    assert sorted(chain(*made), key=str) == sorted(given, key=str)
    assert max(map(len, made)) - min(map(len, made)) <= 1


@pytest.mark.parametrize(
    ("count", "size", "folder", "expected"),
    [
        (1, KB, "/in", True),
        (300, KB, "/in", True),
        (400, KB, "/in", False),
        (10, 500 * KB, "/in", True),
        (10, MB, "/in", False),
        (10, KB, "s3://in", False),
    ],
)
def test_little_is_read_sooner_by_one_task(count: int, size: int, folder: str, expected: bool) -> None:
    assert is_little(files(count, size, folder)) is expected
