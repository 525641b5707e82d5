"""Histories in which a run takes in only a part of what waits, or another process commits meanwhile: each by name.

Judged at every published snapshot, not at rest only.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate

from dedup_platform import tables
from dedup_platform.errors import ConflictError, IncompatibleChangeError
from dedup_platform.lake.layout import Layout
from dedup_platform.lake.snapshots import files_by_cell, head
from dedup_platform.platform import Platform
from dedup_platform.rules.sessions import stitch_slices
from dedup_platform.stream import Stream
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform_tests.lives.checks import Checks
from dedup_platform_tests.lives.state import Reader
from dedup_platform_tests.variants import some

NOW = HeldClock(utc("2030-01-01T00:00"))
EVENTS = "events"


def day(number: int, hour: int) -> datetime:
    return utc("2024-01-01T00:00") + timedelta(days=number, hours=hour)


def arrival(hours: int) -> datetime:
    return utc("2024-02-01T00:00") + timedelta(hours=hours)


class Tables:
    """A stream's tables and who looks at each commit."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.folder = folder
        self.stream: Stream = make_stream(folder, **rules)
        self.checks, self.reader = Checks([self.stream.session_timeout]), Reader()
        self.platform = self.opened()
        self.files = 0
        self.is_judged = True

    def opened(self) -> Platform:
        platform = light_platform(self.folder / "home", self.stream, NOW)
        publish = platform.lake.publish

        def watched(staged: Any) -> None:
            publish(staged)
            if self.is_judged:
                self.check()

        platform.lake.publish = watched  # type: ignore[method-assign]
        return platform

    def reopen(self, stream: Stream) -> None:
        """Another process, with other rules."""
        self.stream = stream
        self.platform = self.opened()

    def deliver(self, *records: Record) -> None:
        self.files += 1
        write_batch(self.stream, lay_out(records, f"{self.files}.json"))
        self.platform.ingest(EVENTS)

    def check(self) -> None:
        judge = light_platform(self.folder / "home", self.stream, NOW)
        state = self.reader.read(judge, self.stream)
        assert state is not None
        assert self.checks.of(self.stream, state, judge.plan(EVENTS)) == []

    def recompute(self, *names: str, days: Iterable[int] | None = None) -> None:
        chosen = None if days is None else [self.stream.partitions.ordinal(day(each, 0)) for each in days]
        for table in names:
            self.platform.recompute_stale(EVENTS, table, chosen)

    def spans(self) -> list[tuple[datetime, datetime, int]]:
        state = self.reader.read(self.platform, self.stream)
        assert state is not None
        rows = state.all(tables.SESSIONS)
        return sorted((row["started_at"], row["ended_at"], row["event_count"]) for row in rows)

    def stale(self) -> list[object]:
        return [cell for plan in self.platform.plan(EVENTS) for cell in plan.stale]


def test_a_run_of_a_part_of_the_stale_sessions_leaves_no_event_in_two(tmp_path: Path) -> None:
    """Day 1 loses its event to day 0; day 4 joins days 3 and 5: the planner may cut these, the commit must not."""
    found = Tables(tmp_path, timeout="1d", window="1d")
    found.deliver(
        record("e", "x", day(1, 12), arrival(10)),
        record("e", "a2", day(2, 12), arrival(11)),
        record("e", "a3", day(3, 12), arrival(12)),
        record("e", "t5", day(5, 12), arrival(1)),
    )
    found.platform.repair(EVENTS)
    found.deliver(record("e", "x", day(0, 13), arrival(9)), record("e", "a4", day(4, 12), arrival(13)))
    found.recompute(tables.DEDUPLICATED_EVENTS, tables.SESSION_FRAGMENTS)
    [plan] = [each for each in found.platform.plan(EVENTS) if each.table == tables.SESSIONS]
    found.platform.recompute_stale(EVENTS, tables.SESSIONS, plan.runs[0].partitions[:1])
    assert found.spans() == [(day(0, 13), day(0, 13), 1), (day(2, 12), day(5, 12), 4)]
    assert found.stale() == []


def test_a_run_killed_between_fragments_and_sessions_and_a_later_ingest_lose_no_event(tmp_path: Path) -> None:
    found = Tables(tmp_path, timeout="12h", window="1d")
    found.deliver(
        record("e", "v", day(5, 2), arrival(5)),
        record("o", "o1", day(5, 20), arrival(6)),
        record("z", "z", day(20, 1), arrival(6)),
    )
    found.platform.repair(EVENTS)
    found.deliver(record("e", "b", day(4, 22), arrival(7)))
    found.recompute(tables.DEDUPLICATED_EVENTS, tables.SESSION_FRAGMENTS)  # and dies before the sessions
    found.deliver(record("o", "o2", day(6, 4), arrival(8)))
    found.recompute(*tables.DERIVED, days=[6])
    assert (day(4, 22), day(5, 2), 2) in found.spans(), "what waited in the same bucket was taken in, too"
    found.deliver(record("e", "b", day(3, 23), arrival(1)))
    found.platform.repair(EVENTS)
    assert found.stale() == []
    assert len(found.spans()) == 4


