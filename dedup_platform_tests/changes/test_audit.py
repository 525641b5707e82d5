"""What commits came to: each is counted once, whoever counts, and the counts are what the tables hold."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from dedup_platform import tables
from dedup_platform.changes.audit import AUDITED
from dedup_platform.errors import ConflictError
from dedup_platform.lake import audit as lake_audit
from dedup_platform.lake.audit import AuditTable
from dedup_platform.lake.snapshots import total_rows
from dedup_platform.tables import AUDIT, COUNTED, DUPLICATE_EVENTS, RAW_EVENTS, SESSION_CHANGES, SESSIONS
from dedup_platform_tests.changes.test_feeds import EVENTS, Followed
from dedup_platform_tests.lives.replaced import replaced
from dedup_platform_tests.lives.state import Row


class Audited(Followed):
    """A stream whose commits are counted."""

    def count(self) -> dict[str, int]:
        """What the new commits came to."""
        return {name: number for name, number in self.platform.audit(EVENTS).counts.items() if number}

    def rows(self, table: str) -> list[Row]:
        return list(self.platform.lake.catalog.load_table(EVENTS, table).scan().to_arrow().to_pylist())

    def wrong(self) -> list[str]:
        """What does not hold of the audit as a whole."""
        counted, totals = self.rows(AUDIT), self.platform.status(EVENTS).audit
        sums = {name: sum(row[name] or 0 for row in counted) for name in COUNTED}
        kinds = Counter(row["kind"] for row in self.rows(DUPLICATE_EVENTS))
        raw = self.rows(RAW_EVENTS)
        expected = {
            "copies": kinds["copy"],
            "conflicts": kinds["conflict"],
            "records_read": len(raw),
            "rejected": sum(row["rejection_reason"] is not None for row in raw),
        }
        found = [f"{name}: {sums[name]}, not {number}" for name, number in expected.items() if sums[name] != number]
        for table in AUDITED:
            loaded = self.platform.lake.catalog.load(EVENTS, table)
            kept = sum(row["rows_added"] - row["rows_removed"] for row in counted if row["table"] == table)
            if loaded and kept != total_rows(loaded):
                found.append(f"{table}: {kept} rows, not {total_rows(loaded)}")
        if totals != sums:
            found.append(f"in all {totals}, not {sums}")
        if len({row["snapshot_id"] for row in counted}) != len(counted):
            found.append("a commit is counted twice")
        return found


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[Audited]:
    with replaced(has_spark=False):
        yield Audited(tmp_path)


def test_each_stage_says_what_it_spared(audited: Audited) -> None:
    assert audited.count() == {}
    audited.take_in(audited.event("a", 0, quantity=1), audited.event("a", 0, quantity=1), audited.event("", 1))
    first = audited.count()
    assert {name: first[name] for name in ("records_read", "rejected", "copies")} == {
        "records_read": 3,
        "rejected": 1,
        "copies": 1,
    }
    assert "cells_unchanged" not in first
    audited.take_in(audited.event("a", 0, quantity=2))
    late_copy = audited.count()
    assert (late_copy["conflicts"], late_copy["records_read"]) == (1, 1)
    assert late_copy["cells_unchanged"] == late_copy["cells_checked"], "a late copy changes duplicates and nothing else"
    audited.publish()
    audited.take_in(audited.event("b", 20), audited.event("inside", 10))
    audited.publish()
    audited.take_in(audited.event("inside too", 5))
    audited.publish()
    assert audited.count()["not_downstream"] == 2, "of the last update both images"
    [day] = {row["started_at"] for row in audited.sessions()}
    audited.platform.recompute(EVENTS, SESSIONS, [audited.stream.partitions.ordinal(day)])
    again = audited.count()
    assert again == {"cells_checked": again["cells_checked"], "cells_unchanged": again["cells_checked"]}
    assert audited.wrong() == []
    reasons = {row["reason"] for row in audited.rows(AUDIT) if row["table"] == SESSIONS}
    assert reasons == {"late", "full"}


def test_nothing_new_is_nothing_written(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0))
    audited.count()
    catalog = audited.platform.lake.catalog
    before = catalog.load_table(EVENTS, AUDIT).metadata_location
    assert audited.count() == {}
    assert catalog.load_table(EVENTS, AUDIT).metadata_location == before


def test_of_two_at_once_one_is_refused_and_nothing_is_counted_twice(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0))
    append, meanwhile = AuditTable.append, [True]

    def overtaken(*args: object) -> int:
        if meanwhile.pop() if meanwhile else False:
            audited.count()
        return append(*args)  # type: ignore[arg-type]

    with patch.object(AuditTable, "append", overtaken):
        assert audited.count() == {}, "the other one has counted all"
    assert audited.wrong() == []
    position = AuditTable(audited.platform.lake.catalog, audited.stream).position()
    assert position
    with pytest.raises(ConflictError, match="published changes first"):
        append(AuditTable(audited.platform.lake.catalog, audited.stream), 1, [], position.up_to, {})


def test_who_is_killed_before_the_commit_is_made_up_for(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0))
    with patch.object(AuditTable, "append", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        audited.count()
    audited.take_in(audited.event("b", 1))
    assert audited.count()["records_read"] == 2
    assert audited.wrong() == []


def test_upkeep_counts_before_it_forgets(audited: Audited) -> None:
    for number in range(7):
        audited.take_in(audited.event(f"{number}", 60 * number), audited.event("0", 0))
        audited.publish()
    audited.clock.advance(audited.stream.maintenance.snapshot_age * 10)
    audited.platform.maintain(EVENTS)
    assert audited.count() == {}
    assert audited.wrong() == []
    audited.take_in(audited.event("late", 30))
    audited.publish()
    audited.clock.advance(audited.stream.maintenance.snapshot_age * 10)
    done = {each.table: each for each in audited.platform.maintain(EVENTS)}
    assert done[AUDIT].snapshots_expired > 0
    assert audited.wrong() == []


def test_it_goes_on_from_what_its_newest_commit_says(audited: Audited) -> None:
    """And reads none of its rows for it."""
    audited.take_in(audited.event("a", 0), audited.event("b", 120))
    audited.publish()
    audited.count()
    catalog = audited.platform.lake.catalog
    position = AuditTable(catalog, audited.stream).position()
    assert position
    assert position.up_to.keys() == {*AUDITED}
    assert not position.known
    assert not any(position.newer(table, catalog.load_table(EVENTS, table)) for table in AUDITED)


def test_where_no_snapshot_says_how_far_it_has_come_its_rows_do(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0), audited.event("a", 0))
    audited.publish()
    audited.count()
    audited.take_in(audited.event("b", 0))
    with patch.object(lake_audit, "told_snapshots", lambda _: iter(())):
        assert audited.count()["records_read"] == 1
    assert audited.wrong() == []


def test_a_feed_that_was_made_anew_is_counted_anew(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0), audited.event("b", 120))
    audited.publish()
    assert audited.count()["changes"] == 4
    audited.platform.lake.catalog.iceberg.drop_table((EVENTS, SESSION_CHANGES))
    audited.platform.publish_changes(EVENTS)
    assert audited.count()["changes"] == 2


def test_another_number_of_buckets_is_no_work_on_records(audited: Audited) -> None:
    audited.take_in(*(audited.event(f"{number}", 0, entity=f"{number}") for number in range(5)))
    audited.count()
    audited.platform.change_buckets(EVENTS, 4)
    assert audited.count().keys() <= {"cells_checked", "cells_unchanged"}
    assert audited.wrong() == []


def test_a_table_that_somebody_took_back_is_counted_on(audited: Audited) -> None:
    for name in "abc":
        audited.take_in(audited.event(name, 0))
    audited.count()
    audited.move_main(SESSIONS, 2)
    assert audited.count() == {}
    audited.platform.repair(EVENTS)
    assert audited.count()["cells_checked"] > 0


def test_what_it_counts_has_columns(audited: Audited) -> None:
    audited.take_in(audited.event("a", 0))
    audited.count()
    assert set(tables.column_names(audited.stream, AUDIT)) == set(audited.rows(AUDIT)[0])
