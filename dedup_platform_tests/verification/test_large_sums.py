"""Sums at the end of what a decimal holds, in both forms of the rules and in the oracle; boundaries by name."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyspark.sql import SparkSession

from dedup_platform.rules.fingerprints import fingerprint
from dedup_platform.rules.fragments import columns_read, fragment as fragment_kernel
from dedup_platform.rules.sessions import stitch as stitch_kernel
from dedup_platform.schemas import iceberg_schema
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, SESSION_FRAGMENTS, SESSIONS, columns, large_sums
from dedup_platform.testing import Record, lay_out, make_stream, record, utc
from dedup_platform.testing.oracle import Rules, oracle
from dedup_platform.verification.fragments import fragment
from dedup_platform.verification.sessions import stitch

LARGEST = 10**38 - 1
"""In units of the last digit, as all amounts here."""
EVENING, MORNING = utc("2024-03-01T23:50"), utc("2024-03-02T00:00")
ALONE = utc("2024-03-02T12:00")

Amounts = Sequence[int | None]
CASES: dict[str, tuple[dict[Any, Amounts], dict[Any, int | None], int | None]] = {
    "one below the largest number": (
        {ALONE: [LARGEST - 1, -1, 1]},
        {ALONE: LARGEST - 1},
        LARGEST - 1,
    ),
    "the largest number itself": ({ALONE: [LARGEST - 1, 1]}, {ALONE: LARGEST}, None),
    "a single value of it": ({ALONE: [LARGEST]}, {ALONE: LARGEST}, None),
    "beyond it": ({ALONE: [LARGEST, LARGEST]}, {ALONE: LARGEST}, None),
    "beyond what two halves of a number hold": ({ALONE: [LARGEST] * 5}, {ALONE: LARGEST}, None),
    "one above the smallest number": ({ALONE: [1 - LARGEST]}, {ALONE: 1 - LARGEST}, 1 - LARGEST),
    "the smallest number itself": ({ALONE: [-LARGEST]}, {ALONE: -LARGEST}, None),
    "below it": ({ALONE: [-LARGEST, -LARGEST, -1]}, {ALONE: -LARGEST}, None),
    "beyond it on the way only": (
        {ALONE: [LARGEST, LARGEST, None, -LARGEST, -LARGEST, -1]},
        {ALONE: -1},
        -1,
    ),
    "nothing but nulls": ({ALONE: [None, None]}, {ALONE: None}, None),
    "fragments that reach it together": (
        {EVENING: [LARGEST - 5], MORNING: [5]},
        {EVENING: LARGEST - 5, MORNING: 5},
        None,
    ),
    "fragments that stay below it together": (
        {EVENING: [LARGEST - 5], MORNING: [4, None]},
        {EVENING: LARGEST - 5, MORNING: 4},
        LARGEST - 1,
    ),
    "fragments whose signs differ": (
        {EVENING: [LARGEST - 1], MORNING: [1 - LARGEST, 2]},
        {EVENING: LARGEST - 1, MORNING: 3 - LARGEST},
        2,
    ),
    "one fragment too large, whatever the other takes away": (
        {EVENING: [LARGEST, 1], MORNING: [-LARGEST + 1]},
        {EVENING: LARGEST, MORNING: 1 - LARGEST},
        None,
    ),
    "fragments too large on both sides": (
        {EVENING: [LARGEST, 1], MORNING: [-LARGEST, -1]},
        {EVENING: LARGEST, MORNING: -LARGEST},
        None,
    ),
    "a fragment of nulls beside one that has a sum": (
        {EVENING: [None], MORNING: [1, LARGEST - 2]},
        {EVENING: None, MORNING: LARGEST - 1},
        LARGEST - 1,
    ),
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return of_amounts(tmp_path_factory.mktemp("sums"), "decimal(38,2)")


def of_amounts(folder: Path, kind: str) -> Stream:
    return make_stream(folder, attributes={"amount": kind}, aggregates={"revenue": ("sum", "amount")})


def decimal(units: int | None, scale: int = 2) -> Decimal | None:
    """Made of digits: by arithmetic Python would round it."""
    return None if units is None else Decimal(f"{units}E-{scale}")


def records_of(case: str, start: dict[Any, Amounts]) -> list[Record]:
    return [
        record(case, f"{case} {time} {number}", time + timedelta(seconds=number), amount=decimal(amount))
        for time, amounts in start.items()
        for number, amount in enumerate(amounts)
    ]


def events_of(stream: Stream, records: Iterable[Record]) -> pa.Table:
    schema = schema_to_pyarrow(iceberg_schema(columns(stream, RAW_EVENTS)), include_field_ids=False)
    return pa.Table.from_pylist([vars(each) | dict(each.attributes) for each in records], schema)


def by_kernels(stream: Stream, records: Iterable[Record]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fragments, partition by partition, and sessions."""
    events = pl.DataFrame(events_of(stream, records)).select(columns_read(stream))
    days = events.with_columns(_day=pl.col("event_time").dt.date()).partition_by("_day", include_key=False)
    fragments = pl.concat(fragment_kernel(day, stream) for day in days)
    return fragments, stitch_kernel(fragments, stream)


