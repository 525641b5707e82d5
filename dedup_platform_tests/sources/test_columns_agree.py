"""Files that are read by columns become the rows that their records become one by one."""

import gzip
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from dedup_platform.planning.moments import microseconds
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.field_values import field_reader
from dedup_platform.sources.files import SourceFile, files_of_group, list_files, read_group
from dedup_platform.sources.text import csv_lines, json_layouts, json_shapes, lines
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_records import csv_file, json_file

PATH = "region=eu/2024.json"
STREAMS: dict[str, dict[str, Any]] = {
    "names": {"fields": {"attributes": {"page": "page", "n": {"field": "n", "type": "double"}, "big": "big"}}},
    "paths": {
        "fields": {"entity_id": "actor.id", "attributes": {"first": "tags[0]", "name": "actor.name", "spaced": "x y"}}
    },
    "lists and texts": {
        "fields": {"attributes": {"tags": "tags", "key": "ключ", "n": {"field": "n", "type": "decimal(8,2)"}}},
        "missing_entity": "reject",
    },
    "definitions": {
        "fields": {
            "entity_id": {"first_of": ["user", "actor.id"]},
            "event_id": {"join": ["id", "n"], "with": "/"},
            "event_time": {"field": {"pattern": "^(.*)$", "field": "at"}, "timezone": {"field": "page"}},
            "attributes": {
                "place": {"path": "region=([^/]+)"},
                "one": {"constant": 1, "type": "long"},
                "n": {"field": "n", "type": "boolean"},
            },
        }
    },
    "nothing of the record": {
        "fields": {
            "entity_id": {"path": "region=([^/]+)"},
            "event_id": {"path": "/([^/]+)$"},
            "event_time": {"join": [{"path": "/([0-9]{4})"}, {"constant": "03-01"}], "with": "-"},
        }
    },
    "several ids": {"fields": {"event_id": ["id", "n"], "attributes": {"day": {"field": "at", "type": "timestamp"}}}},
    "a hash of all": {"fields": {"event_id": {"hash": "*"}}},
    "a hash of some": {"fields": {"event_id": {"hash": ["id", "actor.id", "n"]}, "arrival_time": "at"}},
}


COLUMNS = ["user", "id", "at", "n", "page", "actor.id"]
CSV_STREAMS: dict[str, dict[str, Any]] = {
    "names": {"fields": {"attributes": {"page": "page", "n": {"field": "n", "type": "double"}, "none": "none"}}},
    "a column of two names": {"fields": {"attributes": {"page": "page", "actor": "actor.id", "id": ["actor", "id"]}}},
    "definitions": STREAMS["definitions"],
    "nothing of the record": STREAMS["nothing of the record"],
    "several ids": {"fields": {"event_id": ["id", "n"]}, "missing_entity": "reject"},
    "a hash of all": {"fields": {"event_id": {"hash": "*"}}},
    "a hash of some": {"fields": {"event_id": {"hash": ["id", "n"]}, "arrival_time": "at"}},
    "no such entity": {"fields": {"entity_id": {"first_of": ["none", "nothing"]}}},
    "no such time": {"fields": {"event_time": {"field": "at", "timezone": {"field": "zone"}}}},
}
WITH_KNOWN_FIELDS = ("several ids", "a hash of all", "a hash of some")
"""These name only what COLUMNS has."""
CSV_FORMATS: list[dict[str, Any]] = [
    {},
    {"delimiter": "\t"},
    {"delimiter": ";", "comment": "#"},
    {"delimiter": "^", "quote": "'"},
    {"quote": ""},
    {"delimiter": "]", "quote": "-", "encoding": "windows-1252"},
    {"encoding": "utf-16"},
    {"delimiter": "|", "columns": COLUMNS},
]


