"""Every boundary of the rules by name, on literal rows: no table, no ledger, only the rules.

Each goes through both of their forms: the kernels that build the tables, and the SQL that `verify` checks them with.
All cases go through together, each with entities and event ids of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, strategies as st
from pyspark.sql import DataFrame, SparkSession

from dedup_platform.rules import (
    deduplicated as deduplicated_kernel,
    fragments as fragments_kernel,
    sessions as sessions_kernel,
)
from dedup_platform.rules.links import key_columns, linked_partitions
from dedup_platform.schemas import spark_schema
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, RAW_EVENTS, column_names, columns
from dedup_platform.testing import Record, lay_out, make_stream, record, utc
from dedup_platform.verification.deduplicated import deduplicate
from dedup_platform.verification.fragments import fragment
from dedup_platform.verification.sessions import stitch

MICROSECOND = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
NOON = utc("2024-03-01T12:00:00")
MIDNIGHT = utc("2024-03-02T00:00:00")


def at(entity: str | None, event: str, time: Any, arrival: Any = NOON, **attributes: object) -> Record:
    return record(entity, event, time, arrival, **attributes)


DUPLICATES: dict[str, tuple[list[Record], dict[int, tuple[int, str]]]] = {
    "first arrival wins, whatever the event time": (
        [at("u", "a", NOON, NOON + MICROSECOND), at("u", "a", NOON + HOUR, NOON)],
        {0: (1, "conflict")},
    ),
    "equal arrivals are ordered by their coordinates": ([at("u", "a", NOON), at("u", "a", NOON)], {1: (0, "copy")}),
    "at exactly the window it is a duplicate": (
        [at("u", "a", NOON), at("u", "a", NOON + 24 * HOUR, NOON + MICROSECOND)],
        {1: (0, "conflict")},
    ),
    "a microsecond beyond the window it is another event": (
        [at("u", "a", NOON), at("u", "a", NOON + 24 * HOUR + MICROSECOND, NOON + MICROSECOND)],
        {},
    ),
    "the winner may lie before midnight": (
        [at("u", "a", MIDNIGHT - MICROSECOND), at("u", "a", MIDNIGHT, NOON + MICROSECOND)],
        {1: (0, "conflict")},
    ),
    "the winner may lie after midnight": (
        [at("u", "a", MIDNIGHT - MICROSECOND, NOON + MICROSECOND), at("u", "a", MIDNIGHT)],
        {0: (1, "conflict")},
    ),
    "a chain longer than the window keeps only what nothing beats": (
        [at("u", "a", NOON + n * 20 * HOUR, NOON + n * MICROSECOND) for n in range(4)],
        {1: (0, "conflict"), 2: (1, "conflict"), 3: (2, "conflict")},
    ),
    "the winner is the earliest arrival within the window, not the nearest": (
        [
            at("u", "a", NOON, NOON + MICROSECOND),
            at("u", "a", NOON + 23 * HOUR, NOON),
            at("u", "a", NOON + timedelta(minutes=1), NOON + 2 * MICROSECOND),
        ],
        {0: (1, "conflict"), 2: (1, "conflict")},
    ),
    "a missing entity is compared as if it were a value": (
        [at(None, "a", NOON), at(None, "a", NOON), at("u", "a", NOON)],
        {1: (0, "copy")},
    ),
    "another entity or event id is another key": (
        [at("u", "a", NOON), at("v", "a", NOON), at("u", "b", NOON)],
        {},
    ),
    "the same attributes are a copy": ([at("u", "a", NOON, page="/"), at("u", "a", NOON, page="/")], {1: (0, "copy")}),
    "another attribute is a conflict": (
        [at("u", "a", NOON, page="/"), at("u", "a", NOON, page="/cart")],
        {1: (0, "conflict")},
    ),
    "an attribute against none is a conflict": (
        [at("u", "a", NOON, page="/"), at("u", "a", NOON)],
        {1: (0, "conflict")},
    ),
    "decimals are compared by value": (
        [at("u", "a", NOON, amount=Decimal("1.10")), at("u", "a", NOON, amount=Decimal("1.1"))],
        {1: (0, "copy")},
    ),
}

HALF_HOUR = timedelta(minutes=30)
NIGHT = [at("u", "a", MIDNIGHT - timedelta(minutes=5)), at("u", "b", MIDNIGHT), at("u", "c", MIDNIGHT + MICROSECOND)]
SESSIONS: dict[str, tuple[list[Record], list[int]]] = {
    f"{name} starting {at_what}": ([at("u", "a", first), at("u", "b", first + gap)], counts)
    for at_what, first in [
        ("at noon", NOON),
        ("a timeout before midnight", MIDNIGHT - HALF_HOUR),
        ("just before midnight", MIDNIGHT - MICROSECOND),
    ]
    for name, gap, counts in [
        ("a gap within the timeout stays together", HALF_HOUR - MICROSECOND, [2]),
        ("a gap of exactly the timeout stays together", HALF_HOUR, [2]),
        ("a gap a microsecond longer splits", HALF_HOUR + MICROSECOND, [1, 1]),
    ]
} | {
    "midnight does not cut a session": (NIGHT, [3]),
    "a late event bridges two sessions": (
        [at("u", "a", NOON), at("u", "b", NOON + HOUR), at("u", "c", NOON + HALF_HOUR, MIDNIGHT)],
        [3],
    ),
    "events without an entity are in no session": ([at(None, "a", NOON)], []),
    "events of one moment are one session": ([at("u", "a", NOON), at("u", "b", NOON)], [2]),
}


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return make_stream(tmp_path_factory.mktemp("stages"), window="1d", timeout="30m")


def apart(case: str, records: Iterable[Record]) -> list[Record]:
    """The records of a case with keys of their own, as lines of a file of its name."""
    return [
        replace(each, entity_id=each.entity_id and f"{case}/{each.entity_id}", event_id=f"{case}/{each.event_id}")
        for each in lay_out(records, case)
    ]


def raw(spark: SparkSession, stream: Stream, records: Iterable[Record]) -> DataFrame:
    schema = spark_schema(columns(stream, RAW_EVENTS))
    rows = [vars(each) | dict(each.attributes) for each in records]
    return spark.createDataFrame([[row.get(name) for name in schema.names] for row in rows], schema)


Rows = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["kernels", "sql"])
def form(request: pytest.FixtureRequest) -> str:
    """In which form the rules are asked."""
    return str(request.param)


def by_partition(rows: DataFrame, names: Iterable[str], stream: Stream) -> dict[int, pl.DataFrame]:
    """Rows as the kernels are given them: as if all entities were in one bucket."""
    frame = pl.DataFrame(rows.select(*names).toArrow())
    ordinals = pl.Series([stream.partitions.ordinal(time) for time in frame["event_time"]])
    return {ordinal: frame.filter(ordinals == ordinal) for ordinal in ordinals.unique()}


def deduplicated(form: str, spark: SparkSession, stream: Stream, records: Iterable[Record]) -> tuple[Rows, Rows]:
    rows = raw(spark, stream, records)
    if form == "sql":
        result = deduplicate(rows, stream)
        return result.events.toArrow().to_pylist(), result.duplicates.toArrow().to_pylist()
    cells = by_partition(rows, column_names(stream, DEDUPLICATED_EVENTS), stream)
    verdicts = deduplicated_kernel.deduplicate(cells, {}, stream).values()
    return (
        [row for each in verdicts for row in each.events.to_dicts()],
        [row for each in verdicts for row in each.duplicates.to_dicts()],
    )


@pytest.fixture(scope="module")
def verdicts(form: str, spark: SparkSession, stream: Stream) -> dict[str, dict[int, tuple[int, str] | None]]:
    """Case -> offset of each record -> None if it is kept, else its winner's offset and its kind."""
    records = [each for case in DUPLICATES for each in apart(case, DUPLICATES[case][0])]
    events, duplicates = deduplicated(form, spark, stream, records)
    found: dict[str, dict[int, tuple[int, str] | None]] = {case: {} for case in DUPLICATES}
    for row in duplicates:
        assert row["winner_source"] == row["source"]
        found[row["source"]][row["source_offset"]] = (row["winner_source_offset"], row["kind"])
    for row in events:
        assert row["source_offset"] not in found[row["source"]], "a record is kept or beaten, not both"
        found[row["source"]][row["source_offset"]] = None
    return found


