"""Paths on S3: their parts, their dates, and what is refused."""

from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dedup_platform.errors import StreamFileError
from dedup_platform.stream import S3Path, Stream, load_stream
from dedup_platform.testing import utc

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
FILE = """\
name: clicks
source:
  kind: files
  path: {path}
  format: json
fields: {{entity_id: user, event_id: id, event_time: t}}
partitions: {{granularity: day, start: 2026-01-31}}
sessions: {{timeout: 30m}}
"""


def stream(folder: Path, path: str) -> Stream:
    file = folder / "clicks.yaml"
    file.write_text(FILE.format(path=path))
    return load_stream(file)


@pytest.mark.parametrize(
    ("path", "root", "pattern", "prefix"),
    [
        ("s3://lake/*.json", "", "*.json", ""),
        ("s3://lake/in/*.json", "in/", "*.json", "in/"),
        ("s3://lake/in/part-*.json", "in/", "part-*.json", "in/part-"),
        ("s3://lake/in/**/x?/[ab].json", "in/", "**/x?/[ab].json", "in/"),
        ("s3://lake/in/one.json", "in/", "one.json", "in/one.json"),
        ("s3://lake/one.json", "", "one.json", "one.json"),
        ("s3://lake/a//b/*", "a//b/", "*", "a//b/"),
        ("s3://lake/in/{date:%Y/%m}/*", "in/", "[0-9][0-9][0-9][0-9]/[0-9][0-9]/*", "in/"),
        ("s3://lake/in/dt={date:%Y}-x/*", "in/", "dt=[0-9][0-9][0-9][0-9]-x/*", "in/dt="),
    ],
)
def test_the_parts_of_a_path(tmp_path: Path, path: str, root: str, pattern: str, prefix: str) -> None:
    source = stream(tmp_path, path).files
    assert source.s3
    assert (source.s3.bucket, source.s3.root, source.s3.prefix) == ("lake", root, prefix)
    assert source.pattern == source.s3.pattern == pattern
    assert source.place == path
    assert source.relist == timedelta(hours=1)
    assert source.below_root(f"s3://lake/{root}x/y.json") == source.below_root("x/y.json") == "x/y.json"


@pytest.mark.parametrize(
    ("key", "since", "until", "prefixes"),
    [
        ("in/*", "2024-03-04T00:00", "2024-03-06T00:00", ["in/"]),
        ("{date:%Y/%m/%d}/*", "2024-02-28T23:59", "2024-03-01T00:00", ["2024/02/28/", "2024/02/29/", "2024/03/01/"]),
        ("in/{date:%Y/%m/%d}/*", "2024-03-01T00:00", "2024-03-01T23:59", ["in/2024/03/01/"]),
        ("in/{date:%Y-%m}-*", "2024-02-28T00:00", "2024-03-01T00:00", ["in/2024-02-", "in/2024-03-"]),
        ("{date:%Y}/h={date:%H}/x*", "2024-12-31T23:10", "2025-01-01T00:10", ["2024/h=23/x", "2025/h=00/x"]),
        ("{date:%Y%m%d}.json", "2024-12-31T23:10", "2024-12-31T23:10", ["20241231.json"]),
    ],
)  # fmt: skip
def test_prefixes_of_dates(key: str, since: str, until: str, prefixes: list[str]) -> None:
    assert S3Path.parse(f"s3://lake/{key}").prefixes(utc(since), utc(until)) == prefixes


def test_a_step_is_an_hour_where_the_hour_is_told() -> None:
    assert S3Path.parse("s3://lake/{date:%Y%m%d}/*").step == DAY
    assert S3Path.parse("s3://lake/{date:%Y%m%d%H}/*").step == HOUR
    assert S3Path.parse("s3://lake/*").step == DAY


@given(
    time=st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  # as hypothesis wants it
    dates=st.sampled_from(["{date:%Y/%m/%d}", "{date:%Y}-{date:%m-%d}", "{date:%Y%m%d%H}", "x+{date:%Y}.{date:%H}"]),
    rest=st.sampled_from(["/*.json", "*.json", "/**"]),
)
def test_a_key_of_a_date_matches_and_is_listed_by_its_prefix(time: datetime, dates: str, rest: str) -> None:
    path = S3Path.parse(f"s3://lake/in/{dates}{rest}")
    [prefix] = path.prefixes(time, time)
    key = f"{prefix}/a.json" if rest.startswith("/") and not prefix.endswith("/") else f"{prefix}a.json"
    assert fnmatchcase(key.removeprefix(path.root), path.pattern)
    assert key.startswith(path.prefix)
    assert path.prefix_of(key) == prefix


def test_a_key_without_a_date_belongs_to_no_date() -> None:
    path = S3Path.parse("s3://lake/in/{date:%Y/%m/%d}/*")
    assert path.prefix_of("in/readme/2024/x") == "in/"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("s3://", "names no bucket; write a pattern like s3://bucket/events/*.json.gz"),
        ("s3://Lake/*", "names no bucket"),
        ("s3://lake", "names no files; write a pattern like s3://bucket/events/*.json.gz"),
        ("s3://lake/", "names no files"),
        ("s3://lake/in/", "names no files"),
        ("s3://lake/{date:%j}/*", "has a date that is none; write {date:%Y/%m/%d}, with %Y, %m, %d, %H and what stan"),
        ("s3://lake/{date:today}/*", "has a date that is none"),
        ("s3://lake/{date:%Y%}/*", "has a date that is none"),
        ("s3://lake/{dat:%Y}/*", "has a brace that belongs to no date; write {date:%Y/%m/%d}"),
        ("s3://lake/*/{date:%Y}/*", "has a date behind *, ? or [; only what stands in front of them can be listed by"),
        ("in/{date:%Y}/*", "has a date, which is for paths on S3; a folder is searched whole: write * in its place"),
        ("gs://lake/*", "must be a local path, absolute or relative to the stream file's folder, or s3://bucket/key"),
        ("in/*\n  relist: 1m", "relist is for paths on S3; a folder is searched whole at every look"),
        ("s3://lake/*\n  follow_links: true", "follow_links is for folders; S3 has no links"),
    ],
)
def test_what_is_refused(tmp_path: Path, path: str, reason: str) -> None:
    with pytest.raises(StreamFileError) as caught:
        stream(tmp_path, path)
    [problem] = caught.value.problems
    assert reason in problem


def test_how_often_all_keys_are_listed_is_said_in_the_stream_file(tmp_path: Path) -> None:
    assert stream(tmp_path, "s3://lake/*\n  relist: 90s").files.relist == timedelta(seconds=90)
