"""What an explanation reads: the cells concerned, and of the others the column of an id where nothing else is known."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFile

from dedup_platform import tables
from dedup_platform.lake.snapshots import cell_of, head, live_files
from dedup_platform.planning.cells import Cell
from dedup_platform_tests.changes.test_feeds import EVENTS, TEN
from dedup_platform_tests.explain.histories import Explained

DAYS, ENTITIES, EVENTS_A_DAY = 3, 6, 10
FOOTER = 64 * 1024
"""So much of a file's end is read in one go, whatever the length of its footer."""


class Reads:
    """How many bytes were read of each data file, by its path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = Counter[str]()
        opening = PyArrowFile.open
        monkeypatch.setattr(PyArrowFile, "open", lambda file, seekable=True: self._counted(opening, file, seekable))

    def _counted(self, opening: Any, file: PyArrowFile, seekable: bool) -> Any:
        opened = opening(file, seekable)
        if not file.location.endswith(".parquet"):
            return opened
        self.bytes[file.location] += 0
        return pa.PythonFile(_Counting(opened, file.location, self.bytes), mode="r")


class _Counting:
    def __init__(self, file: pa.NativeFile, path: str, counter: Counter[str]) -> None:
        self._file, self._path, self._counter = file, path, counter

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(None if size < 0 else size)
        self._counter[self._path] += len(found)
        return bytes(found)

    def read_buffer(self, size: int) -> pa.Buffer:
        found = self._file.read_buffer(size)
        self._counter[self._path] += found.size
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Explained:
    """Some days of some entities, each with events of long texts, some of which came twice."""
    explained = Explained(tmp_path_factory.mktemp("filled"), buckets=2, window="6h")
    events = [
        explained.event(f"{entity}-{day}-{number}", day * 1440 + number, f"{entity}", page=text(entity, day, number))
        for entity in range(ENTITIES)
        for day in range(DAYS)
        for number in range(EVENTS_A_DAY)
    ]
    explained.take_in(*events)
    explained.take_in(*events[:20])
    return explained


@pytest.fixture
def filled(stream: Explained, monkeypatch: pytest.MonkeyPatch) -> tuple[Explained, Reads]:
    return stream, Reads(monkeypatch)


def text(*of: object) -> str:
    """Letters that cannot be squeezed, so that a file is larger than what is read of its end at once."""
    return hashlib.shake_256(repr(of).encode()).hexdigest(4000)


def cells(explained: Explained, table: str) -> dict[str, Cell | None]:
    """The cell of each data file of a table."""
    loaded = explained.platform.lake.catalog.load_table(EVENTS, table)
    return {file.file_path: cell_of(file) for file in live_files(loaded, head(loaded))}


def opened(explained: Explained, reads: Reads, table: str) -> set[Cell | None]:
    """The cells of a table of which files were opened."""
    return {cell for path, cell in cells(explained, table).items() if path in reads.bytes}


EVENT = "3-2-7"


@pytest.mark.parametrize("knows", ["partition", "entity"])
def test_with_the_entity_only_cells_of_its_bucket_are_read(knows: str, filled: tuple[Explained, Reads]) -> None:
    explained, reads = filled
    day = explained.stream.partitions.ordinal(TEN) + 2
    event = explained.the_event(EVENT, "3", day if knows == "partition" else None)
    assert len(event.records) == 1
    days = {day} if knows == "partition" else set(range(day - 2, day + 1))
    [bucket] = {cell.bucket for cell in opened(explained, reads, tables.DEDUPLICATED_EVENTS) if cell}
    assert opened(explained, reads, tables.DEDUPLICATED_EVENTS) == {Cell(each, bucket) for each in days}
    for table in (tables.RAW_EVENTS, tables.SESSIONS):
        assert opened(explained, reads, table) == {Cell(day, bucket)}, table
    for path in cells(explained, tables.RAW_EVENTS).keys() & reads.bytes.keys():
        # Once for the column of ids, and once for the rest of the row; the payload never.
        most = Path(path.removeprefix("file:")).stat().st_size - _column(path, "payload") + _column(path, "event_id")
        assert 0 < reads.bytes[path] <= most + 2 * FOOTER
        assert most + 2 * FOOTER < 2 * _column(path, "payload") + 2 * FOOTER, "else it proves nothing"


def test_with_an_id_alone_only_its_column_is_read_of_other_cells(filled: tuple[Explained, Reads]) -> None:
    explained, reads = filled
    assert len(explained.the_event(EVENT).records) == 1
    day = explained.stream.partitions.ordinal(TEN) + 2
    assert len(opened(explained, reads, tables.DEDUPLICATED_EVENTS)) == len(
        set(cells(explained, tables.DEDUPLICATED_EVENTS).values())
    )
    for path, cell in cells(explained, tables.DEDUPLICATED_EVENTS).items():
        if cell and cell.partition != day:
            assert 0 < reads.bytes[path] <= _column(path, "event_id") + FOOTER
    assert {cell.partition for cell in opened(explained, reads, tables.RAW_EVENTS) if cell} == {day}


def test_a_session_is_looked_for_by_its_id_alone(filled: tuple[Explained, Reads]) -> None:
    explained, reads = filled
    row = next(each for each in explained.sessions() if each["entity_id"] == "3")
    day = explained.stream.partitions.ordinal(row["started_at"])
    reads.bytes.clear()
    session = explained.session_answer(row["session_id"], day).session
    assert session is not None
    assert len(session.events) == EVENTS_A_DAY
    assert {cell.partition for cell in opened(explained, reads, tables.SESSIONS) if cell} == {day}
    for table in (tables.DEDUPLICATED_EVENTS, tables.DUPLICATE_EVENTS):
        assert len(opened(explained, reads, table)) <= 1, table
    assert opened(explained, reads, tables.RAW_EVENTS) == set()


def test_new_events_are_left_out_of_a_history_by_statistics(filled: tuple[Explained, Reads]) -> None:
    explained, reads = filled
    assert explained.the_event(EVENT, "3").changes == ()
    feed = [path for path in reads.bytes if "event_changes" in path]
    assert feed
    assert all(reads.bytes[path] <= FOOTER for path in feed)


def _column(path: str, name: str) -> int:
    """How many bytes a column has in a file."""
    metadata = pq.read_metadata(path.removeprefix("file:"))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return sum(column.total_compressed_size for column in columns if column.path_in_schema == name)
