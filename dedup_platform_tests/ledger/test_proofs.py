"""What nothing proves to be up to date is stale, whatever was lost: receipts, the control database, or both."""

from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.maintenance.buckets import Rebucketing
from dedup_platform.planning.cells import Cell
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, RAW_EVENTS, SESSION_FRAGMENTS
from dedup_platform_tests.lived import ARRIVED, BUCKETS, Lived
from dedup_platform_tests.variants import some

LATER = ARRIVED + timedelta(days=1)
MORE = 2 * BUCKETS
NOTHING: dict[str, set[Cell]] = {table: set() for table in DERIVED}


@pytest.fixture
def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lived:
    """All of it built, nothing stale."""
    lived = Lived(tmp_path)
    for table in DERIVED:
        lived.described.build(table, ARRIVED)
    described = lived.described
    monkeypatch.setattr(Rebucketing, "_copies_of", lambda *arguments: described.copies(*arguments))
    assert not any(lived.stale().values())
    return lived


def renumbered(lived: Lived) -> set[Cell]:
    """All cells once they are so many more."""
    lived.opened(buckets=0).change_buckets(lived.stream.name, MORE)
    return {Cell(cell.partition, bucket) for cell in lived.cells for bucket in range(MORE)}


@pytest.mark.parametrize("is_renumbered", some([False, True], quick=[True]))
def test_with_all_receipts_lost_every_cell_is_stale(is_renumbered: bool, lived: Lived) -> None:
    cells = renumbered(lived) if is_renumbered else set(lived.cells)
    lived.lose_receipts()
    lived.file.unlink()
    assert lived.stale() == dict.fromkeys(DERIVED, cells)


def test_with_all_receipts_lost_and_the_control_database_kept_nothing_is_stale(lived: Lived) -> None:
    lived.lose_receipts()
    assert not any(lived.stale().values())


def test_with_the_receipt_of_one_new_numbering_lost_all_cells_of_that_table_are_stale(lived: Lived) -> None:
    cells = renumbered(lived)
    head = lived.platform.ledger.sync(lived.stream.name)[SESSION_FRAGMENTS]
    assert head.receipt
    (lived.settings.home / "warehouse" / lived.stream.name / "receipts" / head.receipt).unlink()
    lived.file.unlink()
    assert lived.stale() == NOTHING | {SESSION_FRAGMENTS: cells}


@pytest.mark.parametrize("is_refolded", some([False, True], quick=[True]))
@pytest.mark.parametrize("table", DERIVED)
def test_cells_that_a_foreign_writer_changed_are_stale_until_they_are_built(
    table: str, is_refolded: bool, lived: Lived
) -> None:
    cells = set(lived.cells[:2])
    lived.described.rewrite(table, cells, LATER)
    if is_refolded:
        lived.file.unlink()
    assert lived.stale()[table] == cells
    for each in DERIVED:
        lived.described.build(each, LATER)
    assert not any(lived.stale().values())


def test_who_took_rows_from_raw_without_a_receipt_disturbed_their_whole_buckets(lived: Lived) -> None:
    robbed = lived.cells[0]
    lived.described.rewrite(RAW_EVENTS, [robbed], LATER)
    found = lived.changes()
    assert {cell for cell, change in found.items() if change.disturbed} == set(found)
    assert set(found) == {cell for cell in lived.cells if cell.bucket == robbed.bucket}


def test_what_came_between_the_swaps_of_a_table_and_of_its_input_is_stale(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a receipt of an older version says of it: that it was built from the input's newest snapshot."""
    original, come = Rebucketing._swap, Cell(lived.cells[0].partition, MORE - 1)

    def swap(self: Rebucketing, *arguments: object) -> None:
        original(self, *arguments)  # type: ignore[arg-type]
        if not lived.came:
            lived.came = True
            lived.described.ingest([come], LATER)

    monkeypatch.setattr(Rebucketing, "_swap", swap)
    renumbered(lived)
    for is_refolded in (False, True):
        assert lived.stale()[DEDUPLICATED_EVENTS] == {come}, is_refolded
        lived.file.unlink()


def test_a_control_database_that_is_lost_proves_as_much_when_it_is_rebuilt(lived: Lived) -> None:
    lived.described.ingest(lived.cells[:2], LATER)
    lived.described.build(DEDUPLICATED_EVENTS, LATER, lived.cells[:1])
    for _ in range(2):
        assert lived.stale() == NOTHING | {
            DEDUPLICATED_EVENTS: {lived.cells[1]},
            SESSION_FRAGMENTS: {lived.cells[0]},
        }
        lived.file.unlink()
