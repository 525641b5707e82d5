"""Which snapshots stay: the boundaries of the rules, on histories made by hand."""

from datetime import timedelta

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from dedup_platform.lake.snapshots import SUMMARY
from dedup_platform.maintenance.history import cut_history
from dedup_platform.stream import Maintenance
from dedup_platform.testing import utc

NOW = utc("2024-06-01T00:00")
RULES = Maintenance(snapshot_age=timedelta(days=7), min_snapshots=1)


def history(*days_ago: float, without_receipt: tuple[int, ...] = ()) -> list[Snapshot]:
    """Snapshots 0, 1, 2 …, the newest first, committed so many days before now."""
    made = []
    for number, age in enumerate(days_ago):
        summary = {} if number in without_receipt else {f"{SUMMARY}receipt": f"{number}.json"}
        at = int((NOW - timedelta(days=age)).timestamp() * 1000)
        made.append(
            Snapshot(
                snapshot_id=number, timestamp_ms=at, manifest_list="", summary=Summary(Operation.APPEND, **summary)
            )
        )
    return made


def kept(snapshots: list[Snapshot], needed: set[int] | None = None, rules: Maintenance = RULES) -> int:
    """How many of the newest stay; all others expire."""
    found = cut_history(snapshots, rules, NOW, needed=needed or set())
    assert [*found.kept, *found.expired] == snapshots
    return len(found.kept)


def test_the_newest_snapshot_stays_however_old_it_is() -> None:
    assert kept(history(90, 100, 110)) == 1


def test_a_snapshot_stays_until_it_was_followed_for_so_long() -> None:
    assert kept(history(1, 8, 9)) == 2, "readers took the second for the newest a day ago"
    assert kept(history(7, 8, 9)) == 2
    assert kept(history(7.001, 8, 9)) == 1


def test_clocks_that_went_back_keep_more() -> None:
    assert kept(history(90, 2, 90, 90)) == 3


@pytest.mark.parametrize(("least", "stay"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_newest_few_stay(least: int, stay: int) -> None:
    rules = Maintenance(snapshot_age=timedelta(days=7), min_snapshots=least)
    assert kept(history(90, 100, 110), rules=rules) == stay


def test_what_is_needed_stays_with_all_that_is_newer() -> None:
    assert kept(history(90, 100, 110, 120), {2}) == 3
    assert kept(history(90, 100, 110, 120), {77}) == 1, "what is gone already holds nothing back"


def test_the_oldest_that_stays_has_a_receipt() -> None:
    assert kept(history(90, 100, 110, 120, without_receipt=(0, 1))) == 3
    assert kept(history(90, 100, without_receipt=(0, 1))) == 2, "no receipt at all: nothing expires"


def test_a_table_without_receipts_needs_none() -> None:
    assert len(cut_history(history(90, 100, without_receipt=(0, 1)), RULES, NOW, receipts=False).kept) == 1


def test_a_tag_keeps_its_snapshot_and_no_other() -> None:
    snapshots = history(90, 100, 110, 120)
    found = cut_history(snapshots, RULES, NOW, tagged={2})
    assert (found.kept, found.expired) == (snapshots[:1], [snapshots[1], snapshots[3]])


def test_a_tag_that_makes_history_longer_does_not_leave_it_without_a_receipt() -> None:
    """What stays without a gap is all that a ledger sees, so its oldest snapshot is the one that counts."""
    assert len(cut_history(history(90, 100, 110, 120), RULES, NOW, tagged={0, 1}).kept) == 2
    assert len(cut_history(history(90, 100, 110, 120, without_receipt=(1,)), RULES, NOW, tagged={0, 1}).kept) == 3