@pytest.mark.parametrize("case", DUPLICATES)
def test_deduplication(case: str, verdicts: Mapping[str, Mapping[int, tuple[int, str] | None]]) -> None:
    records, expected = DUPLICATES[case]
    assert dict(verdicts[case]) == dict.fromkeys(range(len(records))) | expected


def test_partitions_are_linked_by_a_key_within_the_window_only(stream: Stream) -> None:
    records = [
        at("u", "a", MIDNIGHT - MICROSECOND),
        at("u", "a", MIDNIGHT),
        at("v", "a", MIDNIGHT - 12 * HOUR - MICROSECOND),
        at("v", "a", MIDNIGHT + 12 * HOUR),
        at("w", "a", MIDNIGHT - MICROSECOND),
        at("w", "b", MIDNIGHT),
    ]
    rows = pl.DataFrame([{name: getattr(each, name) for name in key_columns(stream)} for each in records])
    day = stream.partitions.ordinal(MIDNIGHT)
    assert linked_partitions(rows, stream) == {(day - 1, day)}
    assert linked_partitions(rows.filter(pl.col("entity_id") != "u"), stream) == set()


def fragments_of(rows: DataFrame, stream: Stream) -> pl.DataFrame:
    cells = by_partition(rows, fragments_kernel.columns_read(stream), stream).values()
    return pl.concat(fragments_kernel.fragment(events, stream) for events in cells)


