"""The rules over columns as properties, without Spark or tables: each kernel against the plainest form of its rule."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise, product
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dedup_platform.rules.deduplicated import deduplicate
from dedup_platform.rules.fragments import columns_read, fragment
from dedup_platform.rules.links import Pair, key_columns, linked_partitions, spans_of_chains, spans_of_sessions
from dedup_platform.rules.sessions import near_edges, stitch, stitch_slices
from dedup_platform.stream import Stream
from dedup_platform.tables import ARRIVAL_ORDER, COORDINATES, DEDUPLICATED_EVENTS, column_names
from dedup_platform.testing import Record, lay_out, make_stream, record, utc

JUST = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
WINDOW = timedelta(hours=2)
TIMEOUTS = ("20m", "90m")
"""Shorter than a partition, and longer."""
MIDNIGHT = utc("2024-03-02T00:00")
ODDS = (-JUST, timedelta(), JUST)
STEP = HOUR / 6
GAPS = [JUST, STEP, HOUR, *(timeout + odd for timeout in (2 * STEP, 9 * STEP) for odd in ODDS)]
"""What makes a distance that is exactly the window or the timeout a bit shorter or longer."""

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
MOMENT = pl.Datetime("us", "UTC")
TYPES: dict[str, pl.DataType] = {
    "event_time": MOMENT,
    "arrival_time": MOMENT,
    "source_partition": pl.Int32(),
    "source_offset": pl.Int64(),
    "source_index": pl.Int32(),
    "quantity": pl.Int64(),
    "amount": pl.Decimal(18, 2),
}
times = st.builds(
    lambda hours, half, odd: MIDNIGHT + hours * HOUR + half * HOUR / 2 + odd,
    st.integers(-4, 8),
    st.integers(0, 1),
    st.sampled_from(ODDS),
)
"""Moments that are often exactly a window or a timeout apart, or a microsecond more or less."""


@pytest.fixture(scope="module", params=TIMEOUTS)
def stream(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Stream:
    """By hours, which the window is longer than."""
    folder = tmp_path_factory.mktemp("kernels")
    return make_stream(folder, granularity="hour", window="2h", timeout=request.param)


def frame(records: Sequence[Record], columns: Iterable[str]) -> pl.DataFrame:
    """Records as the kernels get them."""
    names = list(columns)
    rows = [{name: getattr(each, name, each.attributes.get(name)) for name in names} for each in records]
    return pl.DataFrame(rows, schema={name: TYPES.get(name, pl.String()) for name in names})


def partition_of(stream: Stream, moment: datetime) -> int:
    return stream.partitions.ordinal(moment)


def by_partition(stream: Stream, records: Iterable[Record]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for each in records:
        found.setdefault(partition_of(stream, each.event_time), []).append(each)
    return found


def closed(pairs: Iterable[Pair]) -> set[frozenset[int]]:
    """The groups of partitions that pairs hold together."""
    groups: list[set[int]] = []
    for pair in pairs:
        joined = set(pair).union(*(group for group in groups if group & set(pair)))
        groups = [*(group for group in groups if not group & joined), joined]
    return set(map(frozenset, groups))


# Which partitions are linked


@quick
@given(sent=st.lists(st.tuples(st.sampled_from("ab"), times), max_size=8))
def test_partitions_are_linked_that_hold_records_of_a_key_within_the_window(
    stream: Stream, sent: list[tuple[str, datetime]]
) -> None:
    records = lay_out([record("u", event, time, MIDNIGHT) for event, time in sent], "links.json")
    near = [
        (partition_of(stream, one.event_time), partition_of(stream, other.event_time))
        for one, other in product(records, repeat=2)
        if one.event_id == other.event_id and timedelta() <= other.event_time - one.event_time <= WINDOW
    ]
    expected = closed(pair for pair in near if pair[0] < pair[1])
    assert closed(linked_partitions(frame(records, key_columns(stream)), stream)) == expected


@pytest.mark.parametrize(("odd", "pairs"), [(-JUST, 1), (timedelta(), 1), (JUST, 0)], ids=["less", "exactly", "more"])
def test_records_that_lie_the_window_apart_are_linked(stream: Stream, odd: timedelta, pairs: int) -> None:
    records = lay_out([record("u", "a", MIDNIGHT, MIDNIGHT), record("u", "a", MIDNIGHT + WINDOW + odd, MIDNIGHT)], "l")
    assert len(linked_partitions(frame(records, key_columns(stream)), stream)) == pairs


# Who wins


def test_records_of_one_message_are_ordered_by_their_place_in_it(stream: Stream) -> None:
    """Nothing else tells them apart: one arrival, one source, one partition, one offset."""
    rows = frame(
        lay_out([record("u", "a", MIDNIGHT, MIDNIGHT) for _ in range(3)], "one.json"),
        column_names(stream, DEDUPLICATED_EVENTS),
    )
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        indexes = pl.Series("source_index", order, pl.Int32)
        message = rows.with_columns(pl.lit(7, pl.Int64).alias("source_offset"), indexes)
        verdicts = deduplicate({0: message}, {}, stream)[0]
        assert verdicts.events["source_index"].to_list() == [0]
        assert sorted(verdicts.duplicates["source_index"].to_list()) == [1, 2]
        assert verdicts.duplicates["winner_source_index"].to_list() == [0, 0]


@quick
@given(
    sent=st.lists(
        st.tuples(st.sampled_from(["a", "b"]), times, st.integers(0, 3), st.sampled_from(["u", None])), max_size=8
    ),
    judged_from=st.integers(-4, 8),
)
def test_a_record_is_beaten_by_the_first_of_its_key_within_the_window(
    stream: Stream, sent: list[tuple[str, datetime, int, str | None]], judged_from: int
) -> None:
    """Partitions before a moment are only looked at; those from it on are judged."""
    records = lay_out(
        [record(entity, event, time, MIDNIGHT + late * HOUR) for event, time, late, entity in sent], "many.json"
    )
    order = {each.coordinate: (each.arrival_time, each.coordinate) for each in records}
    first = partition_of(stream, MIDNIGHT + judged_from * HOUR)
    cells = {
        partition: frame(inside, column_names(stream, DEDUPLICATED_EVENTS))
        for partition, inside in by_partition(stream, records).items()
    }
    judged = {partition: rows for partition, rows in cells.items() if partition >= first}
    around = {partition: rows for partition, rows in cells.items() if partition < first}
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    for verdicts in deduplicate(judged, around, stream).values():
        for row in verdicts.events.to_dicts():
            found[place(row)] = place(row)
        for row in verdicts.duplicates.to_dicts():
            found[place(row)] = place(row, "winner_")
    expected = {
        each.coordinate: min(
            (
                other.coordinate
                for other in records
                if (other.entity_id, other.event_id) == (each.entity_id, each.event_id)
                and abs(other.event_time - each.event_time) <= WINDOW
            ),
            key=order.__getitem__,
        )
        for each in records
        if partition_of(stream, each.event_time) >= first
    }
    assert found == expected


def place(row: dict[str, object], prefix: str = "") -> tuple[object, ...]:
    return tuple(row[f"{prefix}{name}"] for name in COORDINATES)


# Sessions


@st.composite
def entities(draw: st.DrawFn) -> list[Record]:
    """Events of two entities whose gaps are mostly a timeout, or a microsecond more or less."""
    records = []
    for entity in ("u", "v"):
        moment = MIDNIGHT - draw(st.integers(0, 12)) * STEP + draw(st.sampled_from(ODDS))
        gaps = draw(st.lists(st.sampled_from(GAPS), max_size=7))
        for number, gap in enumerate([timedelta(), *gaps]):
            moment += gap
            late = draw(st.integers(0, 3))
            records.append(record(entity, f"{entity}{number}", moment, moment + late * HOUR, page="/", quantity=1))
    return lay_out(records, "sessions.json")


def fragments_of(stream: Stream, records: Sequence[Record]) -> pl.DataFrame:
    return pl.concat(
        fragment(frame(inside, columns_read(stream)), stream) for inside in by_partition(stream, records).values()
    )


def plain_sessions(stream: Stream, records: Iterable[Record]) -> list[list[Record]]:
    """Rule 4, as it is said: a gap longer than the timeout splits."""
    sessions: list[list[Record]] = []
    for each in sorted(records, key=lambda each: (each.entity_id or "", each.event_time)):
        last = sessions[-1][-1] if sessions else None
        if last and last.entity_id == each.entity_id and each.event_time - last.event_time <= stream.session_timeout:
            sessions[-1].append(each)
        else:
            sessions.append([each])
    return sessions


def in_order(sessions: pl.DataFrame) -> list[dict[str, object]]:
    return sessions.sort("entity_id", "started_at").to_dicts()


@quick
@given(records=entities())
def test_stitched_fragments_are_the_sessions_of_the_events(stream: Stream, records: list[Record]) -> None:
    found = in_order(stitch(fragments_of(stream, records), stream))
    expected = plain_sessions(stream, records)
    assert [(row["started_at"], row["ended_at"], row["event_count"]) for row in found] == [
        (session[0].event_time, session[-1].event_time, len(session)) for session in expected
    ]
    first = [min(session, key=lambda each: each.arrival_order) for session in expected]
    assert [(row["first_arrived_at"], row["first_arrived_event_time"]) for row in found] == [
        (each.arrival_time, each.event_time) for each in first
    ]


@quick
@given(records=entities(), data=st.data())
def test_sessions_know_of_their_first_event_what_its_fragment_does(
    stream: Stream, records: list[Record], data: st.DataObject
) -> None:
    """Some fragments are of a version that did not know when their first-arrived event happened."""
    fragments = fragments_of(stream, records)
    drawn = data.draw(st.lists(st.booleans(), min_size=len(fragments), max_size=len(fragments)))
    is_old = pl.Series(drawn, dtype=pl.Boolean)
    first = pl.col("first_arrived").struct
    forgotten = first.with_fields(event_time=pl.when(~is_old).then(first.field("event_time")))
    mixed = fragments.with_columns(first_arrived=forgotten)
    whole, found = (stitch(each, stream).sort("session_id") for each in (fragments, mixed))
    assert found.drop("first_arrived_event_time").equals(whole.drop("first_arrived_event_time"))
    ids = fragments["first_arrived"].struct.field("session_id")
    old = {session for session, forgets in zip(ids, is_old, strict=True) if forgets}
    for row, expected in zip(found.to_dicts(), whole.to_dicts(), strict=True):
        known = None if row["session_id"] in old else expected["first_arrived_event_time"]
        assert row["first_arrived_event_time"] == known


@quick
@given(records=entities(), cuts=st.lists(st.integers(0, 15), max_size=4))
def test_sessions_of_slices_are_those_of_all_at_once(stream: Stream, records: list[Record], cuts: list[int]) -> None:
    """However fragments are cut into slices of time, and though only chains that may go on are kept."""
    whole = fragments_of(stream, records).sort("first_event_time", "entity_id")
    begins = whole["first_event_time"].to_list()
    moments = sorted({begins[cut % len(begins)] for cut in cuts})
    ends: list[datetime | None] = [*moments, None]
    slices = []
    for begin, end in pairwise([None, *ends]):
        later = pl.lit(value=True) if begin is None else pl.col("first_event_time") >= begin
        earlier = pl.lit(value=True) if end is None else pl.col("first_event_time") < end
        slices.append((whole.filter(later & earlier), end))
    found = list(stitch_slices(slices, stream))
    assert in_order(pl.concat(each.sessions for each in found)) == in_order(stitch(whole, stream))
    assert found[-1].unfinished.is_empty()
    for (_, end), each in zip(slices, found, strict=True):
        # What is kept may go on, and nothing else: all of a long stream must not come together in memory.
        assert end is None or all(
            last + stream.session_timeout >= end for last in last_of_chains(each.unfinished, stream)
        )


def last_of_chains(fragments: pl.DataFrame, stream: Stream) -> list[datetime]:
    return stitch(fragments, stream)["ended_at"].to_list() if fragments.height else []


@quick
@given(records=entities())
def test_spans_are_those_of_the_sessions_that_reach_over_more_than_one_partition(
    stream: Stream, records: list[Record]
) -> None:
    fragments = fragments_of(stream, records)
    ends = [(session[0].event_time, session[-1].event_time) for session in plain_sessions(stream, records)]
    pairs = {(partition_of(stream, first), partition_of(stream, last)) for first, last in ends}
    expected = {pair for pair in pairs if pair[0] < pair[1]}
    assert spans_of_sessions(stitch(fragments, stream), stream) == expected
    assert spans_of_chains(fragments, stream) == expected
    # What keeps away from the edges of its partition belongs to no session of more than one.
    assert spans_of_chains(near_edges(fragments, stream), stream) == expected


@quick
@given(records=entities())
def test_the_first_arrived_event_of_a_fragment_decides_its_id_whatever_the_order_of_rows(
    stream: Stream, records: list[Record]
) -> None:
    [one, other] = (
        fragment(frame(rows, columns_read(stream)), stream).sort("entity_id", "first_event_time")
        for rows in (records, records[::-1])
    )
    assert one.equals(other)
    for row, session in zip(one.to_dicts(), plain_sessions(stream, records), strict=True):
        first = min(session, key=lambda each: (each.arrival_time, each.coordinate))
        told = row["first_arrived"]
        assert tuple(told[name] for name in ARRIVAL_ORDER) == (first.arrival_time, *first.coordinate)
        assert told["event_time"] == first.event_time


def test_ids_do_not_depend_on_where_an_event_lies(stream: Stream, tmp_path: Path) -> None:
    """The same event from another file and offset is the first of the same session."""
    event = record("u", "a", MIDNIGHT, MIDNIGHT)
    elsewhere = make_stream(tmp_path, "elsewhere", granularity="hour", window="2h", timeout="20m")
    ids = {
        fragments_of(each, lay_out([*before, event], name))["first_arrived"].struct.field("session_id").to_list()[-1]
        for each, name, before in (
            (stream, "one.json", []),
            (elsewhere, "other.json", [record("a", "first", MIDNIGHT, MIDNIGHT)]),
        )
    }
    assert len(ids) == 1
