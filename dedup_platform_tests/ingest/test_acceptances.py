"""Files that changed after they were read, and what a person's word about one is good for."""

import shutil
from pathlib import Path

import pytest

from dedup_platform.errors import UnknownFileError
from dedup_platform_tests.ingest.folder import EVENTS, Folder

NAME = "one.json"


class Accepting(Folder):
    """What is read of one file in it."""

    def ingest(self) -> tuple[int, tuple[str, ...]]:
        """Rows of raw after it, and the files that changed."""
        self.platform.ingest(EVENTS)
        return self.platform.rows(EVENTS, "raw_events"), self.platform.source.waiting(EVENTS).changed

    def lose(self, *, control: bool) -> None:
        """The receipts, and the control database."""
        shutil.rmtree(self.home / "warehouse" / EVENTS / "receipts")
        if control:
            self.lose_control_database()
        self.platform = self.opened()


@pytest.fixture
def folder(tmp_path: Path) -> Accepting:
    found = Accepting(tmp_path)
    found.put(NAME, 1)
    assert found.ingest() == (1, ())
    return found


def test_an_acceptance_is_used_up_by_the_ingest_that_reads_the_file(folder: Accepting) -> None:
    for content, rows in ((2, 3), (1, 4)):
        folder.put(NAME, content)
        assert folder.ingest()[1] == (NAME,)
        folder.platform.source.accept_files(EVENTS, [NAME])
        assert folder.ingest() == (rows, ())
    folder.put(NAME, 2)
    assert folder.ingest() == (4, (NAME,))
    folder.put(NAME, 1)
    assert folder.ingest() == (4, ())


def test_what_nobody_changed_needs_no_acceptance(folder: Accepting) -> None:
    with pytest.raises(UnknownFileError, match=r"one\.json did not change after being read"):
        folder.platform.source.accept_files(EVENTS, [NAME])


def test_a_change_is_seen_after_receipts_and_control_database_were_lost(folder: Accepting) -> None:
    folder.lose(control=True)
    assert folder.ingest() == (1, ())
    folder.put(NAME, 2)
    assert folder.ingest() == (1, (NAME,))
    folder.platform.source.accept_files(EVENTS, [NAME])
    assert folder.ingest() == (3, ())


def test_what_was_accepted_and_lost_with_the_receipts_can_be_accepted_again(folder: Accepting) -> None:
    folder.put(NAME, 2)
    folder.ingest()
    folder.platform.source.accept_files(EVENTS, [NAME])
    folder.lose(control=True)
    # Nothing tells that the file is another one than was read.
    assert folder.ingest() == (1, ())
    folder.platform.source.accept_files(EVENTS, [NAME])
    assert folder.ingest() == (3, ())
    with pytest.raises(UnknownFileError):
        folder.platform.source.accept_files(EVENTS, [NAME])


def test_a_control_database_that_is_left_still_knows_a_change_when_receipts_are_lost(folder: Accepting) -> None:
    folder.put(NAME, 2)
    assert folder.ingest() == (1, (NAME,))
    folder.lose(control=False)
    assert folder.ingest() == (1, (NAME,))