def stitched(form: str, spark: SparkSession, stream: Stream, records: Iterable[Record]) -> Rows:
    rows = raw(spark, stream, records)
    if form == "sql":
        found = stitch(fragment(rows, stream), stream).toArrow().to_pylist()
    else:
        found = sessions_kernel.stitch(fragments_of(rows, stream), stream).to_dicts()
    return sorted(found, key=lambda row: (row["entity_id"], row["started_at"]))


@pytest.fixture(scope="module")
def sessions(form: str, spark: SparkSession, stream: Stream) -> dict[str, list[int]]:
    """Case -> event counts of its sessions in order of time."""
    found: dict[str, list[int]] = {case: [] for case in SESSIONS}
    for row in stitched(form, spark, stream, [each for case in SESSIONS for each in apart(case, SESSIONS[case][0])]):
        found[row["entity_id"].split("/")[0]].append(row["event_count"])
    return found


@pytest.mark.parametrize("case", SESSIONS)
def test_sessions(case: str, sessions: Mapping[str, list[int]]) -> None:
    assert sessions[case] == SESSIONS[case][1]


def test_midnight_cuts_fragments(spark: SparkSession, stream: Stream) -> None:
    rows = raw(spark, stream, lay_out(NIGHT))
    assert fragment(rows, stream).count() == fragments_of(rows, stream).height == 2


