"""Values of binary encodings at many places: the same that are read one by one."""

import struct

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st

from dedup_platform.sources.binary_columns import BEYOND, EncodedBytes, zigzags
from dedup_platform.sources.pieces import read_varint, zigzag
from dedup_platform_tests.sources.schemas import varint


def at(*places: int) -> np.ndarray:
    return np.array(places, np.int64)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_numbers_are_those_that_are_read_one_by_one(numbers: list[int]) -> None:
    encoded = [varint(number) for number in numbers]
    places = np.cumsum([0, *map(len, encoded)])
    read, after = EncodedBytes(b"".join(encoded)).varints(places[:-1])
    assert read.tolist() == numbers
    assert after.tolist() == places[1:].tolist()
    assert zigzags(read).tolist() == [zigzag(number) for number in numbers]


@given(st.binary(min_size=1))
def test_what_one_reader_refuses_ends_behind_the_end(data: bytes) -> None:
    _, after = EncodedBytes(data).varints(np.arange(len(data)))
    for place, end in enumerate(after.tolist()):
        try:
            expected = read_varint(data, place)[1]
        except (IndexError, ValueError):
            assert end > len(data)
        else:
            assert end == expected


def test_a_number_of_more_than_64_bits_ends_beyond_all() -> None:
    data = EncodedBytes(b"\xff" * 9 + b"\x02" + b"\xff" * 9 + b"\x01" + b"\xff" * 11)
    _, after = data.varints(at(0, 10, 20))
    assert after.tolist() == [BEYOND, 20, BEYOND]


@given(st.lists(st.binary(max_size=40), min_size=1))
def test_slices_are_the_bytes_between(values: list[bytes]) -> None:
    ends = np.cumsum([0, *map(len, values)])
    slices = EncodedBytes(b"".join(values)).slices(ends[:-1], np.diff(ends))
    assert slices.dtype == pl.Binary
    assert slices.to_list() == values
    assert slices.n_unique() == len(set(values))


@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 3))
def test_series_are_their_values_one_behind_the_other(values: list[bytes], skipped: int) -> None:
    records = pl.concat([pl.Series(values, dtype=pl.Binary), pl.Series(values, dtype=pl.Binary)])[skipped:]
    data, begins, ends = EncodedBytes.of(records)
    assert data.slices(begins, ends - begins).to_list() == records.to_list()


def test_slices_outlive_the_bytes_that_they_are_of() -> None:
    slices = EncodedBytes(b"a value of more than twelve bytes" + b"short").slices(at(0, 33), at(33, 5))
    assert slices.to_list() == [b"a value of more than twelve bytes", b"short"]


def test_fixed_numbers() -> None:
    data = EncodedBytes(struct.pack("<dIq", 0.1, 2**32 - 1, -2))
    assert data.fixed(at(0), np.float64).tolist() == [0.1]
    assert data.fixed(at(8), np.uint32).tolist() == [2**32 - 1]
    assert data.fixed(at(12), np.int64).tolist() == [-2]


def test_more_than_arrow_can_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dedup_platform.sources.binary_columns._MOST_BYTES", 4)
    with pytest.raises(ValueError, match="5 bytes"):
        EncodedBytes(b"12345")


@given(st.lists(st.text(max_size=20) | st.none(), min_size=1))
def test_texts_may_be_missing(values: list[str | None]) -> None:
    encoded = [(value or "").encode() for value in values]
    places = np.cumsum([0, *map(len, encoded)])[:-1]
    sizes = at(*(-1 if value is None else len(bytes_) for value, bytes_ in zip(values, encoded, strict=True)))
    texts = EncodedBytes(b"".join(encoded)).texts(places, sizes)
    assert texts.dtype == pl.String
    assert texts.to_list() == values


@given(st.binary(max_size=60), st.integers(0, 30), st.binary(max_size=2))
def test_what_places_begin_with(data: bytes, size: int, other: bytes) -> None:
    text = data[len(data) // 3 :][:size]
    for wanted in (text, text[:-1] + other, other + text):
        places = np.arange(len(data) - len(wanted) + 1)
        found = EncodedBytes(data).has(wanted, places)
        assert found.tolist() == [data.startswith(wanted, place) for place in places.tolist()]
