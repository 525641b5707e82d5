"""The figures of partitions are those of all their rows, whatever repairs rewrote and whatever was lost."""

from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.planning.figures import Lateness
from dedup_platform.platform.figures import PartitionFigures
from dedup_platform.stream import Late
from dedup_platform_tests.repaired import Repaired

REPAIRS = 200


@pytest.fixture
def repaired(tmp_path: Path) -> Repaired:
    made = Repaired(tmp_path)
    for _ in range(2):
        made.repair()
    return made


def rows_out_of_reach(repaired: Repaired) -> None:
    """Take the data files of events and duplicates away, so that nobody can read them."""
    for table in tables.FIGURED:
        for file in (repaired.folder / "home" / "warehouse").rglob(f"{table}/data/**/*.parquet"):
            file.rename(file.with_suffix(".gone"))


def test_figures_equal_the_oracles_after_random_repairs(tmp_path: Path, thorough: bool) -> None:
    repaired = Repaired(tmp_path)
    for number in range(REPAIRS if thorough else 8):
        repaired.repair()
        assert repaired.found() == repaired.expected(), f"after repair {number}"
    expected = list(repaired.expected().values())
    assert all(sum(each[name] or 0 for each in expected) for name in expected[0]), "each figure is of something"
    assert repaired.found(repaired.lose_what_is_kept()) == repaired.expected()


def test_partitions_that_were_built_are_told_of_without_their_rows(repaired: Repaired) -> None:
    rows_out_of_reach(repaired)
    assert repaired.found(repaired.another()) == repaired.expected()
    # So nothing was read; where nothing is kept, something must be.
    with pytest.raises(FileNotFoundError):
        repaired.found(repaired.lose_what_is_kept())


@pytest.mark.parametrize("grace", [timedelta(0), timedelta(days=10)], ids=["none", "10 days"])
def test_another_grace_makes_others_late_and_is_counted_once(repaired: Repaired, grace: timedelta) -> None:
    stream = repaired.stream.model_copy(update={"late": Late(grace=grace)})
    assert repaired.found(repaired.another(stream)) == repaired.expected(grace) != repaired.expected()
    rows_out_of_reach(repaired)
    assert repaired.found(repaired.another(stream)) == repaired.expected(grace)


def test_a_partition_that_holds_nothing_has_figures(repaired: Repaired) -> None:
    [found] = repaired.platform.figures.of(repaired.stream.name, [1]).values()
    assert found == PartitionFigures()
    assert not any(found.plain().values())
    assert repaired.platform.figures.of(repaired.stream.name, []) == {}


def test_percentiles_are_by_the_nearest_rank() -> None:
    lateness = Lateness(dict.fromkeys(range(1, 101), 1))
    assert [lateness.percentile(percent) for percent in (1, 50, 95, 99, 100)] == [1, 50, 95, 99, 100]
    assert Lateness({7: 2}).percentile(50) == 7
    assert Lateness().percentile(50) is None
