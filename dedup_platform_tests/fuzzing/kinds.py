"""What is damaged: small files and messages of each format as they come, and the streams that read them."""

import gzip
import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import cramjam
import pyarrow.parquet as pq
import zstandard

from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_avro import Data, avro_file, click_schema
from dedup_platform_tests.sources.hostile_messages import batch_of, event_kind, events, message_file, write_schemas
from dedup_platform_tests.sources.hostile_records import csv_file, json_file
from dedup_platform_tests.sources.hostile_tables import table

COLUMNS = ["user", "id", "at", "n", "page", "actor.id"]
SCHEMA = click_schema(Random(11), deepest=1)
_ATTRIBUTES: dict[str, Any] = {"n": {"field": "n", "type": "double"}, "page": "page"}
_TOPIC: dict[str, Any] = {"kind": "kafka", "brokers": "127.0.0.1:9092", "topic": "clicks"}

Make = Callable[[Random, Path], bytes]


@dataclass(frozen=True)
class Kind:
    """Inputs that one stream reads. `make` gives one that is whole, or damaged by the format's own rules."""

    format: str
    make: Make
    source: dict[str, Any]
    fields: dict[str, Any]
    ending: str = ""
    pack: Callable[[bytes], bytes] | None = None
    is_message: bool = False

    @property
    def has_plain_lines(self) -> bool:
        """Whether each line that is not blank is a record."""
        return self.format == "json" and not self.pack and "explode" not in self.source

    @property
    def holds_many(self) -> bool:
        """Whether a message may hold several events, or none."""
        return self.format == "csv" or "explode" in self.source or "records" in self.source.get("protobuf", {})

    def stream(self, folder: Path) -> Stream:
        """The stream whose files lie in this folder, beside which its schemas are."""
        place = _TOPIC if self.is_message else {"kind": "files", "path": f"{folder}/in/*", "settle": "0s"}
        said = click_stream("json", fields=dict(self.fields)).model_dump(exclude={"source"}, exclude_unset=True)
        source = {**place, "format": self.format, **self.source}
        return Stream.model_validate({**said, "source": source}, context={"origin": folder / "clicks.yaml"})

    def whole(self, random: Random, folder: Path) -> bytes:
        """One that nothing has befallen yet, packed as its name says."""
        content = self.make(random, folder)
        return self.pack(content) if self.pack else content


def write_all_schemas(folder: Path) -> None:
    """What streams and inputs need in the folder."""
    write_schemas(folder)
    (folder / "click.avsc").write_text(json.dumps(SCHEMA))


def _json(random: Random, _: Path) -> bytes:
    return json_file(random, random.choice([0, 1, 3, 8]), random.choice([0, 0.1, 0.6]))


def _nested(random: Random, _: Path) -> bytes:
    lines = [line.decode("utf-8", "replace") for line in json_file(random, random.choice([1, 3, 8]), 0.2).splitlines()]
    events_text = ",".join(lines)
    gap = random.choice(["", " ", "\n"])
    return f'{{"sent":1,{gap}"in":{{"clicks":[{events_text}]{gap}}}}}{gap}'.encode() * random.choice([1, 1, 2])


def _list(random: Random, _: Path) -> bytes:
    return b"[" + b",\n".join(json_file(random, random.choice([1, 3, 8]), 0.2).splitlines()) + b"]"


def _csv(delimiter: str, has_header: bool) -> Make:
    def make(random: Random, _: Path) -> bytes:
        header = COLUMNS if has_header else None
        return csv_file(random, random.choice([0, 1, 3, 8]), random.choice([0, 0.1, 0.6]), delimiter, header)

    return make


def _avro(random: Random, _: Path) -> bytes:
    schema = click_schema(random, random.choice([-1, 0, 1]))
    share = random.choice([0, 0.01, 0.1])
    return avro_file(random, schema, Data(random, schema, share).some(random.choice([0, 1, 8])), share)


def _datum(random: Random, _: Path) -> bytes:
    return Data(random, SCHEMA, random.choice([0, 0.1])).some(1)[0]


def _protobuf(name: str, in_file: bool, in_batches: bool) -> Make:
    def make(random: Random, folder: Path) -> bytes:
        found = events(random, event_kind(folder / f"{name}.desc"), random.choice([1, 3, 8]), random.choice([0, 0.2]))
        if in_batches:
            found = [batch_of(random, found)]
        return message_file(random, found) if in_file else found[0]

    return make


