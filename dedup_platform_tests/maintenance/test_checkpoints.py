"""Checkpoints: however long a stream lives, few receipts are left, and a ledger is rebuilt from them as it was."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import AnyReceipt, FilesReceipt, Part, PositionsReceipt
from dedup_platform.ledger.schema import LISTINGS, METADATA
from dedup_platform.maintenance import checkpoints, procedures
from dedup_platform.stream import Points, Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DERIVED, RAW_EVENTS, SESSION_FRAGMENTS
from dedup_platform.testing import utc
from dedup_platform_tests.lived import ARRIVED, Lived
from dedup_platform_tests.lives.shortcuts import SHORTCUTS
from dedup_platform_tests.variants import some

EACH = 4
"""Commits of each table between two looks of upkeep."""
AGES_LATER = utc("2999-01-01")
"""Commits bear the time of the machine."""


class KilledError(Exception):
    """In place of a SIGKILL."""


@pytest.fixture
def lived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lived:
    """Nothing of its history is kept for longer than it must be. Upkeep by metadata alone."""
    monkeypatch.setattr(checkpoints, "RECEIPTS", 5)
    monkeypatch.setattr(procedures, "expire_snapshots", expire_snapshots)
    for done_by_spark in ("remove_orphans", "compact_files"):
        monkeypatch.setattr(procedures, done_by_spark, lambda *_, **__: 0)
    for target, replacement in SHORTCUTS.items():
        monkeypatch.setattr(target, replacement)
    lived = Lived(tmp_path)
    none = timedelta(0)
    rules = lived.stream.maintenance.model_copy(update={"snapshot_age": none, "orphan_age": none, "min_snapshots": 1})
    publish = lived.stream.publish.model_copy(update={"points": Points(keep=none, at_most=2)})
    kept = {"maintenance": rules, "publish": publish}
    lived.stream = lived.described.stream = lived.stream.model_copy(update=kept)
    return lived


def expire_snapshots(lake: Lakehouse, stream: Stream, table: str, snapshot_ids: Iterable[int]) -> None:
    loaded = lake.catalog.load_table(stream.name, table)
    loaded.maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def live_on(lived: Lived, commits: int, first: int = 0) -> None:
    """Take in a file and build what it touched, so many times, and look after the tables now and then."""
    for number in range(first, first + commits):
        lived.described.ingest([lived.cells[number % len(lived.cells)]], ARRIVED, [f"{number:04}.json"])
        for table in DERIVED:
            lived.described.build(table, ARRIVED)
        if number % EACH == EACH - 1:
            maintain(lived)


def maintain(lived: Lived) -> None:
    platform = lived.opened()
    platform.clock = lambda: AGES_LATER
    platform.maintain(lived.stream.name)


def stored(lived: Lived) -> set[str]:
    return {file.base_name for file in Catalog(lived.settings).stored_receipts(lived.stream.name)}


def told(lived: Lived) -> dict[str, list[Any]]:
    """All that the control database holds, but for where a listing may start."""
    ledger = lived.opened().ledger
    ledger.sync(lived.stream.name)
    with ledger.engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(sa.select(table))), key=repr)
            for table in METADATA.sorted_tables
            if table is not LISTINGS
        }


def test_few_receipts_are_left_however_many_commits_there_were(lived: Lived) -> None:
    left = []
    for first in range(0, 12 * EACH, 4 * EACH):
        live_on(lived, 4 * EACH, first)
        left.append(len(stored(lived)))
    assert max(left) <= left[0] + 8
    before = told(lived)
    assert len(before["files"]) == 12 * EACH
    lived.file.unlink()
    assert told(lived) == before
    assert not any(lived.stale().values())


def test_a_rebuilt_ledger_reads_the_newest_checkpoint_and_what_came_after_it(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_on(lived, 10 * EACH)
    live_on(lived, 1, 10 * EACH)
    lived.file.unlink()
    read: list[str] = []
    original = Catalog.read_receipt

    def read_receipt(self: Catalog, stream: str, name: str) -> AnyReceipt | None:
        read.append(name)
        return original(self, stream, name)

    monkeypatch.setattr(Catalog, "read_receipt", read_receipt)
    lived.opened().ledger.sync(lived.stream.name)
    assert len(read) <= (1 + len(DERIVED)) * (checkpoints.RECEIPTS + EACH + 2)


@pytest.mark.parametrize("step", ["write_part", "write_receipt", "publish", "delete_receipt"])
@pytest.mark.parametrize("number", some([1, 4], quick=[4]))
def test_killed_at_any_step_it_loses_nothing(
    step: str, number: int, lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    live_on(lived, EACH - 1)
    live_on(lived, EACH - 1, EACH)
    before = lived.stale(), told(lived)["files"]
    owner: Any = Lakehouse if step == "publish" else Catalog
    done: list[None] = []
    original: Callable[..., Any] = getattr(owner, step)

    def killed(*arguments: Any) -> Any:
        done.append(None)
        if len(done) == number:
            raise KilledError
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        with suppress(KilledError):
            maintain(lived)
    for _ in range(2):
        lived.file.unlink()
        assert (lived.stale(), told(lived)["files"]) == before
        maintain(lived)


def test_what_waits_and_what_files_do_not_tell_outlives_a_checkpoint(lived: Lived) -> None:
    live_on(lived, EACH)
    waiting, disturbed, *_ = lived.cells
    lived.described.disturb([disturbed], ARRIVED)
    lived.described.ingest([waiting], ARRIVED)
    lived.described.rewrite(SESSION_FRAGMENTS, lived.cells[:1], ARRIVED)
    stale = lived.stale()
    for number in range(5):
        lived.described.ingest((), ARRIVED, [f"more {number}"])
    maintain(lived)
    lived.file.unlink()
    assert lived.stale() == stale
    changes = lived.changes()
    assert {cell: change.disturbed for cell, change in changes.items()} == {waiting: False, disturbed: True}


def test_a_table_that_is_rolled_back_behind_its_checkpoint_finds_the_receipts_of_then(lived: Lived) -> None:
    kept = lived.stream.maintenance.model_copy(update={"snapshot_age": timedelta(days=999 * 366)})
    lived.stream = lived.described.stream = lived.stream.model_copy(update={"maintenance": kept})
    live_on(lived, EACH)
    expected, name = told(lived), lived.stream.name
    at = lived.platform.ledger.sync(name)[DEDUPLICATED_EVENTS].snapshot_id
    live_on(lived, 2 * EACH, EACH)
    loaded = lived.platform.lake.catalog.load_table(name, DEDUPLICATED_EVENTS)
    loaded.manage_snapshots().rollback_to_snapshot(at).commit()
    found = told(lived)
    of_table = [row for row in found["built"] if row[1] == DEDUPLICATED_EVENTS]
    assert of_table == [row for row in expected["built"] if row[1] == DEDUPLICATED_EVENTS]
    assert lived.stale()[DEDUPLICATED_EVENTS]


def test_lost_parts_are_like_lost_receipts(lived: Lived) -> None:
    live_on(lived, 3 * EACH)
    for name in stored(lived):
        if name.endswith(".parquet"):
            lived.platform.lake.catalog.delete_receipt(lived.stream.name, name)
    lived.file.unlink()
    assert not lived.opened().ledger.sync(lived.stream.name)[RAW_EVENTS].complete
    assert lived.stale()[DEDUPLICATED_EVENTS] >= set(lived.cells[:EACH])


def test_parts_are_few_and_each_row_is_written_again_a_few_times_only(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    original = Catalog.write_part

    def write_part(self: Catalog, stream: str, name: str, rows: pa.Table) -> Part:
        written.append(len(rows))
        return original(self, stream, name, rows)

    monkeypatch.setattr(Catalog, "write_part", write_part)
    for number in range(32):
        lived.described.ingest((), ARRIVED, [f"{number:04}.json"])
        checkpoint = checkpoints.Checkpoints(lived.platform.lake, lived.platform.ledger)
        checkpoint.commit_positions(lived.stream)
    receipt = lived.platform.ledger.sync(lived.stream.name)[tables.RAW_EVENTS].receipt
    found = lived.platform.lake.catalog.read_receipt(lived.stream.name, receipt or "")
    assert found
    assert found.checkpoint
    parts = [part.rows for part in found.checkpoint["files"]]
    assert sum(parts) == 32
    assert len(parts) <= 6
    assert sum(written) <= 32 * 6


def test_a_stream_where_little_happens_gets_no_checkpoint(lived: Lived) -> None:
    maintain(lived)
    heads = lived.platform.ledger.sync(lived.stream.name)
    maintain(lived)
    assert lived.platform.ledger.sync(lived.stream.name) == heads
    assert not {name for name in stored(lived) if name.endswith(".parquet")}


def test_what_a_writer_at_work_has_written_is_not_taken_away(lived: Lived) -> None:
    old = lived.stream.maintenance.model_copy(update={"orphan_age": timedelta(days=3)})
    lived.stream = lived.described.stream = lived.stream.model_copy(update={"maintenance": old})
    lived.platform.lake.catalog.write_receipt(lived.stream.name, FilesReceipt(name="at work.json"))
    live_on(lived, 2 * EACH)
    assert "at work.json" in stored(lived)


def test_where_a_topic_stands_is_kept_as_long_as_a_snapshot_tells_it(lived: Lived) -> None:
    lake, name = lived.platform.lake, "positions.json"
    lake.catalog.write_receipt(lived.stream.name, PositionsReceipt(name=name, positions=(), accepted_up_to=()))
    base = lake.current(lived.stream, RAW_EVENTS)
    lake.publish(lake.stage_nothing(lived.stream, RAW_EVENTS, base, {"positions": name}))
    live_on(lived, 2 * EACH)
    assert name in stored(lived)
