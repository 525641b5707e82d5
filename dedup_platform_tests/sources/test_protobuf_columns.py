"""Files of Protobuf that are read by columns become the rows that they become one message at a time."""

import gzip
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dedup_platform.sources.protobuf import encoded_fields, event_reading, files
from dedup_platform.sources.records import MAX_RECORD_BYTES
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_messages import (
    ODD_FIELDS,
    batch_of,
    event_kind,
    events,
    message_file,
    write_schemas,
)
from dedup_platform_tests.sources.schemas import varint
from dedup_platform_tests.sources.test_columns_agree import assert_same_rows, stored

PATH = "region=eu/events.pb"
NUMBERS = ("i32", "i64", "u32", "u64", "s32", "s64", "f32", "f64", "sf32", "sf64", "ratio", "n")
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "numbers": ("proto3", {"attributes": {f"of_{name}": name for name in NUMBERS}}),
    "types": (
        "proto3",
        {
            "event_id": ["id", "paid"],
            "attributes": {
                "n": {"field": "n", "type": "double"},
                "big": {"field": "u64", "type": "decimal(20,0)"},
                "paid": {"field": "paid", "type": "boolean"},
                "seen": {"field": "seen", "type": "timestamp"},
                **{f"a_{name}": name for name in ("at", "raw", "kind", "note", "wrapped", "name", "left", "right")},
            },
        },
    ),
    "paths": (
        "proto3",
        {
            "entity_id": {"first_of": ["user", "inner.user", "place.name"]},
            "event_id": {"join": ["id", "paid"], "with": "/"},
            "event_time": {"first_of": ["place.since", "at"]},
            "attributes": {
                "level": "place.within.level",
                "open": "place.open",
                "a_kind": "place.kind",
                "inner": {"field": "inner.ratio", "type": "double"},
                "where": "where.name",
                "name": "inner.inner.name",
            },
        },
    ),
    "parts": (
        "proto3",
        {
            "event_id": {"hash": ["id", "place.name", "paid"]},
            "attributes": {"tags": "tags", "count": "counts[1]", "label": "labels.u1", "steps": "place.steps"},
        },
    ),
    "messages": ("proto3", {"attributes": {"place": "place", "level": "place.level", "stops": "inner.stops"}}),
    "a hash of all": ("proto3", {"event_id": {"hash": "*"}, "attributes": {"n": "n"}}),
    "proto2": (
        "proto2",
        {
            "attributes": {
                **{f"a_{name}": name for name in ("n", "kind", "paid", "raw", "left", "other")},
                "level": "place.level",
                "name": "place.name",
            }
        },
    ),
    "little of proto2": ("proto2", {"entity_id": "user", "event_id": ["user", "id"]}),
}


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


@pytest.fixture(params=STREAMS)
def said(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=[1, 300, 2**20])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Borders of blocks everywhere."""
    size: int = request.param
    monkeypatch.setattr(files, "MAX_BYTES", size)
    return size


def test_messages(said: str, block_bytes: int, schemas: Path, tmp_path: Path, thorough: bool) -> None:
    stream = stream_of(schemas, tmp_path, said)
    for seed in range(80 if thorough else 2):
        random = Random(f"{said} {seed} {block_bytes}")
        assert_same_rows(stream, tmp_path / PATH, stored(random, message_file(random, made(random, schemas, said))))


@pytest.mark.parametrize("said", ["types", "paths", "a hash of all", "proto2"])
def test_batches(said: str, schemas: Path, tmp_path: Path, thorough: bool) -> None:
    stream = stream_of(schemas, tmp_path, said, message="Batch", records="events")
    for seed in range(80 if thorough else 2):
        random = Random(f"batch {said} {seed}")
        waiting = made(random, schemas, said)
        batches = []
        while waiting:
            count = random.choice([0, 1, 5, 50])
            batches.append(batch_of(random, waiting[:count]))
            waiting = waiting[count:]
        assert_same_rows(stream, tmp_path / PATH, message_file(random, batches))


@pytest.mark.parametrize(
    ("said", "time"), [("types", b"\x08\xb0\xf2\x86\xaf\x06"), ("proto2", b"2024-03-01T11:00:00Z")]
)
def test_odd_fields(said: str, time: bytes, schemas: Path, tmp_path: Path) -> None:
    good = b"\x0a\1u\x12\1e\x1a" + varint(len(time)) + time
    messages = [message for odd in ODD_FIELDS for message in (good + odd, odd + good, odd)]
    content = b"".join(varint(len(message)) + message for message in messages)
    assert_same_rows(stream_of(schemas, tmp_path, said), tmp_path / PATH, content)


def test_messages_of_all_sizes(schemas: Path, tmp_path: Path) -> None:
    sizes = [0, 1, 127, 128, 16_383, 16_384, 5_000_000, MAX_RECORD_BYTES + 1, 0, 9, 1]
    messages = [(b"\x0a" + varint(size) + b"u" * size)[:size] for size in sizes]
    content = b"".join(varint(len(message)) + message for message in messages)
    assert_same_rows(stream_of(schemas, tmp_path, "little of proto2"), tmp_path / PATH, content)


def test_what_ends_too_early_behind_its_last_messages(schemas: Path, tmp_path: Path) -> None:
    packed = gzip.compress(b"\3\x0a\1u" * 100)
    for cut in range(1, 12):
        assert_same_rows(stream_of(schemas, tmp_path, "little of proto2"), tmp_path / PATH, packed[:-cut])


BOUNDS = [(encoded_fields, "_MOST_FIELDS"), (event_reading, "_MOST_STEPS"), (event_reading, "_MOST_LEVELS")]


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound[1])
def test_bounds(bound: tuple[Any, str], schemas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*bound, 4)
    stream = stream_of(schemas, tmp_path, "paths")
    random = Random(bound[1])
    assert_same_rows(stream, tmp_path / PATH, message_file(random, made(random, schemas, "paths")))


def made(random: Random, schemas: Path, said: str) -> list[bytes]:
    share = random.choice([0.0, 0.02, 0.1, 0.5])
    return events(random, event_kind(schemas / f"{STREAMS[said][0]}.desc"), 120, share)


def stream_of(schemas: Path, folder: Path, said: str, **parts: Any) -> Stream:
    syntax, fields = STREAMS[said]
    part = {"schema": str(schemas / f"{syntax}.desc"), "message": "Event"} | parts
    source = {"kind": "files", "path": f"{folder}/*/*", "format": "protobuf", "protobuf": part, "settle": "0s"}
    return click_stream("protobuf", source=source, fields=fields)
