"""Whatever the catalog names was put on the disk before it did: a power cut leaves tables that can be read."""

import errno
import os
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from multiprocessing import get_context
from pathlib import Path
from queue import Queue
from typing import NoReturn

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from sqlalchemy import event

from dedup_platform.lake import durable
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.durable import DurableFileIO, put_away, send_ahead, sync_written
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.receipts import FilesReceipt
from dedup_platform.lake.snapshots import head
from dedup_platform.planning.cells import Cell
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """What is on the disk: the files and folders that were synced."""
    on_disk: set[Path] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        on_disk.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    return on_disk


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return make_stream(tmp_path)


@pytest.fixture
def lake(tmp_path: Path, disk: set[Path]) -> Lakehouse:
    """A lake whose catalog does not commit before all in its warehouse is on the disk."""
    catalog = Catalog(Settings(home=tmp_path / "home"))
    warehouse = Path(catalog.settings.warehouse)

    def all_is_on_disk(_: object) -> None:
        # At its own start the catalog commits its own tables.
        missing = {each for each in warehouse.rglob("*") if each not in disk} - {warehouse}
        assert not missing, "the catalog commits, and these would be lost"

    event.listen(catalog.iceberg.engine, "commit", all_is_on_disk)  # type: ignore[attr-defined]
    return Lakehouse(catalog, no_spark)


def no_spark() -> NoReturn:
    raise AssertionError("commits need no Spark")


def append(lake: Lakehouse, stream: Stream, cells: int) -> None:
    files = lake.table_files(stream, RAW_EVENTS)
    schema = schema_to_pyarrow(files.metadata.schema(), include_field_ids=False)
    rows = pa.Table.from_pylist([{"entity_id": "a", "event_time": utc("2024-03-01T10:00")}], schema)
    added = [files.write(Cell(19783 + number, 0), rows) for number in range(cells)]
    receipt = FilesReceipt()
    base = head(lake.catalog.load_table(stream.name, RAW_EVENTS)).snapshot_id
    lake.catalog.write_receipt(stream.name, receipt)
    lake.publish(lake.stage_append(stream, RAW_EVENTS, base, added, {"receipt": receipt.name}))


def test_all_that_a_commit_names_is_on_the_disk_before_it(lake: Lakehouse, stream: Stream, disk: set[Path]) -> None:
    lake.create(stream, 1)
    append(lake, stream, 3)
    append(lake, stream, 3)
    # Whoever ran before in this process may have left files that nobody synced.
    of_lake = [path for path in disk if path.is_relative_to(lake.catalog.settings.home)]
    assert len([path for path in of_lake if path.suffix == ".parquet"]) == 6
    assert [path.suffix for path in of_lake if path.parent.name == "receipts"] == [".json", ".json"]


def test_what_is_synced_is_on_the_disk_with_the_folders_around_it(tmp_path: Path, disk: set[Path]) -> None:
    with DurableFileIO().new_output(str(tmp_path / "new" / "a")).create() as file:
        file.write(b"x")
    sync_written()
    assert disk >= {tmp_path / "new" / "a", tmp_path / "new", tmp_path}


