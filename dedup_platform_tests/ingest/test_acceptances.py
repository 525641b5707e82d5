"""Files that changed after they were read, and what a person's word about one is good for."""

import os
import shutil
from pathlib import Path

import pytest

from dedup_platform.errors import UnknownFileError
from dedup_platform.platform import Platform
from dedup_platform.testing import HeldClock, Record, lay_out, light_platform, make_stream, record, utc
from dedup_platform.testing.delivery import write_file

EVENTS, NAME = "events", "one.json"
NOW = HeldClock(utc("2030-01-01T00:00"))


class Folder:
    """A stream of one file, whose times are put back when its content is."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.stream = make_stream(folder)
        self.platform = self.opened()

    def opened(self) -> Platform:
        return light_platform(self.home, self.stream, NOW)

    def put(self, records: int) -> None:
        path = self.stream.files.root / NAME
        path.unlink(missing_ok=True)
        write_file(path, lay_out([_record(number) for number in range(records)], NAME))
        os.utime(path, (1_700_000_000 + records,) * 2)

    def ingest(self) -> tuple[int, tuple[str, ...]]:
        """Rows of raw after it, and the files that changed."""
        self.platform.ingest(EVENTS)
        return self.platform.rows(EVENTS, "raw_events"), self.platform.source.waiting(EVENTS).changed

    def lose(self, *, control: bool) -> None:
        """The receipts, and the control database."""
        shutil.rmtree(self.home / "warehouse" / EVENTS / "receipts")
        for file in self.home.glob("control.db*") if control else ():
            file.unlink()
        self.platform = self.opened()


def _record(number: int) -> Record:
    return record("a", f"x{number}", utc("2024-01-01T00:00"), utc("2024-01-02T00:00"))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path)
    found.put(1)
    assert found.ingest() == (1, ())
    return found


def test_an_acceptance_is_used_up_by_the_ingest_that_reads_the_file(folder: Folder) -> None:
    for content, rows in ((2, 3), (1, 4)):
        folder.put(content)
        assert folder.ingest()[1] == (NAME,)
        folder.platform.source.accept_files(EVENTS, [NAME])
        assert folder.ingest() == (rows, ())
    folder.put(2)
    assert folder.ingest() == (4, (NAME,))
    folder.put(1)
    assert folder.ingest() == (4, ())


def test_what_nobody_changed_needs_no_acceptance(folder: Folder) -> None:
    with pytest.raises(UnknownFileError, match=r"one\.json did not change after being read"):
        folder.platform.source.accept_files(EVENTS, [NAME])


def test_a_change_is_seen_after_receipts_and_control_database_were_lost(folder: Folder) -> None:
    folder.lose(control=True)
    assert folder.ingest() == (1, ())
    folder.put(2)
    assert folder.ingest() == (1, (NAME,))
    folder.platform.source.accept_files(EVENTS, [NAME])
    assert folder.ingest() == (3, ())


def test_what_was_accepted_and_lost_with_the_receipts_can_be_accepted_again(folder: Folder) -> None:
    folder.put(2)
    folder.ingest()
    folder.platform.source.accept_files(EVENTS, [NAME])
    folder.lose(control=True)
    # Nothing tells that the file is another one than was read.
    assert folder.ingest() == (1, ())
    folder.platform.source.accept_files(EVENTS, [NAME])
    assert folder.ingest() == (3, ())
    with pytest.raises(UnknownFileError):
        folder.platform.source.accept_files(EVENTS, [NAME])


def test_a_control_database_that_is_left_still_knows_a_change_when_receipts_are_lost(folder: Folder) -> None:
    folder.put(2)
    assert folder.ingest() == (1, (NAME,))
    folder.lose(control=False)
    assert folder.ingest() == (1, (NAME,))
