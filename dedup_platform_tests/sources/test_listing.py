"""What a source lists: files in order, and those that wait with their reasons."""

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dedup_platform.errors import SourceError
from dedup_platform.sources.listing import Listing, SourceFile, changed_while_reading, list_files
from dedup_platform_tests.sources.click_streams import click_stream

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
OLD = NOW - timedelta(hours=1)
NOBODY = 65534


def put(path: Path, content: bytes = b"id\n", modified: datetime = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    touch(path, modified)
    return path


def touch(path: Path, modified: datetime) -> None:
    nanoseconds = (modified - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    os.utime(path, ns=(nanoseconds, nanoseconds))


def listed(folder: Path, path: str = "*", settle: str = "2s", follow_links: bool = False) -> Listing:
    stream = click_stream("csv", folder, path, settle)
    source = stream.files.model_copy(update={"follow_links": follow_links})
    return list_files(stream.model_copy(update={"source": source}), NOW)


def ready(folder: Path, path: str, follow_links: bool = False) -> list[str]:
    return [file.path for file in listed(folder, path, follow_links=follow_links).ready]


def test_a_file_as_it_is_listed(tmp_path: Path) -> None:
    moment = datetime(2024, 3, 1, 11, 0, 0, 123456, tzinfo=UTC)
    location = put(tmp_path / "in" / "a.csv", b"id,at\n", moment)
    [file] = listed(tmp_path, "*/a.csv").ready
    assert file == SourceFile("in/a.csv", str(location), 6, f"6-{location.stat().st_mtime_ns:x}", moment, str(tmp_path))


def test_the_order_is_by_time_and_then_by_path(tmp_path: Path) -> None:
    put(tmp_path / "c.csv", modified=OLD - timedelta(microseconds=1))
    put(tmp_path / "b.csv")
    put(tmp_path / "a.csv")
    assert ready(tmp_path, "*") == ["c.csv", "a.csv", "b.csv"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv"]),
        ("a.csv", ["a.csv"]),
        ("none.csv", []),
        ("?.csv", ["a.csv"]),
        ("[b-z]/*", ["x/b.csv", "x/c.json"]),
        ("*/*.csv", ["x/b.csv"]),
        ("**/*.csv", ["a.csv", "x/b.csv", "x/y/z/d.csv"]),
        ("x/**/*.csv", ["b.csv", "y/z/d.csv"]),
        ("**/z/*", ["x/y/z/d.csv"]),
        ("**/**/d.csv", ["x/y/z/d.csv"]),
        ("**", ["a.csv", "x/b.csv", "x/c.json", "x/y/z/d.csv"]),
    ],
)
def test_patterns(tmp_path: Path, pattern: str, expected: list[str]) -> None:
    for path in ("a.csv", "x/b.csv", "x/c.json", "x/y/z/d.csv"):
        put(tmp_path / path)
    assert ready(tmp_path, pattern) == expected
    assert listed(tmp_path, pattern).waiting == ()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (".a.csv", "the name .a.csv begins with ."),
        ("_a.csv", "the name _a.csv begins with _"),
        ("a.csv.tmp", "the name a.csv.tmp ends in .tmp"),
        (".cache/a.csv", "the name .cache begins with ."),
        ("x/_temporary/0/a.csv", "the name _temporary begins with _"),
        ("upload.tmp/a.csv", "the name upload.tmp ends in .tmp"),
    ],
)
def test_unfinished_names_wait(tmp_path: Path, path: str, reason: str) -> None:
    put(tmp_path / path)
    assert listed(tmp_path, "**") == Listing((), ((path, reason),))


def test_such_names_above_the_root_do_not_matter(tmp_path: Path) -> None:
    put(tmp_path / "_in.tmp" / ".x" / "a.csv")
    assert ready(tmp_path / "_in.tmp" / ".x", "*.csv") == ["a.csv"]


@pytest.mark.parametrize(
    ("age", "waits"),
    [
        (timedelta(seconds=2), False),
        (timedelta(microseconds=1_999_999), True),
        (timedelta(hours=-1), True),
        (timedelta(days=-1), True),
        (timedelta(days=-1, microseconds=-1), False),
        (timedelta(days=-36_500), False),
    ],
)
def test_a_file_rests_before_it_is_read(tmp_path: Path, age: timedelta, waits: bool) -> None:
    put(tmp_path / "a.csv", modified=NOW - age)
    found = listed(tmp_path)
    assert len(found.waiting) == waits
    assert len(found.ready) == 1 - waits
    if waits:
        [(_, reason)] = found.waiting
        assert reason == f"modified at {(NOW - age).isoformat()}; it may still be written until it rests for 0:00:02"


