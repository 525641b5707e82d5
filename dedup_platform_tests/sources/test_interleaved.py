"""Records that were read in several parts stand where they came."""

from collections.abc import Sequence

import polars as pl
import pytest

from dedup_platform.sources.contents import Contents, ListedContents, NamedField
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.interleaved import InterleavedContents, interleaved
from dedup_platform.sources.records import MALFORMED_RECORD, Content
from dedup_platform.sources.repeated import Repeated
from dedup_platform.sources.texts import Texts

BAD = MALFORMED_RECORD
NAME = field_reader("a", "json").named[0]


class NamedContents(ListedContents):
    """Records of one kind: their columns know all names, are in doubt of "?" and know moments."""

    names = ("a",)

    def texts(self, fields: Sequence[NamedField]) -> Sequence[Texts]:
        values = super().texts(fields)[0].values
        return [Texts(values, values == "?", pl.Series(range(len(values))))] * len(fields)

    @property
    def kind(self) -> object:
        return NamedContents

    def joined(self, others: Sequence[Contents]) -> Contents:
        return NamedContents([content for each in (self, *others) for content in each])


def read(letters: str) -> NamedContents:
    return NamedContents([{"a": letter} for letter in letters])


def parts(*each: tuple[Sequence[int], Contents]) -> InterleavedContents:
    batches = [
        (pl.Series(places), ([b"p%d" % place for place in places], contents, [f"c{place}" for place in places]))
        for places, contents in each
    ]
    payloads, together, contexts = interleaved(batches)
    assert isinstance(payloads, pl.Series)
    assert payloads.to_list() == [b"p%d" % place for place in range(len(together))]
    assert list(contexts) == [f"c{place}" for place in range(len(together))]
    assert isinstance(together, InterleavedContents)
    return together


def test_every_record_is_at_its_place() -> None:
    together = parts(([0, 3, 4], read("ad?")), ([1, 5], ListedContents([BAD, BAD])), ([2], read("c")))
    assert list(together) == [{"a": "a"}, BAD, {"a": "c"}, {"a": "d"}, {"a": "?"}, BAD]
    [texts] = together.texts([NAME])
    assert texts.values.to_list() == ["a", None, "c", "d", "?", None]
    assert texts.in_doubt is not None
    assert texts.in_doubt.to_list() == [False, False, False, False, True, False]
    assert sorted(together.rejected) == [1, 5]
    assert together.names == ("a",)


def test_moments_are_known_where_all_parts_know_them() -> None:
    [texts] = parts(([1, 2], read("bc")), ([0], read("a"))).texts([NAME])
    assert texts.moments is not None
    assert texts.moments.to_list() == [0, 0, 1]


@pytest.mark.parametrize("others", [ListedContents([{"b": "1"}]), ListedContents([{"a": "1"}])])
def test_names_are_known_where_all_events_have_them(others: Contents) -> None:
    assert parts(([0], read("a")), ([1], others)).names is None


def test_parts_of_one_kind_are_read_together() -> None:
    first = parts(([0, 2], read("ac")), ([1], ListedContents([BAD])))
    joined = first.joined([parts(([1], read("b")), ([0, 2], ListedContents([BAD, BAD])))])
    expected: list[Content] = [{"a": "a"}, BAD, {"a": "c"}, BAD, {"a": "b"}, BAD]
    assert list(joined) == expected
    [texts] = joined.texts([NAME])
    assert texts.values.to_list() == ["a", None, "c", None, "b", None]
    assert sorted(joined.rejected) == [1, 3, 5]
    assert len(joined._parts) == 3  # type: ignore[attr-defined]


def test_one_part_is_what_it_was() -> None:
    batch = [b"p"], read("a"), Repeated("c", 1)
    assert interleaved([(pl.Series([0]), batch)]) is batch
