"""The session of each event and whether it was late, beside an oracle that looks at records one by one."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dedup_platform import tables
from dedup_platform.query import Queries, event_sessions
from dedup_platform.stream import Stream, parse_duration
from dedup_platform.testing import (
    Expected,
    HeldClock,
    Record,
    Rules,
    histories,
    lay_out,
    light_platform,
    make_stream,
    oracle,
    record,
    utc,
    write_batch,
)
from dedup_platform.testing.oracle import EPOCH, group
from dedup_platform.testing.records import Coordinate

BATCHES, ENTITIES = 2, 20
NOW = utc("2030-01-01T00:00")


def rows_of(queries: Queries, sql: str, folder: Path) -> list[dict[str, Any]]:
    with queries.answer(sql, folder) as answer:
        return [row for batch in answer.batches for row in batch.to_pylist()]


def coordinate(row: dict[str, Any]) -> Coordinate:
    return row["source"], row["source_partition"], row["source_offset"], row["source_index"]


def is_late(event: Record, stream: Stream) -> bool:
    """Whether it arrived after its partition closed."""
    partition = (event.event_time - EPOCH) // stream.partitions.length
    return event.arrival_time > EPOCH + (partition + 1) * stream.partitions.length + stream.late.grace


@pytest.mark.parametrize(("granularity", "timeout", "grace"), [("day", "30m", "1h"), ("hour", "90m", "250ms")])
def test_each_event_has_the_session_that_it_is_in(granularity: str, timeout: str, grace: str, tmp_path: Path) -> None:
    stream = make_stream(tmp_path, granularity=granularity, timeout=timeout, buckets=2)
    late = stream.late.model_copy(update={"grace": parse_duration(grace)})
    stream = stream.model_copy(update={"late": late})
    platform = light_platform(tmp_path / "home", stream, HeldClock(NOW))
    queries, length = Queries(platform.lake, platform.streams), stream.partitions.length
    history, delivered = histories(7, ENTITIES, Rules.of(stream), stream.partitions.start, BATCHES), list[Record]()
    for batch in history.batches:
        write_batch(stream, batch)
        delivered.extend(batch)
        platform.ingest(stream.name)
        platform.repair(stream.name)
        expected = oracle(delivered, Rules.of(stream))
        known = {row["session_id"] for row in rows_of(queries, "FROM events.sessions", tmp_path)}
        for sql in ("FROM events.event_sessions", event_sessions(stream)):
            found = rows_of(queries, sql, tmp_path)
            assert_each_is_once_and_late_if_it_was(found, expected, stream)
            of_session = group(found, lambda row: row["session_id"])
            assert all(row["entity_id"] is None for row in of_session.pop(None, []))
            assert of_session.keys() == known
            assert {frozenset(map(coordinate, rows)) for rows in of_session.values()} == {
                frozenset(event.coordinate for event in each.events) for each in expected.sessions
            }
    assert any((each.started_at - EPOCH) // length < (each.ended_at - EPOCH) // length for each in expected.sessions)
    assert {(row["entity_id"] is None, row["is_late"]) for row in found} >= {
        (True, True),
        (False, True),
        (False, False),
    }


def assert_each_is_once_and_late_if_it_was(found: list[dict[str, Any]], expected: Expected, stream: Stream) -> None:
    late = {each.coordinate: is_late(each, stream) for each in expected.deduplicated}
    assert len(found) == len(late)
    assert {coordinate(row): row["is_late"] for row in found} == late


def test_a_stream_without_sessions_tells_what_was_late_and_beside_a_column_of_that_name(tmp_path: Path) -> None:
    stream = make_stream(tmp_path, attributes={"is_late": "boolean"}, aggregates={}).model_copy(
        update={"sessions": None}
    )
    at = stream.partitions.start
    write_batch(stream, lay_out([record("a", "1", at), record("a", "2", at, at + timedelta(days=1, hours=2))]))
    platform = light_platform(tmp_path / "home", stream, HeldClock(NOW))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    for sql in ("events.event_sessions", f"({event_sessions(stream)})"):
        asked = f"SELECT event_id, is_late, _is_late FROM {sql} ORDER BY event_id"
        found = rows_of(Queries(platform.lake, platform.streams), asked, tmp_path)
        assert [tuple(row.values()) for row in found] == [("1", None, False), ("2", None, True)]


def test_an_event_that_sessions_do_not_know_yet_is_in_none(tmp_path: Path) -> None:
    stream = make_stream(tmp_path)
    at = stream.partitions.start
    platform = light_platform(tmp_path / "home", stream, HeldClock(NOW))

    def found(sql: str) -> list[tuple[Any, ...]]:
        asked = f"SELECT event_id, session_id IS NOT NULL AS is_in_one FROM {sql} ORDER BY event_id"
        return [tuple(row.values()) for row in rows_of(Queries(platform.lake, platform.streams), asked, tmp_path)]

    for number, expected in enumerate([[("0", False)], [("0", True), ("1", False)]]):
        write_batch(stream, lay_out([record("a", f"{number}", at + timedelta(hours=number))], f"{number}.json"))
        platform.ingest(stream.name)
        platform.recompute_stale(stream.name, tables.DEDUPLICATED_EVENTS)
        for sql in ("events.event_sessions", f"({event_sessions(stream)})"):
            assert found(sql) == expected
        platform.repair(stream.name)
    assert found("events.event_sessions") == [("0", True), ("1", True)]
