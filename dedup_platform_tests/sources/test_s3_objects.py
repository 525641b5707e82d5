"""Objects are read as they were listed, whatever the network does; a server of another kind is told by its words."""

import gzip
import hashlib
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from dedup_platform.errors import SourceChangedError, SourceError
from dedup_platform.sources.files import records_of
from dedup_platform.sources.listing import SourceFile, list_files
from dedup_platform.sources.s3.access import S3Access
from dedup_platform.sources.s3.listing import list_keys
from dedup_platform.sources.s3.objects import changed_objects, opened_object
from dedup_platform.stream import S3Path
from dedup_platform.testing.servers import Faults, FaultyProxy, S3Server
from dedup_platform_tests.ingest.s3.landing import Landing
from dedup_platform_tests.servers import serving
from dedup_platform_tests.sources.click_streams import click_stream

CONTENT = Random(1).randbytes(3 * 2**20)
LARGE = CONTENT * 10
"""More than what waits between two ends of a connection."""


@pytest.fixture
def landing(s3_server: S3Server) -> Landing:
    return Landing.on(s3_server)


def listed(landing: Landing, pattern: str) -> list[SourceFile]:
    path = S3Path.parse(f"s3://{landing.bucket}/{pattern}")
    pages = list_keys(landing.access, path, path.prefix)
    return [each.file for page in pages for each in page if each.file and not each.waits]


def put(landing: Landing, key: str = "in/a.bin", content: bytes = CONTENT) -> SourceFile:
    landing.put(key, content)
    [file] = listed(landing, key)
    return file


def read(access: S3Access, file: SourceFile, at_once: int = 50_000) -> bytes:
    with opened_object(access, file) as content:
        return b"".join(iter(lambda: content.read(at_once), b""))


def test_an_object_is_a_file_that_can_be_read_at_any_place(landing: Landing) -> None:
    file = put(landing)
    with opened_object(landing.access, file) as content:
        assert content.read(4) == CONTENT[:4]
        for place in (0, 2**20, 5, len(CONTENT) - 1, len(CONTENT)):
            assert content.seek(place) == place == content.tell()
            assert content.read(10) == CONTENT[place : place + 10]
        assert content.seek(-3, io.SEEK_END) == len(CONTENT) - 3
        assert content.read() == CONTENT[-3:]


def test_an_empty_object(landing: Landing) -> None:
    assert read(landing.access, put(landing, content=b"")) == b""


def test_connections_that_break_and_answers_that_are_cut_are_never_the_end(landing: Landing) -> None:
    file = put(landing)
    with FaultyProxy(landing.server.port, seed=3) as proxy:
        access = Landing(landing.server, f"http://127.0.0.1:{proxy.port}", landing.bucket).access
        # The worst that still comes through: each answer breaks off somewhere.
        proxy.faults = Faults(refuse=0.05, drop=0.02, cut=0.02)
        assert [read(access, file) for _ in range(5)] == [CONTENT] * 5
        assert proxy.happened["cut"] > 0
        assert proxy.happened["drop"] > 0