def by_sql(spark: SparkSession, stream: Stream, records: Iterable[Record]) -> tuple[pl.DataFrame, pl.DataFrame]:
    fragments = fragment(spark.createDataFrame(events_of(stream, records)), stream)
    return pl.DataFrame(fragments.toArrow()), pl.DataFrame(stitch(fragments, stream).toArrow())


def sums(found: tuple[pl.DataFrame, pl.DataFrame]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """By entity and start."""
    fragments, sessions = found
    return (
        {(row["entity_id"], row["first_event_time"]): row["revenue"] for row in fragments.to_dicts()},
        {(row["entity_id"], row["started_at"]): row["revenue"] for row in sessions.to_dicts()},
    )


def by_oracle(stream: Stream, records: Sequence[Record]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    expected = oracle(lay_out(records), Rules.of(stream))
    fragments = [each for found in expected.fragments.values() for each in found]
    return tuple(
        {(each.entity_id, each.started_at): each.aggregates["revenue"] for each in found}
        for found in (fragments, expected.sessions)
    )  # type: ignore[return-value]


@pytest.mark.parametrize("case", CASES)
def test_kernels(case: str, stream: Stream) -> None:
    start, fragments, session = CASES[case]
    for order in (1, -1):
        found = sums(by_kernels(stream, records_of(case, start)[::order]))
        expected = {(case, time): decimal(total) for time, total in fragments.items()}
        assert found == (expected, {(case, min(start)): decimal(session)})


def test_the_oracle_and_sql_say_the_same(spark: SparkSession, stream: Stream) -> None:
    records = [each for case in CASES for each in records_of(case, CASES[case][0])]
    expected = (
        {(case, time): decimal(total) for case in CASES for time, total in CASES[case][1].items()},
        {(case, min(CASES[case][0])): decimal(CASES[case][2]) for case in CASES},
    )
    assert by_oracle(stream, records) == expected
    assert sums(by_sql(spark, stream, records)) == expected


@pytest.mark.parametrize("kind", ["decimal(38,0)", "decimal(38,38)", "decimal(29,11)", "decimal(38,20)"])
def test_all_forms_agree_on_random_values(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    stream, random = of_amounts(tmp_path, kind), Random(kind)
    precision, scale = map(int, kind[8:-1].split(","))
    most = 10**precision - 1
    numbers = [most, most - 1, most // 2, most // 3, 10**20, 10**20 - 1, 10**19, 1, 0]
    records = [
        record(
            f"e{random.randrange(40)}",
            str(number),
            MORNING + timedelta(minutes=random.randrange(-90, 90)),
            amount=decimal(random.choice([None, *numbers, *(-each for each in numbers)]), scale),
        )
        for number in range(400)
    ]
    expected = by_oracle(stream, records)
    assert sums(by_kernels(stream, records)) == expected
    assert sums(by_sql(spark, stream, records)) == expected


def test_what_no_count_of_events_can_bring_there_is_summed_as_ever(tmp_path: Path) -> None:
    kinds = {"decimal(12,2)": 0, "decimal(28,2)": 0, "long": 0, "decimal(29,2)": 1, "decimal(38,2)": 1}
    assert {kind: len(large_sums(of_amounts(tmp_path, kind))) for kind in kinds} == kinds


def test_only_cells_of_such_sums_become_stale_by_an_upgrade(tmp_path: Path) -> None:
    # The type of the attribute decides nothing but whether its sum can be too large.
    before = {SESSION_FRAGMENTS: "0c4dae7a8ad88382", SESSIONS: "08af1f9d6dbf0db7"}
    small, large = (of_amounts(tmp_path, kind) for kind in ("decimal(28,2)", "decimal(38,2)"))
    assert {table: fingerprint(small, table) for table in before} == before
    assert not {fingerprint(large, table) for table in before} & {*before.values()}
