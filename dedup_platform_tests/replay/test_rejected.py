"""What is told of rejected records: counts by reason, single records, a table of them; and what dropping leaves."""

from datetime import timedelta

import pytest
from pyarrow.parquet import read_table

from dedup_platform.cli.export import export
from dedup_platform.errors import UnknownRecordError
from dedup_platform.platform import Platform
from dedup_platform.replay.rejected import PREVIEW_BYTES, ReasonCount
from dedup_platform.replay.rewrite import Choice
from dedup_platform.tables import REJECTED_EVENTS
from dedup_platform.testing import record, utc
from dedup_platform.testing.judge import wrong_rows
from dedup_platform_tests.replay.conftest import ARRIVED, Deployment

LONG = b"\xff" + 2 * PREVIEW_BYTES * b"x"
"""No UTF-8, and longer than what a listing shows."""


@pytest.fixture
def platform(deploy: Deployment) -> Platform:
    """Five rejected records of three files, and an event."""
    deploy.deliver_lines(b"no json", LONG, file="a.json")
    deploy.deliver_lines(b'{"entity": "a", "id": "1", "arrived": "2024-04-01"}', file="b.json")
    deploy.deliver_lines(b"{", b"[]", file="c.json")
    deploy.deliver(record("a", "1", utc("2024-03-01T10:00")), file="good.json")
    return deploy.platform


def test_counts_by_reason_the_most_frequent_first(platform: Platform) -> None:
    assert platform.rejected.reasons("events") == [
        ReasonCount("malformed_record", 4, ARRIVED, ARRIVED, ("a.json", "c.json")),
        ReasonCount("unreadable_event_time", 1, utc("2024-04-01"), utc("2024-04-01"), ("b.json",)),
    ]


@pytest.mark.parametrize(
    ("choice", "offsets"),
    [
        (Choice(), [("b.json", 0), ("a.json", 0), ("a.json", 1), ("c.json", 0), ("c.json", 1)]),
        (Choice(reason="malformed_record"), [("a.json", 0), ("a.json", 1), ("c.json", 0), ("c.json", 1)]),
        (Choice(reason="unreadable_*"), [("b.json", 0)]),
        (Choice(reason="UNREADABLE_*"), []),
        (Choice(source="[ab].json"), [("b.json", 0), ("a.json", 0), ("a.json", 1)]),
        (Choice(source="a"), []),
        (Choice(since=ARRIVED), [("a.json", 0), ("a.json", 1), ("c.json", 0), ("c.json", 1)]),
        (Choice(since=ARRIVED + timedelta(microseconds=1)), []),
        (Choice(until=ARRIVED), [("b.json", 0)]),
        (Choice(until=ARRIVED + timedelta(microseconds=1), source="c*"), [("c.json", 0), ("c.json", 1)]),
        (Choice(upto=(ARRIVED, "a.json", 0, 1, 0)), [("b.json", 0), ("a.json", 0), ("a.json", 1)]),
        (Choice(upto=(ARRIVED, "a.json", 0, 0, 1)), [("b.json", 0), ("a.json", 0)]),
    ],
)
def test_records_in_order_of_arrival(platform: Platform, choice: Choice, offsets: list[tuple[str, int]]) -> None:
    found = platform.rejected.first("events", choice)
    assert [(each.source, each.source_offset) for each in found] == offsets
    assert sum(each.records for each in platform.rejected.reasons("events", choice)) == len(offsets)
    first = platform.rejected.first("events", choice, limit=2)
    assert [(each.source, each.source_offset) for each in first] == offsets[:2]


def test_a_listing_holds_the_beginning_of_a_payload_and_a_record_all_of_it(platform: Platform) -> None:
    [_, listed] = platform.rejected.first("events", Choice(source="a.json"))
    assert listed.payload == LONG[:PREVIEW_BYTES]
    whole = platform.rejected.record("events", "a.json", 0, 1, 0)
    assert (whole.payload, whole.payload_context) == (LONG, '{"format":"json"}')


@pytest.mark.parametrize(
    "place", [("a.json", 0, 2, 0), ("a.json", 1, 1, 0), ("a.json", 0, 1, 1), ("good.json", 0, 0, 0)]
)
def test_no_such_record(platform: Platform, place: tuple[str, int, int, int]) -> None:
    with pytest.raises(UnknownRecordError, match=f"no rejected record {place[2]} of {place[0]}"):
        platform.rejected.record("events", *place)


def test_rejected_events_as_a_table(platform: Platform, deploy: Deployment) -> None:
    assert platform.rejected.read("events").count() == platform.rejected.count("events") == 5
    path = deploy.stream.origin.parent / "rejected.parquet"
    assert export(platform, "events", REJECTED_EVENTS, path) == 5
    exported = read_table(path)
    assert exported.column_names == platform.rejected.read("events").columns
    assert sorted(exported["source"].to_pylist()) == ["a.json", "a.json", "b.json", "c.json", "c.json"]


def test_what_is_dropped_keeps_its_row_and_loses_its_payload_once(platform: Platform, deploy: Deployment) -> None:
    coordinates, stale = deploy.coordinates(), deploy.stale()
    outcome = platform.rejected.drop("events", Choice(reason="malformed*"), limit=3)
    assert (outcome.altered, outcome.accepted, outcome.cells) == (3, 0, frozenset())
    counts = {each.reason: each.records for each in platform.rejected.reasons("events")}
    assert counts == {"dropped:malformed_record": 3, "malformed_record": 1, "unreadable_event_time": 1}
    assert deploy.coordinates() == coordinates
    assert deploy.stale() == stale
    dropped = platform.rejected.record("events", "a.json", 0, 1, 0)
    assert (dropped.payload, dropped.arrival_time) == (None, ARRIVED)
    # The first three are dropped already: it is the fourth's turn.
    assert platform.rejected.drop("events", Choice(reason="*malformed*"), limit=3).altered == 1
    assert platform.rejected.drop("events", Choice(reason="*malformed*")).snapshot_id is None
    assert platform.rejected.replay("events").snapshot_id is None
    platform.repair("events")
    assert wrong_rows(platform, "events") == []
