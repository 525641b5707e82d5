"""Random lives of a stream without Spark, each judged after every commit; what fails is told as a short program."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from dedup_platform_tests.lives import Op, live, program, shrunk
from dedup_platform_tests.lives.__main__ import judged, look_for_garbage_less_often
from dedup_platform_tests.lives.program import LENGTH, WEIGHTS

A_TEST = 1
TESTS = 20
THOROUGH = 500
"""Times as many lives where there is time: ten thousand."""
SHORT = 6
"""Operations in each of them where it is short."""


@pytest.fixture(autouse=True, scope="module")
def _less_garbage_is_looked_for() -> Iterator[None]:
    before = gc.get_threshold()
    look_for_garbage_less_often()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("number", range(TESTS))
def test_a_life_is_right_at_every_published_snapshot(number: int, thorough: bool) -> None:
    lives = A_TEST * (THOROUGH if thorough else 1)
    length = LENGTH if thorough else SHORT
    seeds = range(number * lives, (number + 1) * lives)
    wrong = [f"seed {seed}: {what}" for seed in seeds if (what := judged(seed, length=length)[1])]
    assert wrong == []


FOUND = {
    # Two changes of the number of buckets leave rejected records' files in specs of their own.
    "manifests came to hold nothing but what was gone": (
        4389,
        [
            Op("deliver", 1714236140),
            Op("ingest", 4153860833),
            Op("repair", 1857081912),
            Op("ingest", 2947705444),
            Op("planned", 2500432004, "meanwhile"),
            Op("lose", 2999418865, "killed"),
            Op("ingest", 473851611, "meanwhile"),
            Op("settings", 1081963016),
        ],
    ),
    # Records moved away from a cell of duplicates only; history expired, and all that told of it was lost.
    "duplicates were left where no record was": (
        14492,
        [
            Op("ingest", 1441103606),
            Op("repair", 2874829427),
            Op("redecode", 1509457828),
            Op("maintain", 4048073791),
            Op("lose", 206696155),
        ],
    ),
    # The first duplicates were published, their events never; then the empty snapshot before them expired.
    "upkeep came between the first duplicates and their events": (
        20146,
        [
            Op("deliver", 3623315665),
            Op("ingest", 2348573227),
            Op("planned", 3004134583, "killed"),
            Op("ingest", 3918353394),
            Op("maintain", 2189489817),
        ],
    ),
}
"""What random lives found, in short: what happened -> seed and program."""


@pytest.mark.parametrize("happened", FOUND)
def test_a_life_in_which(happened: str, tmp_path: Path) -> None:
    seed, ops = FOUND[happened]
    live(tmp_path, seed, ops)


@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(
    st.integers(0, 2**16),
    st.lists(
        st.builds(
            Op, st.sampled_from(list(WEIGHTS)), st.integers(0, 2**32), st.sampled_from(["", "killed", "meanwhile"])
        ),
        max_size=8,
    ),
)
def test_so_is_one_that_somebody_else_makes_up(
    tmp_path_factory: pytest.TempPathFactory, seed: int, ops: list[Op]
) -> None:
    live(tmp_path_factory.mktemp("life"), seed, [Op("deliver", seed), *ops])


def test_a_program_is_the_same_for_the_same_seed() -> None:
    assert program(7) == program(7) != program(8)


def test_what_does_not_matter_is_left_out_of_a_program_that_fails() -> None:
    ops = program(3)
    needed = [ops[4], ops[9]]
    short = shrunk(
        ops, lambda fewer: [op[:2] for op in needed] == [op[:2] for op in fewer if op[:2] in [n[:2] for n in needed]]
    )
    assert [op[:2] for op in short] == [op[:2] for op in needed]
    assert [op.fate for op in short] == ["", ""]
