"""Tables of all types of Parquet, with the values that are hardest to write as text."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import inf, nan
from random import Random
from typing import Any

import pyarrow as pa

TEXTS = [
    "a",
    "user-7",
    "",
    "é",
    "\u2028",
    'quo"te',
    "back\\slash",
    "\n",
    "\x00",
    "\x1f",
    "\x7f",
    "🙂",
    " x ",
    "12",
    "1.50",
]
TIMES = [0, 1, -1, 1_709_290_800, 1_709_290_800_123_456, 253_402_300_799, 253_370_764_799_999_999, 2**62, -(2**62)]
FLOATS = [0.0, -0.0, 1.5, 1e300, 5e-324, 0.1, 1e16, 123456789.25, nan, inf, -inf]
TYPES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "string": (pa.string(), TEXTS),
    "large_string": (pa.large_string(), TEXTS),
    "string_view": (pa.string_view(), TEXTS),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXTS),
    "int8": (pa.int8(), [0, 1, -128, 127]),
    "uint64": (pa.uint64(), [0, 2**64 - 1, 1_709_290_800]),
    "int64": (pa.int64(), [0, -1, 2**63 - 1, -(2**63), 1_709_290_800]),
    "float": (pa.float32(), FLOATS[:3] + FLOATS[8:]),
    "double": (pa.float64(), FLOATS),
    "decimal": (pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.50"), Decimal("9999999999.99")]),
    "wide decimal": (pa.decimal256(60, 10), [Decimal("1e-10"), Decimal(10) ** 49]),
    "boolean": (pa.bool_(), [True, False]),
    "binary": (pa.binary(), [b"", b"\xff\0", b"abc"]),
    "binary_view": (pa.binary_view(), [b"", b"\xff\0", b"abc"]),
    "fixed": (pa.binary(3), [b"\xff\0a", b"abc"]),
    "date": (pa.date32(), [0, 19_783, -1, 2**31 - 1]),
    "time": (pa.time64("us"), [0, 86_399_999_999]),
    **{
        f"timestamp {unit} {zone}": (pa.timestamp(unit, zone), TIMES)
        for unit in ("ms", "us", "ns")
        for zone in (None, "UTC", "Europe/Berlin")
    },
}
NESTED: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "list": (pa.list_(pa.string()), [[], ["a", None], ['"']]),
    "struct": (pa.struct([("b", pa.int64()), ("a", pa.string())]), [{"b": 1, "a": "x"}, {"b": None, "a": '"'}]),
    "map": (pa.map_(pa.string(), pa.float64()), [[], [("k", 1.5), ("l", None)]]),
}


PLAIN_TEXTS = ["a", "user-7", "é", 'quo"te', "\n"]
PLAIN: Mapping[str, Sequence[tuple[pa.DataType, Sequence[Any]]]] = {
    "user": [(pa.string(), PLAIN_TEXTS), (pa.int64(), [1, 2, 30])],
    "id": [(pa.string(), PLAIN_TEXTS), (pa.string_view(), PLAIN_TEXTS)],
    "n": [(pa.float64(), [0.5, 1.5, 123456789.25]), (pa.int8(), [1, 2])],
    "x y": [(pa.decimal128(12, 2), [Decimal("0.00"), Decimal("-1.50"), None])],
}
TIMES_OF = {"at": 0, "day": 0, "arrived": 2 * 10**15}
"""Columns of times -> nanoseconds by which they lie behind the others."""


def table(random: Random, names: Sequence[str], rows: int) -> pa.Table:
    """A table with these columns, each of a type of its own: of plain values in most, else of any."""
    if random.random() < 0.6:
        return pa.table({name: _plain_column(random, name, rows) for name in names})
    columns = [name for name in names if random.random() < 0.95]
    types = {**TYPES, **NESTED} if random.random() < 0.2 else TYPES
    if random.random() < 0.1 and columns:
        columns.append(columns[0])
    return pa.Table.from_arrays([_column(random, types, rows) for _ in columns], columns)


def _plain_column(random: Random, name: str, rows: int) -> pa.Array:
    if name in TIMES_OF:
        unit, zone = random.choice(["s", "ms", "us", "us", "ns"]), random.choice(["UTC", "UTC", "Europe/Berlin", None])
        of_type = random.choice([pa.timestamp(unit, zone)] * 4 + [pa.int64()])
        values: Sequence[Any] = [_in_unit(unit if of_type != pa.int64() else "s", random, TIMES_OF[name]) for _ in "ab"]
    else:
        of_type, values = random.choice(PLAIN.get(name, [*TYPES.values()]))
    return pa.array([random.choice(values) for _ in range(rows)], of_type)


def _column(random: Random, types: Mapping[str, tuple[pa.DataType, Sequence[Any]]], rows: int) -> pa.Array:
    of_type, values = types[random.choice(list(types))]
    nulls = random.choice([0, 0, 0.1])
    made = pa.array([None if random.random() < nulls else random.choice(values) for _ in range(rows)], of_type)
    return _not_utf8(made) if of_type == pa.string() and random.random() < 0.3 else made


def _in_unit(unit: str, random: Random, behind: int) -> int:
    nanoseconds = 1_709_290_800_000_000_000 + behind + random.randrange(10**15)
    return nanoseconds // {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit]


def _not_utf8(texts: pa.Array) -> pa.Array:
    """The same with a byte that stands alone at the place of each letter a."""
    valid, offsets, content = texts.buffers()
    spoilt = pa.py_buffer(content.to_pybytes().replace(b"a", b"\xff")) if content else content
    return pa.StringArray.from_buffers(len(texts), offsets, spoilt, valid)
