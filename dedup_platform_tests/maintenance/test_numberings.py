"""A change of the number of buckets that something came between: it finishes, and what it cannot prove is stale.

Copies are described by metadata alone: what a copy holds is tested with Spark (`test_buckets`).
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform import tables
from dedup_platform.errors import ConflictError, IncompatibleChangeError
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import BuildReceipt
from dedup_platform.lake.snapshots import added_files, bucket_count, changes_numbering, head, paired_duplicates
from dedup_platform.lake.staged import Staged
from dedup_platform.maintenance.buckets import Rebucketing
from dedup_platform.planning.cells import Cell
from dedup_platform.platform import Platform
from dedup_platform.stream import Sessions
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, DUPLICATE_EVENTS, RAW_EVENTS, SESSION_FRAGMENTS
from dedup_platform_tests.lived import ARRIVED, BUCKETS, Lived
from dedup_platform_tests.variants import some

LATER = ARRIVED + timedelta(days=1)
MORE = 2 * BUCKETS


class KilledError(Exception):
    """In place of a SIGKILL."""


@pytest.fixture
def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lived:
    lived = Lived(tmp_path)
    for table in DERIVED:
        lived.described.build(table, ARRIVED)
    monkeypatch.setattr(Rebucketing, "_copies_of", lambda *arguments: lived.described.copies(*arguments))
    return lived


@pytest.fixture
def kill(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def kill_after(swaps: int) -> None:
        """Let a change of the number of buckets die after so many swaps."""
        published: list[str] = []

        def publish(self: Lakehouse, staged: Staged) -> None:
            if len(published) == swaps:
                raise KilledError
            published.append(staged.table)
            original(self, staged)

        original = Lakehouse.publish
        with monkeypatch.context() as patch:
            patch.setattr(Lakehouse, "publish", publish)
            with pytest.raises(KilledError):
                change(lived)

    return kill_after


def change(lived: Lived, buckets: int = MORE) -> Platform:
    platform = lived.opened(buckets=0)
    assert platform.change_buckets(lived.stream.name, buckets)
    counts = {bucket_count(platform.lake.catalog.load_table(lived.stream.name, table)) for table in tables.ALL}
    assert counts == {buckets}
    return platform


def cells_of(lived: Lived, buckets: int = MORE) -> set[Cell]:
    return {Cell(cell.partition, bucket) for cell in lived.cells for bucket in range(buckets)}


def test_with_the_number_that_it_has_it_repairs_and_says_so(lived: Lived) -> None:
    lived.described.ingest(lived.cells[:1], LATER)
    platform, repaired = lived.opened(), []
    rebucketing = Rebucketing(platform.lake, platform.ledger)
    assert not rebucketing.change(lived.stream, BUCKETS, lambda: repaired.append(True), lambda *_: None)
    assert repaired


def test_a_table_names_the_snapshot_by_which_its_input_was_swapped(lived: Lived, kill: Callable[[int], None]) -> None:
    kill(1)
    come = Cell(lived.cells[0].partition, MORE - 1)
    lived.described.ingest([come], LATER)
    platform = change(lived)
    for table, source in tables.INPUT_OF.items():
        receipt = platform.lake.catalog.read_receipt(
            lived.stream.name, platform.ledger.sync(lived.stream.name)[table].receipt or ""
        )
        swaps = filter(changes_numbering, platform.lake.catalog.load_table(lived.stream.name, source).snapshots())
        assert isinstance(receipt, BuildReceipt)
        assert receipt.built_from[source].snapshot == next(swaps).snapshot_id
    assert lived.stale() == {table: {come} if table == DEDUPLICATED_EVENTS else set() for table in DERIVED}


@pytest.mark.parametrize("swaps", some(range(1, 5), quick=[1, 4]))
def test_settings_that_changed_while_it_was_not_finished_are_no_obstacle(
    swaps: int, lived: Lived, kill: Callable[[int], None]
) -> None:
    kill(swaps)
    rules = Sessions(timeout=timedelta(minutes=1), aggregates=lived.stream.aggregates)
    lived.stream = lived.stream.model_copy(update={"sessions": rules})
    change(lived)
    assert lived.stale() == {table: set() if table == DEDUPLICATED_EVENTS else cells_of(lived) for table in DERIVED}


def test_the_control_database_and_all_receipts_lost_amid_it_it_finishes_and_all_is_stale(
    lived: Lived, kill: Callable[[int], None]
) -> None:
    kill(2)
    lived.lose_receipts()
    lived.file.unlink()
    change(lived)
    assert lived.stale() == dict.fromkeys(DERIVED, cells_of(lived))


def test_the_control_database_lost_amid_it_it_finishes_and_nothing_is_stale(
    lived: Lived, kill: Callable[[int], None]
) -> None:
    kill(2)
    lived.file.unlink()
    change(lived)
    assert not any(lived.stale().values())


def test_cells_that_another_writer_changed_before_their_table_was_swapped_are_stale(
    lived: Lived, kill: Callable[[int], None]
) -> None:
    kill(2)
    lived.described.rewrite(SESSION_FRAGMENTS, lived.cells[:1], LATER)
    change(lived)
    assert lived.stale()[SESSION_FRAGMENTS] == cells_of(lived)


@pytest.mark.parametrize("swaps", some([0, 1], quick=[1]))
def test_duplicates_without_their_events_are_not_what_readers_see_and_all_is_built_anew(
    swaps: int, lived: Lived, kill: Callable[[int], None]
) -> None:
    """Their writer was killed, or lost the race for the events."""
    if swaps:
        kill(swaps)
    before = lived.platform.lake.current(lived.stream, DUPLICATE_EVENTS)
    lived.described.rewrite(DUPLICATE_EVENTS, lived.cells[:1], LATER)
    platform = change(lived)
    assert lived.stale() == {table: cells_of(lived) if table == DEDUPLICATED_EVENTS else set() for table in DERIVED}
    assert platform.lake.current(lived.stream, DUPLICATE_EVENTS) == before


def test_without_any_the_events_are_paired_with_the_duplicates_that_were_swapped(lived: Lived) -> None:
    platform = change(lived)
    events, duplicates = (
        platform.lake.catalog.load_table(lived.stream.name, table) for table in (DEDUPLICATED_EVENTS, DUPLICATE_EVENTS)
    )
    assert paired_duplicates(events) == head(duplicates).snapshot_id


def test_one_that_was_begun_is_finished_before_another_begins(lived: Lived, kill: Callable[[int], None]) -> None:
    kill(1)
    with pytest.raises(IncompatibleChangeError, match=rf"`dedup-platform buckets {lived.stream.name} {MORE}` finishes"):
        change(lived, BUCKETS)
    change(lived)
    change(lived, BUCKETS)
    assert not any(lived.stale().values())


def test_what_was_written_under_one_numbering_is_not_published_under_another(lived: Lived) -> None:
    lake, stream = lived.platform.lake, lived.stream
    staged = lived.described.stage_arrival(lived.cells[0], LATER)
    change(lived)
    raw = lake.catalog.load_table(stream.name, RAW_EVENTS)
    written = list(added_files(raw, next(each for each in raw.snapshots() if each.snapshot_id == staged.snapshot_id)))
    again = lake.stage_append(stream, RAW_EVENTS, lake.current(stream, RAW_EVENTS), written, {})
    with pytest.raises(ConflictError):
        lake.publish(again)
    assert not any(lived.stale().values())
