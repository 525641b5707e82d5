"""The oracle at every boundary, on published cases, and against a second formulation of each rule."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import pytest

from dedup_platform.testing import (
    Expected,
    IdentityChanges,
    Record,
    Rules,
    Session,
    identity_changes,
    lay_out,
    oracle,
    record,
    utc,
)

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
NOON = utc("2024-03-01T12:00")
MIDNIGHT = utc("2024-03-02")
RULES = Rules(window=DAY, timeout=30 * MINUTE)


def offsets(records: Iterable[Record]) -> list[int]:
    return [each.source_offset for each in records]


def duplicates(expected: Expected) -> dict[int, tuple[int, str]]:
    """Loser's offset -> winner's offset and kind."""
    return {loser[2]: (winner[2], kind) for loser, (winner, kind) in expected.duplicates.items()}


def spans(sessions: Iterable[Session]) -> list[tuple[datetime, datetime, int]]:
    return sorted((each.started_at, each.ended_at, len(each.events)) for each in sessions)


def twice(distance: timedelta, rules: Rules = RULES) -> Expected:
    """One key at noon and a distance later, arriving in this order."""
    return oracle(
        lay_out([record("a", "1", NOON), record("a", "1", NOON + distance, NOON + abs(distance) + HOUR)]), rules
    )


# Rule 3


def test_exact_copy_loses_to_the_first_arrival() -> None:
    expected = twice(timedelta())
    assert offsets(expected.deduplicated) == [0]
    assert duplicates(expected) == {1: (0, "copy")}


def test_duplicate_at_exactly_the_window() -> None:
    assert duplicates(twice(DAY)) == {1: (0, "conflict")}


def test_no_duplicate_a_microsecond_beyond_the_window() -> None:
    assert duplicates(twice(DAY + TICK)) == {}


def test_the_window_reaches_backwards_too() -> None:
    assert duplicates(twice(-DAY)) == {1: (0, "conflict")}
    assert duplicates(twice(-DAY - TICK)) == {}


def test_a_window_of_zero_beats_equal_times_only() -> None:
    rules = replace(RULES, window=timedelta())
    assert duplicates(twice(timedelta(), rules)) == {1: (0, "copy")}
    assert duplicates(twice(TICK, rules)) == {}


def test_the_earliest_arrival_wins_whatever_the_event_times() -> None:
    records = lay_out(
        [
            record("a", "1", NOON, NOON + 2 * HOUR),
            record("a", "1", NOON + HOUR, NOON + HOUR),
            record("a", "1", NOON - HOUR, NOON + 3 * HOUR),
        ]
    )
    assert duplicates(oracle(records, RULES)) == {0: (1, "conflict"), 2: (1, "conflict")}


def test_the_winner_may_itself_be_beaten_in_a_chain_longer_than_the_window() -> None:
    chain = lay_out([record("a", "1", NOON + n * DAY) for n in range(4)])
    expected = oracle(chain, RULES)
    assert duplicates(expected) == {n: (n - 1, "conflict") for n in (1, 2, 3)}
    assert offsets(expected.deduplicated) == [0]


def test_the_winner_is_the_earliest_arrival_within_the_window_only() -> None:
    records = lay_out([record("a", "1", NOON + hours * HOUR, NOON + n * TICK) for n, hours in enumerate((0, 20, 30))])
    assert duplicates(oracle(records, RULES)) == {1: (0, "conflict"), 2: (1, "conflict")}


def test_equal_arrival_times_are_ordered_by_coordinates() -> None:
    same = record("a", "1", NOON)
    for first, second in [
        (replace(same, source="a"), replace(same, source="b")),
        (replace(same, source="B"), replace(same, source="a")),
        (replace(same, source_partition=0, source_offset=9), replace(same, source_partition=1, source_offset=0)),
        (replace(same, source_offset=2), replace(same, source_offset=10)),
        (replace(same, source_index=0), replace(same, source_index=1)),
    ]:
        assert oracle([second, first], RULES).deduplicated == [first]


def test_arrival_time_comes_before_coordinates() -> None:
    records = [record("a", "1", NOON, NOON + TICK), replace(record("a", "1", NOON, NOON), source_offset=1)]
    assert duplicates(oracle(records, RULES)) == {0: (1, "copy")}


def test_other_entity_or_other_id_is_another_key() -> None:
    records = lay_out([record("a", "1", NOON), record("b", "1", NOON), record("a", "2", NOON)])
    assert duplicates(oracle(records, RULES)) == {}


def test_rows_without_an_entity_are_deduplicated_among_themselves() -> None:
    records = lay_out([record(None, "1", NOON), record(None, "1", NOON), record("None", "1", NOON)])
    expected = oracle(records, RULES)
    assert duplicates(expected) == {1: (0, "copy")}
    assert [each.entity_id for each in expected.sessions] == ["None"]


def test_a_key_with_an_attribute_is_compared_null_safe() -> None:
    rules = replace(RULES, key=("entity_id", "order"))
    records = lay_out(
        [record("a", "1", NOON, order=None), record("a", "2", NOON), record("a", "3", NOON, order=5)],
    )
    assert duplicates(oracle(records, rules)) == {1: (0, "conflict")}


@pytest.mark.parametrize(
    "other",
    [
        record("a", "1", NOON + TICK, NOON + HOUR, page="/"),
        record("a", "1", NOON, NOON + HOUR, page="/cart"),
        record("a", "1", NOON, NOON + HOUR),
    ],
    ids=["event time", "attribute", "absent attribute"],
)
def test_a_difference_in_any_typed_column_is_a_conflict(other: Record) -> None:
    expected = oracle(lay_out([record("a", "1", NOON, page="/"), other]), RULES)
    assert duplicates(expected) == {1: (0, "conflict")}


def test_an_absent_attribute_equals_null() -> None:
    expected = oracle(lay_out([record("a", "1", NOON, page=None), record("a", "1", NOON)]), RULES)
    assert duplicates(expected) == {1: (0, "copy")}


def test_records_with_the_same_coordinates_are_refused() -> None:
    with pytest.raises(ValueError, match="same coordinates"):
        oracle([record("a", "1", NOON), record("a", "2", NOON)], RULES)


# Rule 4


def test_gap_of_exactly_the_timeout_stays_together() -> None:
    expected = oracle(lay_out([record("a", "1", NOON), record("a", "2", NOON + 30 * MINUTE)]), RULES)
    assert spans(expected.sessions) == [(NOON, NOON + 30 * MINUTE, 2)]


def test_gap_a_microsecond_longer_than_the_timeout_splits() -> None:
    end = NOON + 30 * MINUTE + TICK
    expected = oracle(lay_out([record("a", "1", NOON), record("a", "2", end)]), RULES)
    assert spans(expected.sessions) == [(NOON, NOON, 1), (end, end, 1)]


def test_late_event_extends_a_session_backwards() -> None:
    records = lay_out([record("a", "1", NOON), record("a", "2", NOON - 20 * MINUTE, NOON + DAY)])
    assert spans(oracle(records, RULES).sessions) == [(NOON - 20 * MINUTE, NOON, 2)]


def test_late_event_bridges_two_sessions() -> None:
    two = lay_out([record("a", "1", NOON), record("a", "2", NOON + HOUR)])
    late = replace(record("a", "3", NOON + 30 * MINUTE, NOON + DAY), source_offset=2)
    assert len(oracle(two, RULES).sessions) == 2
    assert spans(oracle([*two, late], RULES).sessions) == [(NOON, NOON + HOUR, 3)]


def test_duplicates_do_not_extend_sessions() -> None:
    records = lay_out([record("a", "1", NOON), record("a", "1", NOON + 20 * MINUTE)])
    assert spans(oracle(records, RULES).sessions) == [(NOON, NOON, 1)]


def test_sessions_of_entities_do_not_mix() -> None:
    records = lay_out([record("a", "1", NOON), record("b", "2", NOON + MINUTE), record("a", "3", NOON + 2 * MINUTE)])
    assert [(each.entity_id, len(each.events)) for each in oracle(records, RULES).sessions] == [("a", 2), ("b", 1)]


def test_rows_without_an_entity_are_in_no_session() -> None:
    expected = oracle(lay_out([record(None, "1", NOON), record(None, "2", NOON)]), RULES)
    assert (len(expected.deduplicated), expected.sessions, expected.fragments) == (2, [], {19783: []})


# Fragments


def test_session_across_midnight_has_a_fragment_on_each_side() -> None:
    records = lay_out([record("a", "1", MIDNIGHT - TICK), record("a", "2", MIDNIGHT)])
    expected = oracle(records, RULES)
    assert spans(expected.sessions) == [(MIDNIGHT - TICK, MIDNIGHT, 2)]
    assert {day: spans(each) for day, each in expected.fragments.items()} == {
        19783: [(MIDNIGHT - TICK, MIDNIGHT - TICK, 1)],
        19784: [(MIDNIGHT, MIDNIGHT, 1)],
    }


def test_timeout_longer_than_a_partition_steps_over_an_empty_one() -> None:
    rules = replace(RULES, timeout=90 * MINUTE, partition=HOUR)
    records = lay_out([record("a", "1", NOON + 50 * MINUTE), record("a", "2", NOON + 140 * MINUTE)])
    expected = oracle(records, rules)
    assert [len(each.events) for each in expected.sessions] == [2]
    first = 19783 * 24 + 12
    assert sorted(expected.fragments) == [first, first + 2]


def test_partitions_before_1970_count_downwards() -> None:
    expected = oracle([record("a", "1", utc("1969-12-31T23:59:59.999999"))], RULES)
    assert list(expected.fragments) == [-1]


# Rule 5


def test_first_arrived_event_identifies_a_session_not_the_earliest() -> None:
    records = lay_out([record("a", "1", NOON, NOON + DAY), record("a", "2", NOON + MINUTE, NOON + HOUR)])
    (session,) = oracle(records, RULES).sessions
    assert session.first_arrived.event_id == "2"
    assert session.identity == ("a", NOON + HOUR, NOON + MINUTE, "a", "2")


def test_identity_knows_no_coordinates() -> None:
    event = record("a", "1", NOON)
    before = oracle([replace(event, source="b")], RULES)
    after = oracle([replace(event, source="b"), replace(event, source="a")], RULES)
    assert after.deduplicated != before.deduplicated
    assert identity_changes(before, after, RULES).kept == {before.sessions[0].identity}


def states(*records: Record) -> tuple[Expected, Expected]:
    """Without and with the last record."""
    rows = lay_out(records)
    return oracle(rows[:-1], RULES), oracle(rows, RULES)


def test_late_event_at_the_front_does_not_rename_a_session() -> None:
    before, after = states(record("a", "1", NOON), record("a", "2", NOON - MINUTE, NOON + DAY))
    changes = identity_changes(before, after, RULES)
    assert changes.kept == {each.identity for each in before.sessions}
    assert (changes.new, changes.retired) == (frozenset(), {})


@pytest.mark.parametrize("kept", [0, 1], ids=["earlier session arrived first", "later session arrived first"])
def test_a_merge_keeps_the_id_that_arrived_first(kept: int) -> None:
    arrivals = [NOON + HOUR, NOON + 2 * HOUR] if kept == 0 else [NOON + 2 * HOUR, NOON + HOUR]
    before, after = states(
        record("a", "1", NOON, arrivals[0]),
        record("a", "2", NOON + HOUR, arrivals[1]),
        record("a", "3", NOON + 30 * MINUTE, NOON + DAY),
    )
    first, second = (each.identity for each in before.sessions)
    winner, loser = (first, second) if kept == 0 else (second, first)
    changes = identity_changes(before, after, RULES)
    assert changes == IdentityChanges(kept=frozenset({winner}), new=frozenset(), retired={loser: winner})


def test_an_earlier_arrival_that_is_read_later_retires_an_id() -> None:
    before, after = states(record("a", "1", NOON, NOON + HOUR), record("a", "2", NOON, NOON))
    changes = identity_changes(before, after, RULES)
    assert changes.retired == {before.sessions[0].identity: after.sessions[0].identity}
    assert changes.new == {after.sessions[0].identity}


def test_an_id_whose_first_event_is_beaten_is_merged_into_none() -> None:
    before, after = states(record("a", "1", NOON, NOON + HOUR), record("a", "1", NOON - 2 * HOUR, NOON))
    assert identity_changes(before, after, RULES).retired == {before.sessions[0].identity: None}


def test_losing_the_bridge_splits_a_session_and_keeps_the_first_id() -> None:
    before, after = states(
        record("a", "1", NOON),
        record("a", "bridge", NOON + 30 * MINUTE, NOON + 2 * HOUR),
        record("a", "2", NOON + HOUR, NOON + 3 * HOUR),
        record("a", "bridge", NOON + 5 * HOUR, NOON + 90 * MINUTE),
    )
    changes = identity_changes(before, after, RULES)
    assert changes.kept == {before.sessions[0].identity}
    assert (len(changes.new), changes.retired) == (2, {})


# Aggregates


def aggregated(function: str, *values: object) -> object:
    rules = replace(RULES, aggregates={"result": (function, "value")})
    events = lay_out([record("a", str(n), NOON + n * TICK, value=value) for n, value in enumerate(values)])
    (session,) = oracle(events, rules).sessions
    return session.aggregates["result"]


def test_sum_of_decimals_is_exact() -> None:
    assert aggregated("sum", Decimal("0.1"), Decimal("0.2"), Decimal("0.3")) == Decimal("0.6")
    assert aggregated("sum", Decimal("1e30"), Decimal("1e-8")) == Decimal("1000000000000000000000000000000.00000001")
    assert aggregated("sum", 2, None, 3) == Decimal(5)


def test_nulls_count_for_first_and_last_only() -> None:
    values = (None, 3, 1, None)
    results = {each: aggregated(each, *values) for each in ("count", "sum", "min", "max", "first", "last")}
    assert results == {"count": 2, "sum": 4, "min": 1, "max": 3, "first": None, "last": None}


def test_aggregates_of_nothing_but_nulls() -> None:
    results = {each: aggregated(each, None) for each in ("count", "sum", "min", "max", "first", "last")}
    assert results == {"count": 0, "sum": None, "min": None, "max": None, "first": None, "last": None}


def test_first_and_last_break_ties_of_event_time_by_arrival() -> None:
    rules = replace(RULES, aggregates={"first": ("first", "page"), "last": ("last", "page")})
    events = [record("a", str(n), NOON, NOON + n * HOUR, page=n) for n in (2, 0, 1)]
    (session,) = oracle(lay_out(events), rules).sessions
    assert session.aggregates == {"first": 0, "last": 2}


def test_an_unknown_aggregate_is_refused() -> None:
    with pytest.raises(ValueError, match="'median'"):
        aggregated("median", 1)


# Published cases


def test_published_sessions(published_sessions: list[dict[str, Any]]) -> None:
    for case in published_sessions:
        check_published(case)


def check_published(case: dict[str, Any]) -> None:
    unit = {"s": timedelta(seconds=1), "ms": timedelta(milliseconds=1)}[case["unit"]]
    arrivals = [NOON + n * DAY for n in range(len(case["batches"]))]
    events = [
        record(entity, f"{arrival} {n}", NOON + time * unit, arrival)
        for arrival, batch in zip(arrivals, case["batches"], strict=True)
        for n, (entity, time) in enumerate(batch)
    ]
    rules = replace(RULES, window=timedelta(), timeout=case["timeout"] * unit)
    found = [(s.entity_id, s.started_at, s.ended_at, len(s.events)) for s in oracle(lay_out(events), rules).sessions]
    assert sorted(found) == sorted(
        (entity, NOON + first * unit, NOON + last * unit, count)
        for entity, first, last, count in case["expected_sessions"]
    ), case["id"]


# A second formulation: rule 3 over all pairs, rule 4 as connected components, rule 5 as the smallest arrival of each


def random_records(random: Random) -> list[Record]:
    step = random.choice([5 * MINUTE, 15 * MINUTE, 30 * MINUTE, 6 * HOUR])
    records = []
    for _ in range(random.randint(1, 14)):
        time = MIDNIGHT + random.randint(-6, 6) * step + random.choice([-TICK, timedelta(), timedelta(), TICK])
        arrival = MIDNIGHT + 9 * DAY + random.randint(0, 6) * MINUTE
        entity, event_id, page = random.choice(["a", "b", None]), random.choice("1234567"), random.choice("xy")
        records.append(record(entity, event_id, time, arrival, page=page))
    return lay_out(records)


def beaten(records: list[Record], rules: Rules) -> dict[Record, Record]:
    winners: dict[Record, Record] = {}
    for earlier, later in product(records, records):
        same_key = (earlier.entity_id, earlier.event_id) == (later.entity_id, later.event_id)
        first, last = sorted([earlier.event_time, later.event_time])
        near = last <= first + rules.window
        if same_key and near and earlier.arrival_order < later.arrival_order:
            best = winners.get(later, earlier)
            winners[later] = min(best, earlier, key=lambda each: each.arrival_order)
    return winners


def components(events: list[Record], timeout: timedelta) -> set[frozenset[Record]]:
    joined = {event: frozenset({event}) for event in events}
    for one, other in product(events, events):
        if one.entity_id == other.entity_id and abs(one.event_time - other.event_time) <= timeout:
            union = joined[one] | joined[other]
            joined.update(dict.fromkeys(union, union))
    return {each for event, each in joined.items() if event.entity_id is not None}


@pytest.mark.parametrize("timeout", [15 * MINUTE, 30 * MINUTE, 2 * HOUR], ids=str)
@pytest.mark.parametrize("window", [timedelta(), 30 * MINUTE, DAY], ids=str)
def test_oracle_equals_a_second_formulation(window: timedelta, timeout: timedelta) -> None:
    rules = Rules(window, timeout, HOUR)
    for seed in range(300):
        records = random_records(Random(seed))
        expected = oracle(records, rules)
        winners = beaten(records, rules)
        events = [each for each in records if each not in winners]
        assert {k: v for k, (v, _) in expected.duplicates.items()} == {
            loser.coordinate: winner.coordinate for loser, winner in winners.items()
        }
        assert {frozenset(each.events) for each in expected.sessions} == components(events, timeout)
        assert all(
            each.first_arrived == min(each.events, key=lambda event: event.arrival_order) for each in expected.sessions
        )
        for partition, fragments in expected.fragments.items():
            inside = [each for each in events if each.event_time.timestamp() // 3600 == partition]
            assert {frozenset(each.events) for each in fragments} == components(inside, timeout)


def test_the_order_in_which_records_are_given_does_not_matter() -> None:
    for seed in range(100):
        records = random_records(Random(seed))
        shuffled = Random(seed + 1).sample(records, len(records))
        assert oracle(shuffled, RULES) == oracle(records, RULES)


def test_identities_are_unique() -> None:
    for seed in range(100):
        sessions = oracle(random_records(Random(seed)), RULES).sessions
        assert len({each.identity for each in sessions}) == len(sessions)
