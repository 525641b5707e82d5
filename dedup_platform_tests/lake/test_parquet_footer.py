"""Footers of Parquet files, as PyArrow writes them, taken apart and put together."""

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from dedup_platform.lake.parquet_footer import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    footer_bytes,
    parse,
    read_footer,
    struct_bytes,
)

INTEGERS = st.integers(-(2**63), 2**63 - 1).map(lambda number: (I64, number))
TEXTS = st.binary(max_size=300).map(lambda text: (BINARY, text))
BOOLEANS = st.booleans().map(lambda each: (1 if each else 2, each))
DOUBLES = st.binary(min_size=8, max_size=8).map(lambda each: (7, each))
TREES = st.recursive(
    st.dictionaries(st.integers(1, 400), INTEGERS | TEXTS | BOOLEANS | DOUBLES, max_size=20),
    lambda trees: st.dictionaries(
        st.integers(1, 400),
        trees.map(lambda tree: (STRUCT, tree))
        | st.lists(trees, max_size=20).map(lambda each: (LIST, (STRUCT, each)))
        | st.lists(st.integers(-5, 5), max_size=20).map(lambda each: (LIST, (I32, each))),
        max_size=4,
    ),
    max_leaves=5,
)


@given(TREES)
def test_a_tree_is_the_same_after_it_was_written(tree: Any) -> None:
    written = footer_bytes(tree)
    assert parse(written[:-8]) == tree
    assert int.from_bytes(written[-8:-4], "little") == len(written) - 8
    assert written.endswith(b"PAR1")


@given(TREES, TREES)
def test_a_part_of_a_tree_may_be_bytes_already(tree: Any, part: Any) -> None:
    whole, other = ({**tree, 500: (STRUCT, each), 501: (LIST, (STRUCT, [each]))} for each in (part, struct_bytes(part)))
    assert footer_bytes(other) == footer_bytes(whole)


def test_a_footer_of_pyarrow_is_written_as_it_was() -> None:
    file = BytesIO()
    rows = pa.table({"a": [1, None, -3], "b": [[True], [], None], "c": [1.5, float("nan"), None]})
    pq.write_table(rows, file, row_group_size=2, sorting_columns=[pq.SortingColumn(0, descending=True)])
    length = int.from_bytes(file.getvalue()[-8:-4], "little")
    assert footer_bytes(read_footer(pa.BufferReader(file.getvalue()))) == file.getvalue()[-8 - length :]


@pytest.mark.parametrize(
    "content", [b"", b"PAR1 and no more", b"x" * 100, b"\x1d\0\2\0\0\0PAR1", b"\x19\x1f\2\0\0\0PAR1"]
)
def test_what_is_no_footer_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no Parquet file|is in no footer|cut off"):
        read_footer(pa.BufferReader(content))