def test_what_was_put_away_is_on_the_disk_before_its_pages_go(
    tmp_path: Path, disk: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[Path] = []

    def noting(descriptor: int, *_: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        assert path in disk
        let_go.append(path)

    monkeypatch.setattr(os, "posix_fadvise", noting)
    put_file_away(tmp_path / "a")
    sync_written()
    assert let_go == [tmp_path / "a"]
    assert tmp_path in disk


def test_what_is_sent_ahead_is_begun_with_at_once_and_awaited_as_part_of_its_file(
    tmp_path: Path, disk: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: Queue[Path] = Queue()
    monkeypatch.setattr(os, "posix_fadvise", lambda opened, *_: begun.put(Path(f"/proc/self/fd/{opened}").readlink()))
    output = DurableFileIO().new_output(str(tmp_path / "a"))
    with output.create() as file:
        file.write(b"x")
        send_ahead(output)
        assert begun.get(timeout=10) == tmp_path / "a"
        assert not disk
        file.write(b"y")
    put_away(output)
    sync_written()
    assert tmp_path / "a" in disk


def test_a_disk_that_fails_while_a_file_is_sent_ahead_is_told_to_whoever_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: int) -> NoReturn:
        raise OSError(errno.EIO, "the disk fails")

    output = DurableFileIO().new_output(str(tmp_path / "a"))
    with output.create() as file:
        file.write(b"x")
        send_ahead(output)
    monkeypatch.setattr(os, "fsync", failing)
    put_away(output)
    with pytest.raises(OSError, match="the disk fails"):
        sync_written()


def test_what_is_gone_when_it_is_sent_ahead_troubles_nobody(tmp_path: Path) -> None:
    output = DurableFileIO().new_output(str(tmp_path / "a"))
    with output.create() as file:
        file.write(b"x")
        (tmp_path / "a").unlink()
        send_ahead(output)
    put_away(output)
    sync_written()


def test_a_disk_that_fails_is_told_to_whoever_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> NoReturn:
        raise OSError(errno.EIO, "the disk fails")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        put_file_away(tmp_path / "a")
        # A second try may succeed though what was written is lost.
        wait(durable._on_their_way)
    with pytest.raises(OSError, match="the disk fails"):
        sync_written()


def test_a_fork_puts_files_away_itself(tmp_path: Path) -> None:
    put_file_away(tmp_path / "a")

    def put_another_away() -> None:
        put_file_away(tmp_path / "b")
        sync_written()

    child = get_context("fork").Process(target=put_another_away)
    child.start()
    child.join(30)
    child.kill()
    assert child.exitcode == 0
    sync_written()


def put_file_away(path: Path) -> None:
    output = DurableFileIO().new_output(str(path))
    with output.create() as file:
        file.write(b"x")
    put_away(output)


def test_what_tasks_write_is_on_the_disk_when_they_are_done(
    tmp_path: Path, disk: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of task: on a machine of its own, nobody else could sync it."""
    stream = make_stream(tmp_path)
    warehouse = tmp_path / "home" / "warehouse"
    written: dict[str, set[Path]] = {}

    def watched(kind: str) -> Callable[..., list[bytes]]:
        def on_workers(_: object, tasks: Iterable[bytes], run: Callable[[bytes], bytes]) -> list[bytes]:
            done = []
            for task in tasks:
                before = set(warehouse.rglob("*.parquet"))
                done.append(run(task))
                new = set(warehouse.rglob("*.parquet")) - before
                assert new <= disk, f"{kind}: a task ended and these would be lost: {new - disk}"
                written.setdefault(kind, set()).update(new)
            return done

        return on_workers

    kinds = ("ingest.append", "recompute.tasks", "replay.rewrite")
    for kind in kinds:
        monkeypatch.setattr(f"dedup_platform.{kind}.on_workers", watched(kind))
    write_batch(stream, lay_out([record("a", "1", utc("2024-03-01T10:00"))], "one.json"))
    with (stream.files.root / "one.json").open("a") as file:
        file.write("no json\n")
    platform = light_platform(tmp_path / "home", stream, HeldClock(utc("2030-01-01")))
    platform.ingest(stream.name)
    platform.repair(stream.name)
    assert platform.rejected.drop(stream.name).altered == 1
    assert all(written[kind] for kind in kinds)


def test_a_file_that_is_still_being_written_waits_for_the_next_time(tmp_path: Path, disk: set[Path]) -> None:
    paths = [tmp_path / name for name in ("open", "closed", "gone")]
    opened, *others = [DurableFileIO().new_output(str(path)).create() for path in paths]
    for file in others:
        file.close()
    paths[2].unlink()
    sync_written()
    assert disk & {*paths} == {paths[1]}
    opened.close()
    sync_written()
    assert disk & {*paths} == {*paths[:2]}


def test_files_that_wait_to_be_synced_hold_no_memory(tmp_path: Path) -> None:
    before = pa.total_allocated_bytes()
    for number in range(20):
        with DurableFileIO().new_output(str(tmp_path / f"{number}")).create() as file:
            file.write(b"x")
    # The last one's buffer is held until the next is made; each has a megabyte.
    assert pa.total_allocated_bytes() - before < 4 * 2**20
    sync_written()