def test_sessions_that_lost_an_event_by_an_earlier_fault_are_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables as a version left them that took in a part of a bucket only: nothing calls the lost event stale."""
    found = Tables(tmp_path, timeout="12h")
    found.deliver(record("e", "v", day(5, 2), arrival(5)))
    found.platform.repair(EVENTS)
    found.deliver(record("f", "b", day(4, 22), arrival(7)))
    found.recompute(tables.DEDUPLICATED_EVENTS, tables.SESSION_FRAGMENTS)
    with monkeypatch.context() as patch:
        patch.setattr("dedup_platform.recompute.session_tasks.stitch_slices", _forgetful)
        patch.setattr("dedup_platform.recompute.build.Recompute._balance", lambda *_: None)
        found.is_judged = False
        found.recompute(tables.SESSIONS)
    assert len(found.spans()) == 1
    found.deliver(record("g", "c", day(9, 1), arrival(9)))
    found.platform.repair(EVENTS)
    assert len(found.spans()) == 3
    found.check()


def _forgetful(slices: Any, stream: Stream) -> Any:
    return (
        each._replace(sessions=each.sessions.filter(each.sessions["entity_id"] != "f"))
        for each in stitch_slices(slices, stream)
    )


def test_an_ingest_into_a_cell_that_is_being_repaired_does_not_make_the_repair_start_again(tmp_path: Path) -> None:
    """A cell that gets input all the time would never be repaired."""
    found = Tables(tmp_path)
    found.deliver(record("a", "0", day(0, 10)))
    found.platform.repair(EVENTS)
    other, tries = found.opened(), list[str]()
    stage = found.platform.lake.stage_files

    def late(stream: Stream, table: str, *args: Any, **kwargs: Any) -> Any:
        staged = stage(stream, table, *args, **kwargs)
        if table == tables.DEDUPLICATED_EVENTS:
            tries.append(table)
            write_batch(stream, lay_out([record("a", f"late {len(tries)}", day(0, 11))], f"late {len(tries)}.json"))
            other.ingest(EVENTS)
        return staged

    found.platform.lake.stage_files = late  # type: ignore[method-assign]
    found.deliver(record("a", "1", day(0, 12)))
    commit = found.platform.recompute_stale(EVENTS, tables.DEDUPLICATED_EVENTS)
    assert (len(tries), len(commit.cells_rewritten)) == (1, 1)
    [plan] = [each for each in found.platform.plan(EVENTS) if each.table == tables.DEDUPLICATED_EVENTS]
    assert [each.rows for each in plan.stale] == [1], "what came meanwhile waits"


def test_copies_whose_first_arrival_was_decoded_into_another_day_are_judged_together(tmp_path: Path) -> None:
    """A manual rebuild of one partition: the record that had beaten its neighbour's copy is gone from it."""
    found = Tables(tmp_path, window="1d")
    found.deliver(record("e", "x", day(1, 20), arrival(1)))
    found.deliver(record("e", "x", day(2, 2), arrival(2)))
    found.platform.repair(EVENTS)
    fields = found.stream.fields.model_copy(update={"event_time": found.stream.fields.arrival_time})
    found.stream = found.stream.model_copy(update={"fields": fields})
    found.platform = found.opened()
    found.platform.rejected.redecode(EVENTS, [found.stream.partitions.ordinal(day(1, 0))])
    found.platform.recompute(EVENTS, tables.DEDUPLICATED_EVENTS, [found.stream.partitions.ordinal(day(1, 0))])
    state = found.reader.read(found.platform, found.stream)
    assert state is not None
    kept = [row["event_time"] for row in state.all(tables.DEDUPLICATED_EVENTS)]
    assert day(2, 2) in kept, "nothing beats this copy now"
    assert day(1, 20) not in kept
    found.platform.repair(EVENTS)
    assert found.stale() == []


def told_by(stream: Stream, field: str, window: timedelta | None = None) -> Stream:
    """The stream whose events happened when this field says, perhaps with another window."""
    time = stream.fields.event_time.model_copy(update={"field": field})
    rules = stream.deduplicate.model_copy(update={"window": stream.deduplicate.window if window is None else window})
    fields = stream.fields.model_copy(update={"event_time": time})
    return stream.model_copy(update={"fields": fields, "deduplicate": rules})