@pytest.fixture(params=STREAMS)
def said(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[1, 7, 500, 256 * 1024])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Borders of blocks everywhere; and shapes are worth it for a few records."""
    monkeypatch.setattr(lines, "_BLOCK", request.param)
    monkeypatch.setattr(json_shapes, "_FEW", 4)
    monkeypatch.setattr(json_layouts, "_FEW", 4)
    monkeypatch.setattr(csv_lines, "_WINDOW", 2)
    size: int = request.param
    return size


def test_json_lines(said: str, block_bytes: int, tmp_path: Path, thorough: bool) -> None:
    stream = click_stream("json", tmp_path, path="*/*", **STREAMS[said])
    for seed in range(75 if thorough else 3):
        random = Random(f"{said} {seed} {block_bytes}")
        content = json_file(random, 120, share_of_odd=random.choice([0.1, 0.3, 0.6, 0.9]))
        assert_same_rows(stream, tmp_path / PATH, stored(random, content))


def test_json_lists(said: str, block_bytes: int, tmp_path: Path, thorough: bool) -> None:
    source = {"kind": "files", "path": f"{tmp_path}/*/*", "format": "json", "settle": "0s", "explode": "in.events"}
    stream = click_stream("json", source=source, **STREAMS[said])
    for seed in range(75 if thorough else 3):
        random = Random(f"{said} {seed} {block_bytes}")
        records = json_file(random, 120, share_of_odd=random.choice([0.0, 0.01, 0.1, 0.9])).splitlines()
        assert_same_rows(stream, tmp_path / PATH, stored(random, b"\n".join(json_documents(random, records))))


def json_documents(random: Random, records: list[bytes]) -> Iterator[bytes]:
    """Some hold many of the records, some none, each record in a line of its own or not."""
    while records:
        some, records = records[: (most := random.choice([0, 1, 3, 40]))], records[most:]
        yield random.choice([b'{"in": {"events": [%b]}}', b'{"in": {"events": [\n%b]}\n}']) % b",".join(some)
        yield random.choice([b"", b"", b"3", b'{"in": []}'])


def test_records_of_more_than_32_shapes_are_read_alone() -> None:
    # Quotes do not tell of strings with escapes.
    count = 40 * json_shapes._FEW
    records = pl.Series([f'{{"user": "u\\\\{number}", "{number % 40}": 1}}' for number in range(count)])
    shapes = json_shapes.JsonShapes()
    field = field_reader("user", "json")
    for _ in range(2):
        [texts] = shapes.texts(records, field.named)
        assert texts.in_doubt is not None
        assert texts.in_doubt.sum() == 8 * json_shapes._FEW
        known = texts.values.filter(~texts.in_doubt)
        assert known.to_list() == [f"u\\{number}" for number in (~texts.in_doubt).arg_true()]


@pytest.mark.parametrize("said", CSV_STREAMS)
def test_csv(said: str, block_bytes: int, tmp_path: Path, thorough: bool) -> None:
    for seed in range(60 if thorough else 3):
        random = Random(f"{said} {seed} {block_bytes}")
        csv = random.choice(CSV_FORMATS if said in WITH_KNOWN_FIELDS else CSV_FORMATS[:-1])
        source = {"kind": "files", "path": f"{tmp_path}/*/*", "format": "csv", "csv": csv, "settle": "0s"}
        stream = click_stream("csv", source=source, **CSV_STREAMS[said])
        names = random.choice(
            [COLUMNS, COLUMNS, COLUMNS[::-1], [*COLUMNS, "page"], ["user", "id", "at", "é", "x", "y"]]
        )
        share = random.choice([0.0, 0.02, 0.1, 0.3, 0.9])
        header = None if "columns" in csv else names
        content = csv_file(random, 120, share, csv.get("delimiter", ","), header)
        assert_same_rows(stream, tmp_path / PATH, stored(random, written_as(content, **csv)))


def written_as(content: bytes, quote: str = '"', encoding: str = "utf-8", **_: Any) -> bytes:
    """The same with other quotes and in another encoding; what is no UTF-8 stays or becomes a question mark."""
    other = content.replace(b'"', quote.encode()) if quote else content
    return other if encoding == "utf-8" else other.decode("utf-8", "replace").encode(encoding, "replace")


@pytest.mark.parametrize("width", [200, 201])
def test_csv_of_many_columns(width: int, tmp_path: Path) -> None:
    stream = click_stream("csv", tmp_path, path="*/*", **CSV_STREAMS["a hash of all"])
    header = ["user", "at", *map(str, range(width - 2))]
    lines = [["u", "2024-03-01T11:00:00Z", *map(str, range(begin, begin + width - 2))] for begin in range(3)]
    assert_same_rows(stream, tmp_path / PATH, "\n".join(map(",".join, [header, *lines])).encode())


def stored(random: Random, content: bytes) -> bytes:
    """A file's content as it is, or cut off in the middle of what it was packed into."""
    packed = gzip.compress(content, 1)
    return random.choice([content, content, packed[: random.randint(10, len(packed))]])


def assert_same_rows(stream: Stream, path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    [file] = list_files(stream, datetime.max.replace(tzinfo=UTC)).ready
    together = [row for frame in read_group(stream, [[(file, 3)]], 0) for row in frame.iter_rows(named=True)]
    alone = list(rows_one_by_one(stream, file))
    names = [*alone[0]] if alone else []
    for row, expected in zip(together, alone, strict=False):
        assert repr({name: plain(row[name]) for name in names}) == repr({**expected, **as_stored(expected)})
    assert len(together) == len(alone)


def rows_one_by_one(stream: Stream, file: SourceFile) -> Iterator[dict[str, Any]]:
    decoder = EventDecoder(stream)
    names = ("entity_id", "event_id", "event_time", "arrival_time", *stream.attributes, "rejection_reason")
    places = ("source", "source_partition", "source_offset", "source_index")
    [whole] = files_of_group(stream, [[(file, 3)]], 0)
    for (payload, content, context), delivery, coordinate in (each for part in whole.parts() for each in part.records):
        yield {
            **dict(zip(names, decoder.decode(content, delivery), strict=True)),
            "payload": payload,
            "payload_context": context,
            **dict(zip(places, coordinate, strict=True)),
        }


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """Its decimals as columns have them: without a minus before zero."""
    return {name: value + 0 for name, value in row.items() if isinstance(value, Decimal)}


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value
