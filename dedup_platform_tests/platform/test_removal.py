"""Streams that begin anew or are taken away: exactly what goes, what stays, and whoever dies or writes meanwhile."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO

from dedup_platform import tables
from dedup_platform.errors import StreamInUseError
from dedup_platform.planning.claims import ALL
from dedup_platform.platform import Platform
from dedup_platform.platform.removal import Removal
from dedup_platform.stream import load_stream
from dedup_platform.testing import HeldClock, lay_out, light_platform, make_stream, record, utc, write_batch
from dedup_platform.testing.comparison import published_rows
from dedup_platform_tests.sinks.sqlite_table import copies

GOES, STAYS = "goes", "stays"
NOW = utc("2024-04-01")
_NAMES = ("stream", "table_namespace", "namespace")
"""Columns with the name of a stream."""


class Two:
    """Two streams of one deployment, both taken in; the first has a sink."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.copy = str(folder / "copy.db")
        self.streams = [make_stream(folder, name, start="2024-03-01") for name in (GOES, STAYS)]
        sink = {
            "kind": "custom",
            "follows": "sessions",
            "factory": "dedup_platform_tests.sinks.sqlite_table:open_table",
        }
        content = yaml.safe_load(self.streams[0].origin.read_text())
        content["publish"] = {"sinks": {"copy": sink | {"options": {"file": self.copy}}}}
        self.streams[0].origin.write_text(yaml.safe_dump(content))
        self.streams[0] = load_stream(self.streams[0].origin)
        for number, stream in enumerate(self.streams):
            days = ("2024-03-01T23:50", "2024-03-02T00:10", "2024-03-03T12:00")
            write_batch(stream, lay_out([record("a", f"{number}-{at}", utc(at)) for at in days], "first.json"))
            write_batch(stream, lay_out([record("a", "late", utc("2024-03-02T00:30"))], "second.json"))
        for name in (GOES, STAYS):
            self.run(name)

    def platform(self) -> Platform:
        return light_platform(self.home, self.streams, HeldClock(NOW))

    def run(self, name: str) -> Platform:
        platform = self.platform()
        platform.ingest(name)
        platform.repair(name)
        platform.publish_changes(name)
        for sink in platform.stream(name).publish.sinks:
            platform.publish(name, sink)
        platform.audit(name)
        return platform

    def rows(self, name: str) -> dict[str, list[str]]:
        return {table: sorted(map(repr, rows)) for table, rows in published_rows(self.platform(), name).items()}

    def files(self, name: str) -> dict[str, bytes]:
        root = self.home / "warehouse" / name
        return {str(each.relative_to(root)): each.read_bytes() for each in root.rglob("*") if each.is_file()}

    def facts(self, name: str) -> dict[str, list[tuple[Any, ...]]]:
        """What the databases know of a stream: the control database, and Iceberg's catalog."""
        found = {}
        for database in ("control.db", "catalog.db"):
            engine = sa.create_engine(f"sqlite:///{self.home / database}")
            known = sa.MetaData()
            known.reflect(engine)
            with engine.connect() as connection:
                for table in known.sorted_tables:
                    columns = [each for each in table.c if each.name in _NAMES]
                    rows = connection.execute(sa.select(table)).all() if columns else []
                    of_stream = [tuple(row) for row in rows if str(row._mapping[columns[0]]).split("/")[0] == name]
                    if of_stream:
                        found[f"{database} {table.name}"] = sorted(of_stream, key=repr)
            engine.dispose()
        return found

    def known(self, name: str) -> set[str]:
        return set(self.facts(name))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder: Path = tmp_path_factory.mktemp("two")
    two = Two(folder)
    shutil.copytree(two.home, folder / "kept")
    return two


@pytest.fixture
def two(kept: Two) -> Iterator[Two]:
    """Iceberg's metadata has absolute paths: what was kept is put back to the same place."""
    yield kept
    shutil.rmtree(kept.home)
    shutil.copytree(kept.home.with_name("kept"), kept.home)


def test_a_stream_begins_anew_and_nothing_else_changes(two: Two) -> None:
    rows, copied, others = two.rows(GOES), copies(two.copy), (two.files(STAYS), two.facts(STAYS))
    platform = two.platform()
    platform.source.note_lost_run(GOES, "a run that died")
    platform.sinks.note_lost_run(GOES, "copy", "a run that died")
    extent = Removal(platform, GOES).extent()
    assert [(each.table, each.rows) for each in extent.tables][-2:] == [("duplicate_events", 0), ("raw_events", 4)]
    assert len(extent.tables) == len(tables.EXPORTED) - 1
    assert all(each.files and each.bytes for each in extent.tables)
    assert (extent.files_read, extent.gone, extent.sinks[0].version) == (2, (0, 0), 1)
    Removal(platform, GOES).reset()
    assert two.files(GOES) == {}
    assert two.known(GOES) == {"catalog.db iceberg_namespace_properties"}
    assert (two.files(STAYS), two.facts(STAYS)) == others
    assert platform.status(GOES).tables == ()
    assert platform.source.waiting(GOES).amount == "2 files"
    assert platform.source.health(GOES).state == "normal"

    two.run(GOES)
    assert two.rows(GOES) == rows
    assert copies(two.copy) == copied, "the sink begins anew, and has each row once"
    assert (two.files(STAYS), two.facts(STAYS)) == others