@contextmanager
def without_headers_at_first() -> Iterator[S3Access]:
    """A store of the object `abc`, whose first answer is as one that breaks off among its headers is understood."""
    answers = count()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "3")
            if next(answers):
                self.send_header("ETag", '"e"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"abc")

        do_HEAD = do_GET  # noqa: N815  # http.server's name

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with serving(Handler) as port:
        yield S3Access(f"http://127.0.0.1:{port}", access_key_id="a", secret_access_key="b")


def test_an_answer_that_breaks_off_among_its_headers_is_asked_for_again() -> None:
    file = SourceFile("a", "s3://bucket/a", 3, "e", datetime.now(UTC))
    with without_headers_at_first() as access:
        assert read(access, file) == b"abc"
    with without_headers_at_first() as access:
        with pytest.raises(SourceError, match="a: cannot be read: the answer ended among its headers"):
            changed_objects(access, [file])
        assert changed_objects(access, [file]) == []


def test_who_stays_away_is_named_and_nothing_is_taken_for_the_end(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    file = put(landing, content=LARGE)
    with FaultyProxy(landing.server.port, seed=3) as proxy:
        access = Landing(landing.server, f"http://127.0.0.1:{proxy.port}", landing.bucket).access
        with opened_object(access, file) as content:
            content.read(1000)
            proxy.faults = Faults(refuse=1.0)
            proxy.sever()
            with pytest.raises(SourceError, match=r"^a\.bin: cannot be read: "):
                content.read()
        proxy.faults = Faults(refuse=1.0)
        with pytest.raises(SourceError, match=r"^s3://.*/in/: cannot be read: "):
            list(list_keys(access, S3Path.parse(f"s3://{landing.bucket}/in/*"), "in/"))


def test_an_object_that_is_another_now_is_not_read(landing: Landing) -> None:
    file = put(landing)
    landing.put("in/a.bin", CONTENT[::-1])
    with pytest.raises(SourceChangedError, match=r"^a\.bin changed since it was listed$"):
        read(landing.access, file)
    assert changed_objects(landing.access, [file]) == [file]


def test_a_connection_that_is_made_again_does_not_go_on_in_another_object(landing: Landing) -> None:
    file = put(landing, content=LARGE)
    with FaultyProxy(landing.server.port, seed=3) as proxy:
        access = Landing(landing.server, f"http://127.0.0.1:{proxy.port}", landing.bucket).access
        with opened_object(access, file) as content:
            content.read(1000)
            landing.put("in/a.bin", LARGE[::-1])
            proxy.sever()
            with pytest.raises(SourceChangedError, match="changed since"):
                content.read()


def test_an_object_that_is_gone(landing: Landing) -> None:
    kept, gone = put(landing, "in/kept"), put(landing, "in/gone")
    landing.delete("in/gone")
    with pytest.raises(SourceError, match=r"^gone: cannot be read: NoSuchKey: "):
        read(landing.access, gone)
    assert changed_objects(landing.access, [kept, gone]) == [gone]


def test_who_is_refused_is_told_and_secrets_are_not(landing: Landing) -> None:
    put(landing)
    stranger = S3Access(landing.endpoint, None, True, "testing", "not-the-secret")
    path = S3Path.parse(f"s3://{landing.bucket}/in/*")
    with pytest.raises(SourceError, match="SignatureDoesNotMatch") as refused:
        list(list_keys(stranger, path, path.prefix))
    assert "not-the-secret" not in f"{refused.value} {refused.value!r} {stranger}"
    assert refused.value.__suppress_context__
    assert pickle.loads(pickle.dumps(stranger)) == stranger


ODD = [
    "a b",
    "a+b",
    "a%20b",
    "ü/日本",
    "q?x=1&y=2#z",
    "<a>",
    "~'\"!()",
    "new\nline",
    "a=b",
    "[x]",
    "back\\slash",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_characters_of_keys(landing: Landing, name: str) -> None:
    landing.put(f"in/x/{name}.json", name.encode())
    [file] = listed(landing, "in/**")
    assert (file.path, file.size) == (f"x/{name}.json", len(name.encode()))
    assert read(landing.access, file) == name.encode()
    assert changed_objects(landing.access, [file]) == []


names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C"], exclude_characters="/\\"), min_size=1, max_size=9
)


@settings(max_examples=30, deadline=None)
@given(found=st.sets(names.filter(lambda name: name.strip(". ") == name and len(name.encode()) < 200), max_size=5))
def test_any_keys_are_listed_in_the_order_of_their_bytes_and_behind_any_of_them(
    s3_server: S3Server, found: set[str]
) -> None:
    landing = Landing.on(s3_server)
    keys = sorted((f"in/{name}.json" for name in found), key=str.encode)
    for key in keys:
        landing.put(key, key.encode())
    path = S3Path.parse(f"s3://{landing.bucket}/in/*")
    for place, start in enumerate(["", *keys]):
        pages = list_keys(landing.access, path, path.prefix, start)
        assert [each.key for page in pages for each in page] == keys[place:]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("in/*.csv", ["a.csv"]),
        ("in/a.csv", ["a.csv"]),
        ("in/none.csv", []),
        ("in/?.csv", ["a.csv"]),
        ("in/[b-z]/*", ["x/b.csv", "x/c.json"]),
        ("in/*/*.csv", ["x/b.csv"]),
        ("in/**/*.csv", ["a.csv", "x/b.csv", "x/y/z/d.csv"]),
        ("in/x/**/*.csv", ["b.csv", "y/z/d.csv"]),
        ("in/**/z/*", ["x/y/z/d.csv"]),
        ("in/**/**/d.csv", ["x/y/z/d.csv"]),
        ("in/**", ["a.csv", "x/b.csv", "x/c.json", "x/y/z/d.csv"]),
        ("in/x/b*", ["b.csv"]),
    ],
)
def test_patterns_mean_what_they_mean_in_a_folder(landing: Landing, pattern: str, expected: list[str]) -> None:
    for key in ("a.csv", "x/b.csv", "x/c.json", "x/y/z/d.csv", "empty/"):
        landing.put(f"in/{key}", b"")
    assert [file.path for file in listed(landing, pattern)] == expected


def test_unfinished_names_wait_and_folders_are_passed_by(landing: Landing) -> None:
    for key in (".a", "_a", "a.tmp", "x/_temporary/0/a", "folder/"):
        landing.put(f"in/{key}", b"")
    path = S3Path.parse(f"s3://{landing.bucket}/in/**")
    found = [each for page in list_keys(landing.access, path, path.prefix) for each in page]
    assert {each.path: each.waits for each in found if each.file} == {
        ".a": "the name .a begins with .",
        "_a": "the name _a begins with _",
        "a.tmp": "the name a.tmp ends in .tmp",
        "x/_temporary/0/a": "the name _temporary begins with _",
    }
    assert {each.key for each in found} >= {"in/folder/"}


def test_a_file_as_it_is_listed(landing: Landing) -> None:
    moment = datetime(2024, 3, 1, 11, 0, 0, tzinfo=UTC)
    landing.put("in/a.csv", b"id,at\n", moment)
    etag = hashlib.md5(b"id,at\n").hexdigest()
    assert listed(landing, "in/*") == [SourceFile("a.csv", f"s3://{landing.bucket}/in/a.csv", 6, etag, moment)]


def test_records_of_every_format_are_those_of_a_local_file(landing: Landing, tmp_path: Path) -> None:
    rows = [{"id": f"{number}", "user": "u" * (number % 7), "at": "2024-03-01T00:00:00Z"} for number in range(5000)]
    csv = "id,user,at\n" + "".join(",".join(row.values()) + "\n" for row in rows)
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), parquet, row_group_size=1000)
    for name, content in {
        "a.csv": csv.encode(),
        "b.csv": gzip.compress(csv.encode()),
        "c.parquet": parquet.getvalue(),
    }.items():
        (tmp_path / name).write_bytes(content)
        stream = click_stream(name.split(".")[1], tmp_path, name)
        [here] = list_files(stream, datetime.now(UTC) + timedelta(hours=1)).ready
        there = put(landing, f"in/{name}", content)
        records = list(records_of(stream, there, landing.access))
        assert records == list(records_of(stream, here))
        assert len(records) == 5000
