"""Files that a person has left out: they count as read, and nothing of them is, until the person says otherwise."""

import os
import shutil
from pathlib import Path

import pytest

from dedup_platform.errors import HeldBatchError, UnknownFileError
from dedup_platform.lake.staged import Staged
from dedup_platform.maintenance.checkpoints import Checkpoints
from dedup_platform.stream.rules import Reject
from dedup_platform_tests.ingest.folder import EVENTS, Folder


class Skipping(Folder):
    """What people skip in it, and what is read."""

    def skip(self, *names: str) -> None:
        self.platform.source.skip_files(EVENTS, names)

    def ingest(self) -> dict[str, int]:
        """Of each file the number of its rows in raw, after all that waits was taken in."""
        self.platform.ingest(EVENTS)
        stream = self.platform.stream(EVENTS)
        at = self.platform.lake.current(stream, "raw_events")
        found: dict[str, int] = {}
        for frame in self.platform.lake.batches(stream, "raw_events", at, ["source"]):
            for (path,) in frame.iter_rows():
                found[path] = found.get(path, 0) + 1
        return found

    @property
    def skipped(self) -> list[str]:
        return self.platform.source.skipped(EVENTS)

    @property
    def changed(self) -> list[str]:
        return list(self.platform.source.waiting(EVENTS).changed)


@pytest.fixture
def folder(tmp_path: Path) -> Skipping:
    found = Skipping(tmp_path)
    found.put("one.json", 1)
    assert found.ingest() == {"one.json": 1}
    return found


def test_a_file_that_waits_is_left_out_and_its_neighbours_are_read(folder: Skipping) -> None:
    for name in ("two.json", "three.json"):
        folder.put(name, 2)
    folder.skip("two.json")
    assert folder.skipped == ["two.json"]
    assert folder.ingest() == {"one.json": 1, "three.json": 2}
    assert not folder.platform.source.waiting(EVENTS).items
    assert folder.platform.ledger.files_read(EVENTS) == 2
    assert folder.platform.status(EVENTS).skipped == ("two.json",)


def test_a_file_that_changed_after_it_was_read_keeps_its_rows_and_its_change_is_left_out(folder: Skipping) -> None:
    folder.put("one.json", 3)
    folder.platform.ingest(EVENTS)
    assert folder.changed == ["one.json"]
    folder.skip("one.json")
    assert folder.ingest() == {"one.json": 1}
    assert folder.changed == []
    assert folder.platform.ledger.files_read(EVENTS) == 1


def test_the_first_batch_may_be_skipped_before_there_are_tables(tmp_path: Path) -> None:
    folder = Skipping(tmp_path)
    folder.put("one.json", 1)
    folder.put("two.json", 2)
    folder.skip("one.json")
    assert folder.ingest() == {"two.json": 2}


def test_all_that_waits_may_be_skipped_before_there_are_tables(tmp_path: Path) -> None:
    folder = Skipping(tmp_path)
    folder.put("one.json", 1)
    folder.skip("one.json")
    assert folder.ingest() == {}


@pytest.mark.parametrize("name", ["one.json", "nowhere.json"])
def test_what_does_not_wait_cannot_be_skipped_and_then_none_of_it_is(folder: Skipping, name: str) -> None:
    folder.put("two.json", 2)
    with pytest.raises(UnknownFileError, match=rf"{name} does not wait to be read; what waits: two\.json"):
        folder.skip("two.json", name)
    assert folder.skipped == []


def test_a_skipped_file_is_read_after_all_once_it_is_accepted(folder: Skipping) -> None:
    folder.put("two.json", 2)
    folder.skip("two.json")
    folder.ingest()
    folder.platform.source.accept_files(EVENTS, ["two.json"])
    assert folder.ingest() == {"one.json": 1, "two.json": 2}
    assert folder.skipped == []


def test_a_skipped_file_that_changes_later_waits_for_a_person(folder: Skipping) -> None:
    folder.put("two.json", 2)
    folder.skip("two.json")
    folder.put("two.json", 3)
    assert folder.ingest() == {"one.json": 1}
    assert folder.changed == ["two.json"]
    folder.platform.source.accept_files(EVENTS, ["two.json"])
    assert folder.ingest() == {"one.json": 1, "two.json": 3}


def test_a_batch_that_is_held_for_one_file_is_taken_in_once_that_file_is_skipped(tmp_path: Path) -> None:
    folder = Skipping(tmp_path)
    folder.stream = folder.stream.model_copy(update={"reject": Reject(max_ratio=0.5, min_records=1)})
    folder.platform = folder.opened()
    folder.put("good.json", 1)
    broken = folder.stream.files.root / "broken.json"
    broken.write_text("broken\n" * 3)
    os.utime(broken, (1_700_000_000,) * 2)
    with pytest.raises(HeldBatchError):
        folder.platform.ingest(EVENTS)
    folder.skip("broken.json")
    assert folder.ingest() == {"good.json": 1}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_skipped_is_told_by_the_lake_and_not_by_the_control_database(
    folder: Skipping, checkpoint: bool
) -> None:
    folder.put("two.json", 2)
    folder.skip("two.json")
    if checkpoint:
        Checkpoints(folder.platform.lake, folder.platform.ledger).commit_positions(folder.stream)
    folder.lose_control_database()
    assert folder.ingest() == {"one.json": 1}
    assert folder.skipped == ["two.json"]


def test_what_is_skipped_is_read_if_all_that_told_so_is_lost(folder: Skipping) -> None:
    folder.put("two.json", 2)
    folder.skip("two.json")
    shutil.rmtree(folder.home / "warehouse" / EVENTS / "receipts")
    folder.lose_control_database()
    assert folder.ingest() == {"one.json": 1, "two.json": 2}


def test_an_ingest_that_is_at_the_file_when_it_is_skipped_does_not_take_it_in(
    folder: Skipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("two.json", "three.json"):
        folder.put(name, 2)
    publish, other = folder.platform.lake.publish, folder.opened()

    def late(staged: Staged) -> None:
        monkeypatch.undo()
        other.source.skip_files(EVENTS, ["two.json"])
        publish(staged)

    monkeypatch.setattr(folder.platform.lake, "publish", late)
    assert folder.ingest() == {"one.json": 1, "three.json": 2}
