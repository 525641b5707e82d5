"""How changes are cut into batches: whole versions where they fit, images of an update together, nothing lost."""

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, strategies as st

from dedup_platform.changes.batches import ORDINAL, VERSION, batches, halves
from dedup_platform.rules.changes import DELETE, INSERT, POSTIMAGE, PREIMAGE

UNITS = {"insert": [INSERT], "delete": [DELETE], "update": [PREIMAGE, POSTIMAGE]}
VERSIONS = st.lists(st.lists(st.sampled_from([*UNITS]), min_size=1, max_size=9), max_size=8)


def changes(versions: list[list[str]], first: int = 1) -> pl.DataFrame:
    """Versions that follow one another, each of these units."""
    rows = [
        (kind, version, ordinal)
        for version, units in enumerate(versions, first)
        for ordinal, kind in enumerate(kind for unit in units for kind in UNITS[unit])
    ]
    schema = {"_change_type": pl.String, VERSION: pl.Int64, ORDINAL: pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def pieces(rows: pl.DataFrame, cuts: list[int]) -> list[pl.DataFrame]:
    """The same rows in pieces, as files may hold them."""
    places = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    return [rows[first:last] for first, last in pairwise(places)]


@given(VERSIONS, st.lists(st.integers(0, 100)), st.integers(2, 12))
def test_batches_are_all_the_changes_in_their_order(versions: list[list[str]], cuts: list[int], rows: int) -> None:
    given_ = changes(versions)
    found = [cut.changes for cut in batches(pieces(given_, cuts), rows)]
    assert (pl.concat(found) if found else given_.clear()).equals(given_)
    assert all(0 < len(each) <= rows for each in found)


@given(VERSIONS, st.lists(st.integers(0, 100)), st.integers(2, 12))
def test_no_batch_ends_within_an_update(versions: list[list[str]], cuts: list[int], rows: int) -> None:
    for cut in batches(pieces(changes(versions), cuts), rows):
        assert cut.changes["_change_type"][-1] != PREIMAGE


@given(VERSIONS, st.lists(st.integers(0, 100)), st.integers(2, 12))
def test_a_batch_knows_whether_it_ends_a_version(versions: list[list[str]], cuts: list[int], rows: int) -> None:
    given_ = changes(versions)
    lasts = dict(given_.group_by(VERSION).agg(pl.max(ORDINAL)).iter_rows())
    for cut in batches(pieces(given_, cuts), rows):
        version, ordinal = cut.changes[[VERSION, ORDINAL]].row(-1)
        assert cut.is_whole == (lasts[version] == ordinal)


@given(VERSIONS, st.lists(st.integers(0, 100)), st.integers(2, 12))
def test_a_version_that_fits_is_never_divided(versions: list[list[str]], cuts: list[int], rows: int) -> None:
    given_ = changes(versions)
    sizes = dict(given_[VERSION].value_counts().iter_rows())
    found = list(batches(pieces(given_, cuts), rows))
    for version, size in sizes.items():
        parts = sum(version in cut.changes[VERSION] for cut in found)
        assert size > rows or parts == 1, f"version {version} of {size} changes is in {parts} batches"


def test_the_same_place_is_cut_whatever_follows() -> None:
    """Who goes on after a crash finds more versions than the one before, and cuts a large one as he did."""
    large = [["insert"] * 9]
    alone = list(batches([changes(large)], 4))
    followed = list(batches([changes([*large, ["delete"], ["delete"]])], 4))
    assert [len(cut.changes) for cut in alone] == [4, 4, 1]
    assert [len(cut.changes) for cut in followed] == [4, 4, 3]


@given(st.lists(st.sampled_from([*UNITS]), min_size=1, max_size=30))
def test_halving_ends_with_single_changes(units: list[str]) -> None:
    left, found = [changes([units])], []
    while left:
        rows = left.pop()
        parts = halves(rows)
        if parts is None:
            found.append([*rows["_change_type"]])
        else:
            assert all(len(part) for part in parts)
            left += reversed(parts)
    assert found == [UNITS[unit] for unit in units]


@pytest.mark.parametrize("kind", [INSERT, DELETE])
def test_one_change_has_no_halves(kind: str) -> None:
    assert halves(changes([[kind]])) is None
