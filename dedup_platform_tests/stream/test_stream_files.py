"""Stream files that are none: each costs its own stream, and no time or memory to speak of."""

import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import load_stream, load_streams, read_streams

SHORTEST = """\
name: clicks
source: {kind: files, path: "*.json", format: json}
fields: {entity_id: user, event_id: id, event_time: t}
partitions: {granularity: day, start: 2026-01-31}
sessions: {timeout: 30m}
"""


def raised(folder: Path, text: str) -> StreamFileError:
    (folder / "clicks.yaml").write_text(text)
    with pytest.raises(StreamFileError) as caught:
        load_stream(folder / "clicks.yaml")
    return caught.value


def broken_file(path: Path, kind: str) -> None:
    match kind:
        case "dangling link":
            path.symlink_to("nothing")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "endless":
            path.symlink_to("/dev/zero")
        case "large":
            path.write_text("#" * 300_000)
        case "no YAML":
            path.write_text("name: [\n")
        case "wrong":
            path.write_text(SHORTEST.replace("30m", "30"))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("dangling link", r"x.yaml: No such file or directory"),
        ("folder", r"x.yaml: Is a directory"),
        ("pipe", r"x.yaml: it is no regular file"),
        ("endless", r"x.yaml: it is no regular file"),
        ("large", r"x.yaml: is larger than 256 KiB"),
        ("no YAML", r"x.yaml:2: is not YAML"),
        ("wrong", r"x.yaml:\d+: sessions.timeout"),
    ],
)
def test_a_broken_file_is_not_its_neighbours_trouble(tmp_path: Path, kind: str, reason: str) -> None:
    (tmp_path / "clicks.yaml").write_text(SHORTEST)
    broken_file(tmp_path / "x.yaml", kind)
    found = read_streams(tmp_path)
    assert list(found.streams) == ["clicks"]
    assert list(found.broken) == [tmp_path / "x.yaml"]
    assert re.search(reason, str(found.broken[tmp_path / "x.yaml"]))
    for path in (tmp_path, tmp_path / "x.yaml"):
        with pytest.raises(StreamFileError):
            load_streams(path)
    (tmp_path / "clicks.yaml").unlink()
    with pytest.raises(StreamFileError):
        read_streams(tmp_path)


def bombs() -> Iterator[tuple[str, str]]:
    """Texts of a few hundred bytes that make gigabytes or minutes of work, and what is said of them."""
    levels = [f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 10)}]" for level in range(1, 9)]
    many = "its aliases make more than 100,000 values"
    yield "\n".join(["x0: &x0 [a]", *levels, "name: *x8"]), many
    merges = [f"m{level}: &m{level} {{<<: [{', '.join([f'*m{level - 1}'] * 30)}]}}" for level in range(1, 8)]
    yield "\n".join(["m0: &m0 {a: 1}", *merges]), many
    yield "name: &a\n  b: &c [*a]", "an alias stands for what it is itself in"
    yield "name: &a {b: {<<: *a}}", "an alias stands for what it is itself in"


@pytest.mark.parametrize(("text", "said"), list(bombs()))
def test_aliases_that_make_too_much(tmp_path: Path, text: str, said: str) -> None:
    assert said in str(raised(tmp_path, text))


def test_aliases_and_merges_are_of_use(tmp_path: Path) -> None:
    text = SHORTEST.replace("{timeout: 30m}", "&s {timeout: 30m}") + "late: {<<: {grace: 1h}}\n"
    (tmp_path / "clicks.yaml").write_text(text)
    assert load_stream(tmp_path / "clicks.yaml").late.grace == timedelta(hours=1)
