"""Files that once stopped a stream or took all memory, each of one stream, beside a file of healthy records."""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from dedup_platform.testing import utc
from dedup_platform_tests.ingest.kafka.topics import Topic
from dedup_platform_tests.sources.registries import Registry
from dedup_platform_tests.sources.schemas import varint
from dedup_platform_tests.sources.test_avro import record
from dedup_platform_tests.sources.test_avro_bounds import DOUBLED, LISTS, block, header

MIB = 2**20
HEALTHY = [{"u": "a", "id": str(number), "at": f"2026-01-02T10:0{number}:00Z"} for number in range(3)]
PROTO = """syntax = "proto3";
package p;
message E { string u = 1; string id = 2; string at = 3; }
message B { repeated E events = 1; }
"""
BATCHES = {"schema": "e.proto", "message": "p.B", "records": "events"}

NULLS = varint(64 << 1) + (varint(16 * MIB << 1) + b"\0") * 64 + b"\0"
"""In Avro, 64 lists of 16 million nulls each."""


@dataclass(frozen=True)
class Poison:
    """A file of this format that `write` makes at a path, and how many of its records are rejected for which reason.

    The `events` among its records are taken in.
    """

    format: str
    write: Callable[[Path], object]
    rejected: dict[str | None, int]
    events: int = 0
    ending: str = ""
    granularity: str = "day"


def write_stream(folder: Path, name: str, poison: Poison) -> None:
    """The stream file, the file of healthy records `b` and the poison `a`."""
    files = folder / name
    files.mkdir()
    (folder / "e.proto").write_text(PROTO)
    _write_healthy(files / f"b.{poison.format}", poison.format)
    poison.write(files / f"a.{poison.format}{poison.ending}")
    batches = {"protobuf": BATCHES} if poison.format == "protobuf" else {}
    source = {"kind": "files", "path": f"{name}/*", "settle": "0s", "format": poison.format, **batches}
    _write_stream_file(folder, name, source, poison.granularity)


def write_topic_stream(folder: Path, topic: Topic, registry: Registry) -> None:
    """The stream file `topic` of lists of events behind a registry's header, and the messages.

    One event of the healthy ones is in each message; between them are a key of a megabyte of many events, a stamp that
    is no time, and an id of a schema that no registry can have.
    """
    registry.add(1, "{}", "JSON")
    registry.answers["/subjects"] = []
    first, second, third, many = (
        b"\0\0\0\0\1" + json.dumps({"e": events}).encode()
        for events in (*([each] for each in HEALTHY), [{"id": 1}] * 1500)
    )
    topic.produce(first)
    topic.produce(many, key="k" * MIB)
    topic.produce(second)
    topic.produce(first, stamp=253402300800000)
    topic.produce(b"\0\xff\xff\xff\xff{}")
    topic.produce(third)
    source = {"kind": "kafka", "brokers": topic.server.brokers, "topic": topic.name, "format": "json"}
    read = {"json": {"records": "e"}, "registry": {"url": registry.url}}
    _write_stream_file(folder, "topic", source | read, "day", arrival_time="at")


OF_TOPIC = {"unreadable_arrival_time": 1500, "unknown_schema": 1, None: len(HEALTHY) + 1}


def _write_stream_file(folder: Path, name: str, source: Mapping[str, Any], granularity: str, **fields: str) -> None:
    said = {
        "name": name,
        "source": source,
        "fields": {"entity_id": "u", "event_id": "id", "event_time": "at", **fields},
        "partitions": {"granularity": granularity, "start": "2026-01-01"},
        "sessions": {"timeout": "30m"},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(said, sort_keys=False))


def _write_healthy(path: Path, file_format: str) -> None:
    match file_format:
        case "json":
            path.write_text("".join(json.dumps(each) + "\n" for each in HEALTHY))
        case "csv":
            path.write_text("u,id,at\n" + "".join(",".join(each.values()) + "\n" for each in HEALTHY))
        case "parquet":
            pq.write_table(pa.Table.from_pylist(HEALTHY), path)
        case "avro":
            fields = [{"name": name, "type": "string"} for name in HEALTHY[0]]
            with path.open("wb") as file:
                fastavro.writer(file, {"type": "record", "name": "E", "fields": fields}, HEALTHY)
        case "protobuf":
            path.write_bytes(_delimited(_batch(HEALTHY)))