def _parquet(random: Random, _: Path) -> bytes:
    content = io.BytesIO()
    rows = table(random, ["user", "id", "at", "n", "page"], random.choice([0, 1, 8]))
    pq.write_table(rows, content, use_dictionary=random.random() < 0.5, store_schema=random.random() < 0.5)
    return content.getvalue()


def _hadoop(content: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(content))
    return struct.pack(">II", len(content), len(packed)) + packed


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, 1, mtime=0)


def _zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(content)


def _frames(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(content))


def _of_protobuf(name: str, in_batches: bool = False) -> dict[str, Any]:
    said = {"schema": f"{name}.desc", "message": "Batch" if in_batches else "Event"}
    return {"protobuf": said | ({"records": "events"} if in_batches else {})}


_HASHED = {"event_id": {"hash": "*"}, "attributes": {"page": "page"}}
_SCHEMA = {"avro": {"schema": "click.avsc"}}
_OF_AVRO = {"attributes": {"f0": "f0", "f1": "f1"}}
_OF_PROTOBUF = {"attributes": {"n": {"field": "n", "type": "double"}, "place": "place.name"}}
_OF_PROTO_2 = {"attributes": {"level": "place.level"}}

KINDS: dict[str, Kind] = {
    "json": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}),
    "json hashed": Kind("json", _json, {}, _HASHED),
    "json documents": Kind("json", _nested, {"explode": "in.clicks"}, {"attributes": _ATTRIBUTES}),
    "json list": Kind("json", _list, {"explode": "*"}, {"attributes": _ATTRIBUTES}),
    "json gzip": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}, ".gz", _gzip),
    "json zstd": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}, ".zst", _zstd),
    "json snappy": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}, ".sz", _frames),
    "json hadoop": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}, ".snappy", _hadoop),
    "csv": Kind("csv", _csv(",", True), {}, {"attributes": _ATTRIBUTES}),
    "csv comments": Kind("csv", _csv(";", True), {"csv": {"delimiter": ";", "comment": "#"}}, _HASHED),
    "csv quotes": Kind("csv", _csv(",", True), {"csv": {"quote": "'", "encoding": "shift_jis"}}, _HASHED),
    "csv columns": Kind("csv", _csv("|", False), {"csv": {"delimiter": "|", "columns": COLUMNS}}, {}),
    "csv gzip": Kind("csv", _csv(",", True), {}, {"attributes": _ATTRIBUTES}, ".gz", _gzip),
    "avro": Kind("avro", _avro, {}, _OF_AVRO),
    "avro hashed": Kind("avro", _avro, {}, {"event_id": {"hash": "*"}}),
    "avro zstd": Kind("avro", _avro, {}, _OF_AVRO, ".zst", _zstd),
    "protobuf": Kind("protobuf", _protobuf("proto3", True, False), _of_protobuf("proto3"), _OF_PROTOBUF),
    "protobuf batches": Kind("protobuf", _protobuf("proto3", True, True), _of_protobuf("proto3", True), _OF_PROTOBUF),
    "protobuf 2": Kind("protobuf", _protobuf("proto2", True, False), _of_protobuf("proto2"), _OF_PROTO_2),
    "protobuf gzip": Kind("protobuf", _protobuf("proto3", True, False), _of_protobuf("proto3"), {}, ".gz", _gzip),
    "parquet": Kind("parquet", _parquet, {}, {"attributes": _ATTRIBUTES}),
    "json messages": Kind("json", _json, {}, {"attributes": _ATTRIBUTES}, is_message=True),
    "json documents in messages": Kind("json", _nested, {"explode": "in.clicks"}, {}, is_message=True),
    "csv messages": Kind("csv", _csv(",", False), {"csv": {"columns": COLUMNS}}, {}, is_message=True),
    "avro messages": Kind("avro", _datum, _SCHEMA, _OF_AVRO, is_message=True),
    "protobuf messages": Kind(
        "protobuf", _protobuf("proto3", False, False), _of_protobuf("proto3"), _OF_PROTOBUF, is_message=True
    ),
    "protobuf batch messages": Kind(
        "protobuf", _protobuf("proto3", False, True), _of_protobuf("proto3", True), _OF_PROTOBUF, is_message=True
    ),
}
