"""What the first records of a file become, field by field, and why what becomes nothing does."""

import gzip
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dedup_platform.errors import SourceError
from dedup_platform.sources.sample import LOOKED_AT, Sample, sampled
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, message_stream

EVENT: dict[str, Any] = {
    "actor": {"id": "u", "name": None, "tags": ["x"], "empty": ""},
    "id": "e",
    "at": "01.03.2024 10:00",
    "zone": "Asia/Tokyo",
}
FIELDS: dict[str, Any] = {
    "entity_id": {"first_of": ["actor.login", "actor.id"]},
    "event_time": {"field": "at", "format": "%d.%m.%Y %H:%M", "timezone": {"field": "zone"}},
    "attributes": {
        "size": {"field": "actor.id", "type": "long"},
        "name": "actor.name.first",
        "tag": "actor.tags[1]",
        "tags": "actor.tags.x",
        "deep": "id.x",
        "none": "event.id",
        "back": "actor.tags[-1]",
        "empty": "actor.empty",
        "cut": {"pattern": "z(.)", "field": "id"},
        "seen": {"field": "id", "type": "timestamp"},
        "day": {"path": "day=([^/]+)"},
    },
}


def sample_of(stream: Stream, folder: Path, *events: Any, name: str = "a.json") -> Sample:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(json.dumps(event) for event in events))
    os.utime(file, (1.71e9, 1.71e9))
    return sampled(stream, file)


def test_field_by_field(tmp_path: Path) -> None:
    stream = click_stream("json", tmp_path, fields=FIELDS)
    [record] = sample_of(stream, tmp_path, EVENT, name="day=5/a.json").records
    assert (record.offset, record.index, record.rejection_reason) == (0, 0, "unreadable_attribute:size")
    found = {each.column: (each.named, each.text, each.value, each.trouble) for each in record.fields}
    assert found == {
        "entity_id": ("the first of actor.login, actor.id", "u", "u", None),
        "event_id": ("id", "e", "e", None),
        "event_time": ("at", "01.03.2024 10:00 in zone Asia/Tokyo", datetime(2024, 3, 1, 1, tzinfo=UTC), None),
        "size": ("actor.id", "u", None, "is no long"),
        "name": ("actor.name.first", None, None, "actor.name is null"),
        "tag": ("actor.tags[1]", None, None, "actor.tags has no 1; it is a list of 1, from [0] on"),
        "tags": ("actor.tags.x", None, None, "actor.tags has no 'x'; it is a list of 1, from [0] on"),
        "deep": ("id.x", None, None, "id has no 'x'; it has no parts"),
        "none": ("event.id", None, None, "the record has no 'event'; it has: actor, id, at, zone"),
        "back": (
            "actor.tags[-1]",
            None,
            None,
            "the record has no 'actor.tags[-1]'; it has: actor, id, at, zone; "
            "it is no path, as '[-1]' in it is no step: .name, [0] or ['a name']",
        ),
        "empty": ("actor.empty", "", None, "actor.empty is empty"),
        "cut": ("z(.) in id", None, None, "nothing is found by the pattern"),
        "seen": ("id", "e", None, "is no time of the format iso8601"),
        "day": ("day=([^/]+) in the file's path", "5", "5", None),
    }


@pytest.mark.parametrize(
    ("event_id", "named", "trouble"),
    [
        ("key", "key", "the record has no 'key'; it has: actor, id, at, zone"),
        (["id", "actor.key"], "id, actor.key", "actor has no 'key'; it has: id, name, tags, empty"),
        ({"hash": ["id", "key"]}, "id, key", "the record has no 'key'; it has: actor, id, at, zone"),
        ({"join": ["id", "key"], "with": ""}, "id, key joined by ''", "the record has no 'key'; it has: actor, id, at"),
    ],
)
def test_ids_that_are_missing(tmp_path: Path, event_id: Any, named: str, trouble: str) -> None:
    stream = click_stream("json", tmp_path, fields=FIELDS | {"event_id": event_id})
    [record] = sample_of(stream, tmp_path, EVENT).records
    assert record.rejection_reason == "missing_event_id"
    assert record.fields[1].named == named
    assert (record.fields[1].trouble or "").startswith(trouble)


def test_a_hash_of_all_fields(tmp_path: Path) -> None:
    stream = click_stream("json", tmp_path, fields={"event_id": {"hash": "*"}})
    filled, empty = sample_of(stream, tmp_path, EVENT, {}).records
    assert (filled.fields[1].named, len(filled.fields[1].value)) == ("a hash of all fields", 32)
    assert (empty.fields[1].value, empty.fields[1].trouble) == (None, "the record has no fields")


def test_the_first_records_and_one_of_every_reason(tmp_path: Path) -> None:
    stream = click_stream("json", tmp_path, fields={"arrival_time": "got"})
    good = {"user": "u", "id": "e", "at": "2024-03-01", "got": "2024-03-01T01:00Z"}
    events = [*[good] * 10, 7, good | {"got": ""}, 7, *[good] * (2 * LOOKED_AT)]
    sample = sample_of(stream, tmp_path, *events)
    assert [(record.offset, record.rejection_reason) for record in sample.records] == [
        (0, None),
        (1, None),
        (2, None),
        (10, "malformed_record"),
        (11, "unreadable_arrival_time"),
    ]
    assert sample.records[3].fields == ()
    assert sample.records[4].fields[3].trouble == "got is empty"
    assert sample.reasons == {None: LOOKED_AT - 3, "malformed_record": 2, "unreadable_arrival_time": 1}


def test_files_of_columns_and_of_lists(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,user,id,at\na,b,e,2024-03-01\n")
    [record] = sampled(click_stream("csv", tmp_path), tmp_path / "a.csv").records
    assert record.rejection_reason == "malformed_record"
    assert record.fields[0].trouble == "user is the name of more than one column"
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps({"in": [EVENT, EVENT]}).encode()))
    source = {"kind": "files", "path": f"{tmp_path}/*", "format": "json", "explode": "in"}
    records = sampled(click_stream("json", source=source, fields=FIELDS), tmp_path / "a.json.gz").records
    assert [(record.offset, record.index) for record in records] == [(0, 0), (0, 1)]


def test_a_file_is_the_value_of_a_message(tmp_path: Path) -> None:
    stream = message_stream("json", explode="in")
    sample = sample_of(stream, tmp_path, {"in": [{"user": "u", "id": "e", "at": "2024-03-01"}, 7]})
    assert sample.reasons == {None: 1, "malformed_record": 1}
    assert [(record.offset, record.index) for record in sample.records] == [(0, 0), (0, 1)]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(SourceError, match="cannot be read"):
            sampled(click_stream("json", tmp_path), path)