def _batch(events: list[dict[str, str]]) -> bytes:
    encoded = (
        b"".join(bytes([number << 3 | 2, len(text)]) + text.encode() for number, text in enumerate(each.values(), 1))
        for each in events
    )
    return b"".join(b"\x0a" + varint(len(each)) + each for each in encoded)


def _delimited(message: bytes) -> bytes:
    return varint(len(message)) + message


def _avro(kind: Any, count: int, content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(header(record({"name": "a", "type": kind})) + block(count, content))


def _dictionary(path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 1024, pa.int32()), pa.array(["x" * MIB]))
    options: dict[str, Any] = {"compression": "zstd", "write_statistics": False, "dictionary_pagesize_limit": 2**30}
    pq.write_table(pa.table({"id": repeated}), path, **options)


def _packed(pieces: Callable[[], Iterable[bytes]]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with gzip.open(path, "wb", 9) as file:
            for piece in pieces():
                file.write(piece)

    return write


def _large_message() -> Iterator[bytes]:
    yield varint(128 * MIB)
    for _ in range(128):
        yield b"\x0a\x02\x1a\x00" * (MIB // 4)


def _numbers(path: Path) -> None:
    beginning = b'{"u":"a","id":"9","at":"2026-01-02T00:00:00Z","x":['
    path.write_bytes(beginning + b"1," * ((16 * MIB - 100) // 2) + b"1]}\n")


def _hours(path: Path) -> None:
    times = (utc("2026-01-01") + timedelta(hours=number) for number in range(3000))
    records = ({"u": f"u{number % 7}", "id": f"h{number}", "at": at.isoformat()} for number, at in enumerate(times))
    path.write_text("".join(json.dumps(each) + "\n" for each in records))


def _link(path: Path) -> None:
    outside = path.parent.parent / "secret"
    outside.write_text('{"u": "secret", "id": "s", "at": "2026-01-02T00:00:00Z"}\n')
    path.symlink_to(outside)


def _lines(beginning: bytes, line: bytes, count: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(beginning + line * count)


POISONS = {
    "quotes": Poison("csv", _lines(b"u,id,at\n", b'a","b\n', MIB // 6), {"malformed_record": MIB // 6}),
    "endless": Poison("avro", _avro("null", 2**62, b""), {"missing_field:u": 1000, "damaged_file": 1}),
    "doubled": Poison("avro", _avro(DOUBLED, 1, b""), {"damaged_file": 1}),
    "scale": Poison(
        "avro",
        _avro({"type": "bytes", "logicalType": "decimal", "precision": 10**9 + 1, "scale": 10**9}, 1, b"\2\1"),
        {"missing_field:u": 1},
    ),
    "nulls": Poison("avro", _avro(LISTS, 1, NULLS), {"damaged_file": 1}),
    "dictionary": Poison("parquet", _dictionary, {"missing_field:u": 7, "damaged_file": 1}),
    "batch": Poison(
        "protobuf", lambda path: path.write_bytes(_delimited(b"\x0a\x00" * 4_900_000)), {"missing_event_id": 4_900_000}
    ),
    "message": Poison("protobuf", _packed(_large_message), {"damaged_file": 1}, ending=".gz"),
    "header": Poison(
        "csv",
        _lines(b"u,id,at," + b"x" * 60_000 + b"\n", b"a\n", 20_000),
        {"malformed_record": 666, "damaged_file": 1},
    ),
    "numbers": Poison("json", _numbers, {}, events=1),
    "unpacked": Poison(
        "json",
        _packed(lambda: repeat(b"1\n" * MIB, 21)),
        {"malformed_record": 504_129, "damaged_file": 1},
        ending=".gz",
    ),
    "line": Poison(
        "csv", _packed(lambda: repeat(b"x" * MIB, 1024)), {"malformed_record": 1, "damaged_file": 1}, ending=".gz"
    ),
    "hours": Poison("json", _hours, {"too_many_partitions:200": 2800}, events=200, granularity="hour"),
    "link": Poison("json", _link, {}),
}
