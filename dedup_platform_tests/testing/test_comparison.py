"""The comparison finds every difference and says which row and column."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dedup_platform.testing import Record, Rules, SessionIds, lay_out, make_stream, oracle, record, utc
from dedup_platform.testing.comparison import expected_tables, row_differences, table_differences

NOON = utc("2024-03-01T12:00")
MINUTE = timedelta(minutes=1)
RECORDS = lay_out(
    [
        record("a", "1", NOON, page="/", amount=Decimal("0.10")),
        record("a", "1", NOON + MINUTE),
        record("a", "2", NOON + 10 * MINUTE),
        record("b", "1", NOON),
    ]
)
Tables = dict[str, list[dict[str, Any]]]


def right_tables(folder: Path, records: list[Record] = RECORDS) -> Tables:
    """The expected rows with an id for each session, as a right platform would hold them."""
    stream = make_stream(folder)
    tables = expected_tables(stream, records, oracle(records, Rules.of(stream)))
    rows: Tables = {table: [dict(row) for row in rows] for table, rows in tables.items()}
    for row in rows["sessions"]:
        row["session_id"] = f"id of {row['entity_id']}"
    for row in rows["session_fragments"]:
        row["first_arrived"] = {**row["first_arrived"], "session_id": f"id of {row['entity_id']}"}
    return rows


def found(folder: Path, tables: Tables, ids: SessionIds | None = None, *, is_upgraded: bool = False) -> list[str]:
    stream = make_stream(folder)
    return table_differences(stream, tables, RECORDS, ids or SessionIds(), is_upgraded=is_upgraded)


def test_right_tables_have_no_difference(tmp_path: Path) -> None:
    assert found(tmp_path, right_tables(tmp_path)) == []


def lose_an_event(tables: Tables) -> None:
    tables["deduplicated_events"].pop()


def double_an_event(tables: Tables) -> None:
    tables["deduplicated_events"].append(tables["deduplicated_events"][0])


def blame_another_winner(tables: Tables) -> None:
    tables["duplicate_events"][0]["winner_source_offset"] = 2


def call_a_conflict_a_copy(tables: Tables) -> None:
    tables["duplicate_events"][0]["kind"] = "copy"


def add_a_fragment(tables: Tables) -> None:
    tables["session_fragments"].append({**tables["session_fragments"][0], "first_event_time": NOON - MINUTE})


def take_another_first_arrival(tables: Tables) -> None:
    tables["session_fragments"][0]["first_arrived"]["source_offset"] = 2


def miscount_a_session(tables: Tables) -> None:
    tables["sessions"][0]["event_count"] = 3


def take_another_first_event(tables: Tables) -> None:
    tables["sessions"][0]["first_arrived_event_time"] = NOON + 10 * MINUTE


def forget_the_first_event(tables: Tables) -> None:
    tables["sessions"][0]["first_arrived_event_time"] = None
    tables["session_fragments"][0]["first_arrived"]["event_time"] = None


def sum_wrongly(tables: Tables) -> None:
    tables["sessions"][0]["revenue"] = Decimal("0.11")


def forget_a_column(tables: Tables) -> None:
    del tables["sessions"][0]["pages"]


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (lose_an_event, "deduplicated_events: events.json 0 2 0: 0 rows, expected 1"),
        (double_an_event, "deduplicated_events: events.json 0 0 0: 2 rows, expected 1"),
        (blame_another_winner, "duplicate_events: events.json 0 1 0: winner_source_offset is 2, expected 0"),
        (call_a_conflict_a_copy, "duplicate_events: events.json 0 1 0: kind is copy, expected conflict"),
        (add_a_fragment, "session_fragments: a 2024-03-01 11:59:00+00:00: 1 rows, expected 0"),
        (take_another_first_arrival, "session_fragments: a 2024-03-01 12:00:00+00:00: first_arrived is"),
        (miscount_a_session, "sessions: a 2024-03-01 12:00:00+00:00: event_count is 3, expected 2"),
        (take_another_first_event, "sessions: a 2024-03-01 12:00:00+00:00: first_arrived_event_time is 2024-03-01"),
        (forget_the_first_event, "sessions: a 2024-03-01 12:00:00+00:00: first_arrived_event_time is None, expected"),
        (forget_the_first_event, "session_fragments: a 2024-03-01 12:00:00+00:00: first_arrived is"),
        (sum_wrongly, "sessions: a 2024-03-01 12:00:00+00:00: revenue is 0.11, expected 0.10"),
        (forget_a_column, "sessions: a 2024-03-01 12:00:00+00:00: pages is absent, expected 1"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_every_difference_is_named(tmp_path: Path, breaks: Callable[[Tables], None], says: str) -> None:
    tables = right_tables(tmp_path)
    breaks(tables)
    lines = found(tmp_path, tables)
    assert any(line.startswith(says) for line in lines), lines


def test_of_upgraded_tables_only_the_column_that_was_added_may_be_null(tmp_path: Path) -> None:
    tables = right_tables(tmp_path)
    forget_the_first_event(tables)
    assert found(tmp_path, tables, is_upgraded=True) == []
    take_another_first_event(tables)
    miscount = tables["sessions"][1]
    miscount["first_arrived_event_time"] = miscount["first_arrived_at"] = None
    wrong = [line.split(": ")[2].split(" is ")[0] for line in found(tmp_path, tables, is_upgraded=True)]
    assert wrong == ["first_arrived_event_time", "first_arrived_at"]


def test_an_id_that_changes_between_two_states(tmp_path: Path) -> None:
    ids = SessionIds()
    tables = right_tables(tmp_path)
    assert found(tmp_path, tables, ids) == []
    tables["sessions"][0]["session_id"] = "another"
    assert any("was id of a, is another" in line for line in found(tmp_path, tables, ids))


def test_one_id_for_two_sessions(tmp_path: Path) -> None:
    tables = right_tables(tmp_path)
    for table in (tables["sessions"], [row["first_arrived"] for row in tables["session_fragments"]]):
        for row in table:
            row["session_id"] = "the only one"
    assert any("the only one belongs to" in line for line in found(tmp_path, tables))


def test_a_fragment_that_has_another_id_than_its_session(tmp_path: Path) -> None:
    tables = right_tables(tmp_path)
    tables["session_fragments"][0]["first_arrived"]["session_id"] = "another"
    assert any(line.startswith("session id: ") for line in found(tmp_path, tables))


def test_many_differences_are_cut_short() -> None:
    lines = row_differences([{"id": n} for n in range(9)], [], ("id",))
    assert len(lines) == 6
    assert lines[-1] == "and 4 more"