def test_a_record_that_moves_next_to_another_one_is_repaired_in_a_bounded_number_of_ticks(tmp_path: Path) -> None:
    """The run must be asked for by a cell that waits, and not by one that is only linked to it."""
    found = Tables(tmp_path, window="1d")
    by_happened, by_arrival = found.stream, told_by(found.stream, "arrived")
    found.reopen(by_arrival)
    found.deliver(record("a", "r", day(10, 12), day(20, 12)))
    found.platform.repair(EVENTS)
    found.reopen(by_happened)
    found.deliver(record("a", "s", day(9, 12), day(22, 12)))
    found.platform.repair(EVENTS)
    found.platform.rejected.redecode(EVENTS, [found.stream.partitions.ordinal(day(20, 12))])
    for _ in range(4):
        for plan in found.platform.plan(EVENTS):
            for run in plan.runs:
                found.platform.recompute_stale(EVENTS, plan.table, run.partitions)
    assert found.stale() == []


def test_what_a_record_beat_under_other_rules_is_judged_again_when_it_goes(tmp_path: Path) -> None:
    """It beat one of two days on; it is moved under a window of nothing; then the window is three days again."""
    found = Tables(tmp_path, window="3d")
    by_happened, by_arrival = found.stream, told_by(found.stream, "arrived", timedelta(0))
    found.deliver(record("a", "x", day(1, 12), day(20, 12)), record("a", "x", day(3, 12), day(22, 12)))
    found.platform.repair(EVENTS)
    found.reopen(by_arrival)
    found.platform.rejected.redecode(EVENTS, [found.stream.partitions.ordinal(day(1, 12))])
    found.reopen(by_happened)
    found.platform.repair(EVENTS)
    found.check()
    assert [start for start, _, _ in found.spans()] == [day(3, 12), day(20, 12)]


def test_a_window_is_as_long_as_it_says_to_the_microsecond(tmp_path: Path) -> None:
    """1.001 seconds as a float times a million are 1,000,999.9."""
    found = Tables(tmp_path, window="1001ms")
    time = day(1, 12)
    later = time + timedelta(milliseconds=1001)
    found.deliver(
        record("a", "x", time, time),
        record("a", "x", later, time + timedelta(minutes=1)),
        record("a", "x", time + timedelta(hours=3)),
    )
    found.platform.repair(EVENTS)
    state = found.reader.read(found.platform, found.stream)
    assert state is not None
    assert [row["event_time"] for row in state.all(tables.DUPLICATE_EVENTS)] == [later]


def test_who_changes_the_buckets_while_somebody_else_does_changes_nothing_twice(tmp_path: Path) -> None:
    found = Tables(tmp_path, buckets=0)
    found.deliver(*(record(entity, "x", day(1, 12)) for entity in "abc"))
    found.is_judged = False  # while the tables have different numbers nobody may write, or plan
    rebuilding = found.platform._rebuilding
    repair = rebuilding.all_beside

    def slow(stream: Stream) -> Any:
        done = repair(stream)
        assert found.opened().change_buckets(EVENTS, 2)
        return done

    with patch.object(rebuilding, "all_beside", slow):
        assert not found.platform.change_buckets(EVENTS, 2)
    found.check()
    assert len(found.spans()) == 3


def test_tables_that_have_a_layout_by_now_are_not_copied_to_it(tmp_path: Path) -> None:
    found = Tables(tmp_path, buckets=0)
    found.deliver(record("a", "x", day(1, 12)))
    found.platform.repair(EVENTS)
    found.is_judged = False
    layout = Layout(found.platform.lake, found.stream, tables.SESSIONS, 2)
    assert found.opened().change_buckets(EVENTS, 2)
    with pytest.raises(ConflictError, match=r"events\.sessions has 2 buckets by now"):
        layout.now()


