"""Columns of bytes against the plainest way to make them: number by number."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from dedup_platform.sinks.column_bytes import (
    booleans,
    constant,
    distinct,
    doubles,
    joined,
    lengths,
    or_else,
    texts,
    varint,
    varints,
    zigzag,
)

LONG = st.integers(-(2**63), 2**63 - 1)


def plainly(number: int) -> bytes:
    """A number, seven bits a byte."""
    found = bytearray()
    while number > 127:
        found.append(number % 128 + 128)
        number //= 128
    return bytes([*found, number])


@given(st.lists(st.integers(0, 2**64 - 1)), st.binary(max_size=3))
def test_numbers_have_as_many_bytes_as_they_need(numbers: list[int], lead: bytes) -> None:
    assert varints(np.array(numbers, np.uint64), lead).to_pylist() == [lead + plainly(each) for each in numbers]


@given(st.lists(LONG, min_size=1))
def test_small_numbers_are_small_whatever_their_sign(numbers: list[int]) -> None:
    expected = [2 * each if each >= 0 else -2 * each - 1 for each in numbers]
    assert zigzag(np.array(numbers, np.int64)).tolist() == expected


@pytest.mark.parametrize("number", [0, 127, 128, 2**32, 2**64 - 1])
def test_one_number_is_as_it_is_in_a_column(number: int) -> None:
    assert varint(number) == plainly(number)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=5), st.none() | st.binary(max_size=5))))
def test_what_is_joined_is_in_order_and_null_is_nothing(rows: list[tuple[Any, Any]]) -> None:
    first, second = (pa.array([row[place] for row in rows], pa.large_binary()) for place in (0, 1))
    found = joined([first, constant(b"-"), second], len(rows)).to_pylist()
    assert found == [(one or b"") + b"-" + (other or b"") for one, other in rows]


def test_what_is_the_same_in_all_rows_is_in_all_rows() -> None:
    assert joined([constant(b"a"), constant(None), constant(b"b")], 3).to_pylist() == [b"ab"] * 3


def test_columns_of_each_type() -> None:
    assert doubles(pl.Series([1.0, None]), b"x").to_pylist() == [b"x\0\0\0\0\0\0\xf0\x3f", b"x" + bytes(8)]
    assert booleans(pl.Series([True, False, None]), b"").to_pylist() == [b"\1", b"\0", b"\0"]
    assert texts(pl.Series(["ü", "", None])).to_pylist() == ["ü".encode(), b"", b""]
    content = pa.array([b"abc", None, b""], pa.large_binary())
    assert lengths(content).tolist() == [3, 0, 0]
    assert or_else(content.is_valid(), content, b"none").to_pylist() == [b"abc", b"none", b""]


def test_lists_are_written_once_each() -> None:
    written: list[list[str]] = []

    def write(names: list[str]) -> bytes:
        written.append(names)
        return b"+".join(name.encode() for name in names)

    lists = pl.Series([["a", "b"], [], None, ["a", "b"], ["c"]], dtype=pl.List(pl.String))
    assert distinct(lists, write).to_pylist() == [b"a+b", b"", None, b"a+b", b"c"]
    assert sorted(written) == [[], ["a", "b"], ["c"]]
