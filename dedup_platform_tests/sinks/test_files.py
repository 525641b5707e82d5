"""Sinks of files in a folder and on a real S3 server: what every sink must do, and what is their own."""

import json
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dedup_platform.errors import SinkError, SinkTakenError
from dedup_platform.sinks import Batch, Position
from dedup_platform.sinks.files import MANIFESTS, FilesOfChanges
from dedup_platform.sinks.sink import net
from dedup_platform.sinks.storage import FolderStorage, S3Storage, Storage
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.stream import FilesSink
from dedup_platform.testing.servers import S3Server
from dedup_platform.testing.sinks import TARGET, check_sink, some_changes
from dedup_platform_tests.servers import new_name
from dedup_platform_tests.sinks.looking import check_totals

FIRST, SECOND = Position("feed", 1), Position("feed", 2)
READ: dict[str, Callable[[bytes], pl.DataFrame]] = {
    "json": lambda content: pl.read_ndjson(BytesIO(content)),
    "csv": lambda content: pl.read_csv(BytesIO(content), schema_overrides={"page": pl.String, "revenue": pl.String}),
    "parquet": lambda content: pl.read_parquet(BytesIO(content)),
}


class Store:
    """A place of its own."""

    def __init__(self, path: str, storage: Storage, access: S3Access) -> None:
        self.path, self.storage, self._access = path, storage, access
        self.format = "json"

    def sink(self) -> FilesOfChanges:
        said = {"kind": "files", "follows": "sessions", "path": self.path, "format": self.format}
        return FilesOfChanges(TARGET, FilesSink.model_validate(said), self._access)

    def manifests(self) -> Iterator[dict[str, Any]]:
        for name in self.storage.names(MANIFESTS, ""):
            yield json.loads(self.storage.get(f"{MANIFESTS}/{name}") or b"")

    def counts(self) -> Mapping[str, int]:
        """What a reader makes of the files: objects in the order of the manifests, which may begin anew."""
        found: dict[str, int] = {}
        for manifest in self.manifests():
            if manifest.get("begins"):
                found = {}
            for each in manifest.get("objects", ()):
                rows = READ[self.format](self.storage.get(each["name"]) or b"")
                assert len(rows) == each["rows"]
                written, gone = net(rows, ["session_id"])
                found |= dict(written[["session_id", "event_count"]].iter_rows())
                found = {key: count for key, count in found.items() if key not in set(gone["session_id"])}
        return found


@pytest.fixture(params=["folder", "S3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return Store(str(tmp_path / "out"), FolderStorage(tmp_path / "out"), S3Access())
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = new_name("sinks-")
    server.create_bucket(bucket)
    access = S3Access(server.endpoint, "us-east-1", True, server.access_key, server.secret_key)
    return Store(f"s3://{bucket}/some/where", S3Storage(access, bucket, "some/where/"), access)


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_it_does_what_every_sink_must_do(store: Store, format_: str) -> None:
    store.format = format_
    check_sink(store.sink, store.counts)


def test_a_batch_of_several_versions_is_an_object_for_each(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, SECOND, some_changes(("insert", 1, 0, "a", 1), ("insert", 2, 0, "b", 1))))
    [_, manifest] = store.manifests()
    assert [(each["version"], each["rows"]) for each in manifest["objects"]] == [(1, 1), (2, 1)]
    names = [each["name"].rpartition("-")[0] for each in manifest["objects"]]
    assert names == [f"changes/{version:012}-{0:012}" for version in (1, 2)]


def test_what_is_written_again_has_the_same_name(store: Store) -> None:
    batch = Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1)))
    dying = store.sink()
    dying.open()
    dying._create = None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        dying.write(batch)
    assert store.counts() == {}
    sink = store.sink()
    assert sink.open().position is None
    sink.write(batch)
    assert len(list(store.storage.names("changes", ""))) == 1
    assert store.counts() == {"a": 1}


def test_who_slept_while_another_wrote_other_files_changes_nothing(store: Store) -> None:
    sleeper, owner = store.sink(), store.sink()
    sleeper.open()
    owner.open()
    owner.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    before = store.counts()
    with pytest.raises(SinkTakenError):
        sleeper.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 7))))
    assert store.counts() == before


def test_the_hint_is_not_needed(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    store.storage.put("manifests/_SUCCESS", b"of somebody else")
    for hint in (b"", b"000000000000.json", b"000000000099.json", b"none", b"\xff"):
        store.storage.put("newest", hint)
        assert store.sink().open().position == FIRST


def test_a_place_of_another_table_is_refused(store: Store) -> None:
    store.sink().open()
    [name] = store.storage.names(MANIFESTS, "")
    content = (store.storage.get(f"{MANIFESTS}/{name}") or b"").replace(b"conformance", b"other")
    store.storage.put(f"{MANIFESTS}/{name}", content)
    with pytest.raises(SinkError, match=r"has changes of other\.sessions; .* name another path"):
        store.sink().open()


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"7", b'{"stream": "conformance", "table": "sessions"}', b"\xff"]
)
def test_a_file_of_others_where_manifests_are_is_named(store: Store, content: bytes) -> None:
    store.sink().open()
    store.storage.put(f"{MANIFESTS}/000000000007.json", content)
    for ask in (store.sink().open, store.sink().look):
        with pytest.raises(SinkError, match=r"manifests/000000000007\.json is no manifest of ours; take it") as raised:
            ask()
        assert raised.value.lasting


def test_a_bucket_that_is_not_there_is_said(s3_server: S3Server) -> None:
    access = S3Access(s3_server.endpoint, "us-east-1", True, s3_server.access_key, s3_server.secret_key)
    said = FilesSink(kind="files", follows="sessions", path=f"s3://{new_name('none-')}/x")
    with pytest.raises(SinkError, match="bucket") as raised:
        FilesOfChanges(TARGET, said, access).open()
    assert s3_server.secret_key not in str(raised.value)


def test_what_it_was_given_is_counted(store: Store) -> None:
    check_totals(store.sink)


def test_what_is_forced_says_so(store: Store) -> None:
    sink = store.sink()
    sink.open()
    sink.write(Batch(None, FIRST, some_changes(("insert", 1, 0, "a", 1))))
    sink.write(Batch(FIRST, FIRST, some_changes(("insert", 1, 0, "a", 1)), forced=True))
    [_, plain, forced] = store.manifests()
    assert (plain["forced"], forced["forced"]) == (False, True)
    [plain_rows, forced_rows] = [
        READ["json"](store.storage.get(each["objects"][0]["name"]) or b"") for each in (plain, forced)
    ]
    assert "_forced" not in plain_rows.columns
    assert forced_rows["_forced"].to_list() == [True]