def test_fragments_made_ahead_long_ago_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot names their files, so upkeep may have removed them meanwhile."""
    found = Tables(tmp_path)
    found.deliver(record("a", "x", day(1, 12)))
    found.recompute(tables.DEDUPLICATED_EVENTS)
    prebuilt = set((tmp_path / "home").rglob("session_fragments/data/**/*.parquet"))
    for path in prebuilt:
        path.unlink()
    monkeypatch.setattr("dedup_platform.recompute.prebuilt.PREBUILT_SECONDS", 0)
    found.recompute(tables.SESSION_FRAGMENTS, tables.SESSIONS)
    assert len(prebuilt) == 1
    assert found.spans() == [(day(1, 12), day(1, 12), 1)]


def test_what_was_judged_by_other_rules_meanwhile_is_judged_again_with_its_neighbours(tmp_path: Path) -> None:
    """Under a window of nothing the newcomer concerns its own day; then the window is three days again."""
    found = Tables(tmp_path, window="3d")
    published = found.stream
    found.deliver(record("a", "x", day(3, 12), day(22, 12)), record("b", "y", day(9, 12), day(22, 12)))
    found.platform.repair(EVENTS)
    found.reopen(told_by(published, "happened", timedelta(0)))
    found.deliver(record("a", "x", day(1, 12), day(21, 12)))
    found.recompute(tables.DEDUPLICATED_EVENTS, days=[1])
    found.reopen(published)
    found.check()
    [events, *_] = found.platform.plan(EVENTS)
    days = {(published.partitions.start_of(each.cell.partition) - day(0, 0)).days for each in events.stale}
    assert days == {1, 3}
    found.platform.repair(EVENTS)
    found.check()
    assert found.stale() == []
    assert [start for start, _, _ in found.spans()] == [day(1, 12), day(9, 12)]


@pytest.mark.parametrize("buckets", some([1, 4], quick=[4]))
def test_raw_that_was_taken_back_to_other_buckets_is_refused_until_they_are_changed(
    tmp_path: Path, buckets: int
) -> None:
    """With one: its files have the layout that is asked for already; the table's default partitioning has not."""
    found = Tables(tmp_path, buckets=0)
    found.deliver(*(record(entity, "x", day(1, 12)) for entity in "abc"))
    found.platform.repair(EVENTS)
    found.is_judged = False
    catalog = found.platform.lake.catalog
    before = head(catalog.load_table(EVENTS, tables.RAW_EVENTS)).snapshot_id
    found.platform.change_buckets(EVENTS, 2)
    to = {"ref-name": "main", "type": "branch", "snapshot-id": before}
    taken_back = catalog.load_table(EVENTS, tables.RAW_EVENTS)
    catalog.iceberg.commit_table(taken_back, (), (SetSnapshotRefUpdate.model_validate(to),))
    with pytest.raises(IncompatibleChangeError, match=r"buckets events 4"):
        found.opened().plan(EVENTS)
    found.opened().change_buckets(EVENTS, buckets)
    state = found.reader.read(found.platform, found.stream)
    assert state is not None
    assert len(state.all(tables.RAW_EVENTS)) == 3
    found.check()


def test_there_are_no_duplicates_before_the_first_events(tmp_path: Path) -> None:
    """They are published first, and name an event that nobody can see yet."""
    found = Tables(tmp_path)
    found.deliver(*(record("a", "x", day(1, 12), arrival(hour)) for hour in (1, 2)))
    seen = []
    publish = found.platform.lake.publish

    def look(staged: Any) -> None:
        publish(staged)
        seen.append(found.platform.lake.current(found.stream, tables.DUPLICATE_EVENTS))

    with patch.object(found.platform.lake, "publish", look):
        found.platform.repair(EVENTS)
    state = found.reader.read(found.platform, found.stream)
    assert state is not None
    assert len(state.all(tables.DUPLICATE_EVENTS)) == 1
    catalog = found.platform.lake.catalog
    first, second, *_ = (total_rows_of(catalog.load_table(EVENTS, tables.DUPLICATE_EVENTS), each) for each in seen)
    assert (first, second) == (0, 1)


def total_rows_of(table: Table, snapshot: int) -> int:
    return sum(file.record_count for files in files_by_cell(table, snapshot).values() for file in files)


def with_more_columns(folder: Path) -> Stream:
    attributes = {"page": "string", "amount": "decimal(12,2)"}
    return make_stream(folder, buckets=0, attributes=attributes, aggregates={"revenue": ("sum", "amount")})


def test_buckets_are_changed_after_an_attribute_was_added(tmp_path: Path) -> None:
    found = Tables(tmp_path, buckets=0, attributes={"page": "string"}, aggregates={})
    found.deliver(record("a", "x", day(1, 12)))
    found.platform.repair(EVENTS)
    found.reopen(with_more_columns(tmp_path))
    found.is_judged = False
    assert found.platform.change_buckets(EVENTS, 2)
    assert not found.platform.change_buckets(EVENTS, 2)
    found.check()


def test_a_process_with_an_older_stream_file_is_told_that_tables_have_more_columns(tmp_path: Path) -> None:
    """It looked at them when they had not."""
    found = Tables(tmp_path, buckets=0, attributes={"page": "string"}, aggregates={})
    found.deliver(record("a", "x", day(1, 12)))
    platform = found.platform
    evolve = platform.lake.evolve

    def beside_another(stream: Stream) -> None:
        evolve(stream)
        light_platform(tmp_path / "home", with_more_columns(tmp_path), NOW).ingest(EVENTS)

    with (
        patch.object(platform.lake, "evolve", beside_another),
        pytest.raises(IncompatibleChangeError, match=r"events\.raw_events has the columns \['amount'\]"),
    ):
        platform.repair(EVENTS)