def test_a_timeout_longer_than_a_partition_steps_over_an_empty_one(
    form: str, tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    hourly = make_stream(tmp_path_factory.mktemp("hourly"), granularity="hour", timeout="2h", window="0s")
    events = [at("u", "a", NOON), at("u", "b", NOON + 2 * HOUR), at("u", "c", NOON + 4 * HOUR)]
    (session,) = stitched(form, spark, hourly, lay_out(events))
    assert (session["started_at"], session["ended_at"]) == (NOON, NOON + 4 * HOUR)


def test_the_id_is_that_of_the_first_arrived_event_however_and_with_whatever_it_came(
    form: str, spark: SparkSession, stream: Stream
) -> None:
    first_arrived = at("u", "b", NOON, NOON)
    earlier_event = at("u", "a", NOON - timedelta(minutes=10), NOON + HOUR)
    (alone,) = stitched(form, spark, stream, lay_out([first_arrived]))
    (both,) = stitched(form, spark, stream, lay_out([earlier_event, first_arrived], "another file"))
    assert both["session_id"] == alone["session_id"]
    assert (both["started_at"], both["first_arrived_at"]) == (earlier_event.event_time, NOON)


def test_ids_tell_values_apart_that_run_together_as_text(form: str, spark: SparkSession, stream: Stream) -> None:
    one, other = stitched(form, spark, stream, lay_out([at("ab", "c", NOON), at("a", "bc", NOON)]))
    assert one["session_id"] != other["session_id"]


def test_aggregates_are_exact_and_ordered_by_event_time(form: str, spark: SparkSession, stream: Stream) -> None:
    amounts = [Decimal("0.10"), Decimal("0.20"), Decimal("0.30")]
    pages = ["/last", "/middle", None]
    times = [MIDNIGHT + timedelta(minutes=1), MIDNIGHT, MIDNIGHT - timedelta(minutes=1)]
    records = [
        at("u", str(n), time, amount=amount, page=page, quantity=2**62)
        for n, (time, amount, page) in enumerate(zip(times, amounts, pages, strict=True))
    ]
    (row,) = stitched(form, spark, stream, lay_out(records))
    assert row["revenue"] == Decimal("0.60")
    assert row["pages"] == 2
    assert row["total_quantity"] == 3 * 2**62
    assert (row["smallest"], row["largest"]) == (Decimal("0.10"), 2**62)
    assert (row["landing_page"], row["exit_page"]) == (None, "/last")


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=25).map(sorted),
    st.integers(0, 40),
    st.randoms(use_true_random=False),
)
def test_the_first_arrival_within_the_window_is_found_in_one_pass(
    times: list[int], window: int, random: Random
) -> None:
    ranks = random.sample(range(len(times)), len(times))
    expected = [
        min(rank for other, rank in zip(times, ranks, strict=True) if abs(other - time) <= window) for time in times
    ]
    assert deduplicated_kernel.first_within(times, ranks, window) == expected


def test_both_forms_agree_on_every_aggregate_and_id(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> None:
    """Nulls, NaN, negative numbers, ties and ids of every kind of text, over two days."""
    attributes = {
        "page": "string",
        "amount": "decimal(12,7)",
        "load": "double",
        "flag": "boolean",
        "day": "date",
        "number": "long",
    }
    functions = ("count", "min", "max", "first", "last")
    aggregates = {f"{function}_{name}": (function, name) for name in attributes for function in functions}
    stream = make_stream(
        tmp_path_factory.mktemp("aggregates"),
        attributes=attributes,
        aggregates=aggregates | {"sum_amount": ("sum", "amount"), "sum_number": ("sum", "number")},
        key=["entity_id", "event_id", "amount", "flag", "day", "number"],
    )
    random = Random(7)
    choices: dict[str, list[object]] = {
        "page": [None, "", "/", "Zürich", "\U0001f600"],
        "amount": [None, Decimal("0.0000001"), Decimal("-3.5"), Decimal("100")],
        "load": [None, float("nan"), 1e300, -0.0, 2.5],
        "flag": [None, True, False],
        "day": [None, date(2024, 3, 1)],
        "number": [None, -7, 2**62],
    }
    records = [
        at(
            f"u{random.randrange(6)}",
            random.choice(["a", "naïve", "-", "1:x"]) + str(number),
            MIDNIGHT + timedelta(minutes=random.randrange(-240, 240)),
            NOON + timedelta(seconds=random.randrange(3)),
            **{name: random.choice(values) for name, values in choices.items()},
        )
        for number in range(200)
    ]
    one, other = (stitched(form, spark, stream, lay_out(records)) for form in ("kernels", "sql"))
    assert len(one) == len(other)
    # Compared as texts: NaN is not equal to itself.
    differing = {
        (name, str(row[name]), str(value))
        for row, expected in zip(one, other, strict=True)
        for name, value in expected.items()
        if str(row[name]) != str(value)
    }
    assert differing == set()