def test_nothing_is_left_of_a_stream_that_is_dropped_without_its_file(two: Two) -> None:
    others = two.files(STAYS), two.facts(STAYS)
    left = light_platform(two.home, two.streams[1], HeldClock(NOW))
    removal = Removal(left, GOES)
    assert removal.is_known()
    assert len(removal.extent().tables) == len(tables.EXPORTED) - 1
    removal.drop()
    assert not (two.home / "warehouse" / GOES).exists()
    assert two.known(GOES) == set()
    assert not removal.is_known()
    assert (two.files(STAYS), two.facts(STAYS)) == others


def test_a_table_whose_metadata_is_lost_goes_too(two: Two) -> None:
    rows = two.rows(GOES)
    metadata = Path(two.platform().lake.catalog.load_table(GOES, tables.SESSIONS).metadata_location)
    metadata.unlink()
    removal = Removal(two.platform(), GOES)
    assert removal.extent().tables[-5].table == tables.SESSIONS
    removal.reset()
    two.run(GOES)
    assert two.rows(GOES) == rows


@pytest.mark.parametrize("content", [b"", b'["/a/file", "/anot'])
def test_a_list_that_was_not_written_to_its_end_is_left_aside(two: Two, content: bytes) -> None:
    removals = two.home / "warehouse" / GOES / "removals"
    removals.mkdir()
    (removals / "begun.json").write_bytes(content)
    rows = two.rows(GOES)
    Removal(two.platform(), GOES).reset()
    assert two.files(GOES) == {}
    two.run(GOES)
    assert two.rows(GOES) == rows


def test_a_table_of_somebody_else_stays(two: Two) -> None:
    catalog = two.platform().lake.catalog.iceberg
    catalog.create_table((GOES, "mine"), catalog.load_table((GOES, tables.SESSIONS)).schema())
    removal = Removal(two.platform(), GOES)
    assert removal.extent().others == ("mine",)
    removal.drop()
    assert catalog.list_tables(GOES) == [(GOES, "mine")]
    assert list(two.files(GOES)) == [each for each in two.files(GOES) if each.startswith("mine/")] != []


class Killed(BaseException):
    """In place of a signal."""


def die_at(step: int, monkeypatch: pytest.MonkeyPatch, platform: Platform) -> None:
    """Let the process die at the n-th of the steps that change something: it is done, and nothing after it."""
    taken = [0]

    def dying(do: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if taken[0] >= step:
                raise Killed
            result = do(*args, **kwargs)
            taken[0] += 1
            return result

        return wrapped

    catalog = platform.lake.catalog
    monkeypatch.setattr(catalog.iceberg, "drop_table", dying(catalog.iceberg.drop_table))
    monkeypatch.setattr(PyArrowFileIO, "delete", dying(PyArrowFileIO.delete))
    monkeypatch.setattr(catalog, "delete_receipt", dying(catalog.delete_receipt))
    monkeypatch.setattr(platform.ledger, "forget", dying(platform.ledger.forget))


def removed(platform: Platform, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether it lived to the end of it."""
    with monkeypatch.context() as patch:
        die_at(step, patch, platform)
        try:
            Removal(platform, GOES).drop()
        except Killed:
            return False
    return True


def test_whoever_died_is_followed_by_another_try(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (0, 1, 3, 20, 60):
        assert not removed(two.platform(), step, monkeypatch), step
        assert two.files(GOES)
    assert removed(two.platform(), 10_000, monkeypatch)
    assert not (two.home / "warehouse" / GOES).exists()
    assert two.known(GOES) == set()


def test_a_run_may_come_between_a_crash_and_the_next_try(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = two.rows(GOES)
    assert not removed(two.platform(), 40, monkeypatch)
    two.run(GOES)
    assert two.rows(GOES) == rows
    assert removed(two.platform(), 10_000, monkeypatch)
    assert not (two.home / "warehouse" / GOES).exists()
    assert two.known(GOES) == set()


def test_whoever_writes_meanwhile_is_refused_or_begins_anew(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = two.rows(GOES)
    stream, sleeper, platform = two.streams[0], two.platform(), two.platform()
    base = sleeper.lake.catalog.load_table(GOES, tables.RAW_EVENTS).current_snapshot()
    assert base
    staged = sleeper.lake.stage_nothing(stream, tables.RAW_EVENTS, base.snapshot_id, {})
    drop_table = platform.lake.catalog.iceberg.drop_table

    def drop_and_let_others_run(place: tuple[str, str]) -> None:
        drop_table(place)
        if place[1] == tables.RAW_EVENTS:
            with pytest.raises(NoSuchTableError):
                sleeper.lake.publish(staged)
            two.run(GOES)

    monkeypatch.setattr(platform.lake.catalog.iceberg, "drop_table", drop_and_let_others_run)
    Removal(platform, GOES).reset()
    assert two.rows(GOES) == rows, "what was made anew in the same folder is not taken away"
    two.run(GOES)
    assert two.rows(GOES) == rows


def test_while_somebody_is_at_work_nothing_goes(two: Two) -> None:
    platform = two.platform()
    with pytest.raises(StreamInUseError, match=r"goes: process \d+ on .* is at sessions\. Nothing was changed"):
        platform.claims.work(
            two.streams[0], tables.SESSIONS, ALL, lambda _: Removal(platform, GOES).refuse_while_in_work()
        )
    Removal(platform, GOES).refuse_while_in_work()


def test_files_that_are_at_the_source_no_more_are_counted(two: Two) -> None:
    file = two.streams[0].files.root / "first.json"
    content = file.read_bytes()
    file.unlink()
    try:
        assert Removal(two.platform(), GOES).extent().gone == (1, 3)
    finally:
        file.write_bytes(content)