def test_what_is_no_file_waits(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to("nothing")
    os.link(put(tmp_path / "a.csv"), bytes(tmp_path) + b"/latin\xe9.csv")
    found = listed(tmp_path, "*.csv")
    assert [file.path for file in found.ready] == ["a.csv"]
    assert dict(found.waiting) == {
        "folder.csv": "is a folder",
        "pipe.csv": "is no regular file",
        "link.csv": "cannot be read: No such file or directory",
        "latin\\xe9.csv": "the name is not UTF-8",
    }


def link_out_and_around(tmp_path: Path) -> Path:
    """A folder with links to a file and to a folder outside it, and one to itself."""
    put(tmp_path / "there" / "a.csv")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file.csv").symlink_to(tmp_path / "there" / "a.csv")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "there")
    (tmp_path / "in" / "loop").symlink_to(tmp_path / "in")
    return tmp_path / "in"


def test_links_count_as_what_they_point_to_and_loops_end(tmp_path: Path) -> None:
    folder = link_out_and_around(tmp_path)
    assert ready(folder, "**/*.csv", follow_links=True) == ["file.csv"]
    assert ready(folder, "*/*.csv", follow_links=True) == ["folder/a.csv", "loop/file.csv"]


def test_links_that_lead_out_of_the_folder_wait(tmp_path: Path) -> None:
    folder = link_out_and_around(tmp_path)
    put(folder / "day" / "b.csv")
    (folder / "c.csv").symlink_to("day/b.csv")
    (folder / "day" / "up.csv").symlink_to("../../there/a.csv")
    assert ready(folder, "**/*.csv") == ["c.csv", "day/b.csv"]
    assert ready(folder, "*/*.csv") == ["day/b.csv", "loop/c.csv"]
    reason = "is a link that leads out of the source's folder; `follow_links: true` in the stream file allows that"
    assert dict(listed(folder, "*/*.csv").waiting) == dict.fromkeys(["day/up.csv", "folder/", "loop/file.csv"], reason)
    (tmp_path / "in2").symlink_to("in")
    assert ready(tmp_path / "in2", "**/*.csv") == ["c.csv", "day/b.csv"], "the folder itself may be a link"


def test_no_link_is_followed_that_came_after_the_listing(tmp_path: Path) -> None:
    secret = put(tmp_path / "secret" / "a.csv", b"secret\n")
    put(tmp_path / "in" / "a.csv")
    put(tmp_path / "in" / "day" / "a.csv")
    file, below = listed(tmp_path / "in", "**/*.csv").ready
    with file.opened() as content, below.opened() as other:
        assert content.read() == other.read() != b"secret\n"
    (tmp_path / "in" / "a.csv").unlink()
    (tmp_path / "in" / "a.csv").symlink_to(secret)
    (tmp_path / "in" / "day").rename(tmp_path / "in" / "night")
    (tmp_path / "in" / "day").symlink_to(secret.parent)
    for each in (file, below):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            each.opened()
    assert changed_while_reading([file, below]) == [file, below]


@pytest.mark.parametrize("follow_links", [False, True])
def test_what_became_a_pipe_is_not_waited_for(tmp_path: Path, follow_links: bool) -> None:
    [file] = listed(put(tmp_path / "a.csv").parent, follow_links=follow_links).ready
    (tmp_path / "a.csv").unlink()
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(OSError, match="no regular file"):
        file.opened()


def test_a_missing_root_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere: the source's folder cannot be read: No such file or directory"):
        listed(tmp_path / "nowhere")
    put(tmp_path / "file")
    with pytest.raises(SourceError, match="Not a directory"):
        listed(tmp_path / "file")


@pytest.fixture
def as_nobody(tmp_path: Path) -> Iterator[None]:
    """Lose the superuser's rights, to whom nothing is closed."""
    if os.geteuid() != 0:
        yield
        return
    # pytest closes the folders above this one, too: more of them when it runs in several processes.
    for folder in (tmp_path, *tmp_path.parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            folder.chmod(0o755)
    os.seteuid(NOBODY)
    yield
    os.seteuid(0)


def test_what_may_not_be_read_waits(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    put(tmp_path / "closed.csv").chmod(0)
    put(tmp_path / "x" / "a.csv")
    put(tmp_path / "open.csv")
    (tmp_path / "x").chmod(0)
    request.getfixturevalue("as_nobody")
    found = listed(tmp_path, "**/*.csv")
    assert [file.path for file in found.ready] == ["open.csv"]
    assert dict(found.waiting) == {
        "closed.csv": "cannot be read: permission denied",
        "x/": "cannot be searched: Permission denied",
    }


def test_files_that_changed_while_they_were_read(tmp_path: Path) -> None:
    for name in "abcde":
        put(tmp_path / name)
    files = listed(tmp_path).ready
    put(tmp_path / "b", b"longer\n")
    touch(tmp_path / "c", OLD + timedelta(microseconds=1))
    (tmp_path / "d").unlink()
    put(tmp_path / "e", b"id\n")
    assert [file.path for file in changed_while_reading(files)] == ["b", "c", "d"]


def test_a_modification_beyond_the_last_year_is_one_of_its_end(tmp_path: Path) -> None:
    path = put(tmp_path / "a.csv")
    try:
        os.utime(path, (0, 300_000_000_000))
    except OSError:
        pytest.skip("this file system knows no such time")
    [file] = listed(tmp_path).ready
    assert file.modified.year == 9999 or path.stat().st_mtime < 253_402_300_800
