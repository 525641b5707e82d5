"""A worker takes in a file of a gigabyte, of any format, in less than two gigabytes of memory."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from isal import igzip

from dedup_platform.testing import utc
from dedup_platform_tests.conftest import PROJECT
from dedup_platform_tests.sources.schemas import SINGLE, message_class, write_protos

GIGABYTE = 2**30
ROW_GROUP = 128 * 2**20
DAYS, EVENTS = 3, 20_000
MOST = 2 * GIGABYTE
LONGEST = 1800
CONTENT = {
    "name": "events",
    "fields": {
        "entity_id": "user",
        "event_id": "id",
        "event_time": "at",
        "attributes": {"n": {"field": "n", "type": "long"}, "left": {"field": "left", "type": "string"}},
    },
    "partitions": {"granularity": "day", "start": "2024-03-01"},
    "buckets": 4,
    "sessions": {"timeout": "30m"},
}


def events() -> Iterator[dict[str, Any]]:
    """Events of some days, with a text in each that hardly compresses."""
    chosen = random.Random(7)
    for number in range(EVENTS):
        at = utc("2024-03-01") + timedelta(days=number % DAYS, seconds=number)
        text = chosen.randbytes(50).hex()
        yield {"user": f"user {number % 997}", "id": f"{number:032x}", "at": at, "n": number, "left": text}


def write_json(folder: Path) -> int:
    lines = b"".join(json.dumps(event | {"at": event["at"].isoformat()}).encode() + b"\n" for event in events())
    with igzip.open(folder / "events.json.gz", "wb", compresslevel=1) as file:
        return repeated(file, lines)


def write_csv(folder: Path) -> int:
    rows = [",".join(map(str, (event | {"at": event["at"].isoformat()}).values())) for event in events()]
    with (folder / "events.csv").open("wb") as file:
        file.write(b"user,id,at,n,left\n")
        return repeated(file, "".join(f"{row}\n" for row in rows).encode())


def write_protobuf(folder: Path) -> int:
    schemas = folder.parent
    write_protos(schemas)
    kind = message_class(schemas, "pkg.Event")
    messages = [kind(**event | {"at": seconds(event["at"])}).SerializeToString() for event in events()]
    assert max(map(len, messages)) < 256  # so that the length before each takes at most two bytes
    with (folder / "events.pb").open("wb") as file:
        return repeated(file, b"".join(length(message) + message for message in messages))


def seconds(moment: datetime) -> dict[str, int]:
    return {"seconds": int(moment.timestamp())}


def length(message: bytes) -> bytes:
    return bytes([len(message)]) if len(message) < 128 else bytes([len(message) % 128 + 128, len(message) // 128])


def write_parquet(folder: Path) -> int:
    block = pa.Table.from_pylist(list(events()))
    group = pa.concat_tables([block] * (ROW_GROUP // block.nbytes))
    groups = GIGABYTE // ROW_GROUP
    with pq.ParquetWriter(
        folder / "events.parquet", group.schema, compression="none", use_dictionary=False, data_page_size=2**20
    ) as file:
        for _ in range(groups):
            file.write_table(group, row_group_size=group.num_rows)
    return groups * group.num_rows


def repeated(file: Any, block: bytes) -> int:
    """Write as many blocks as make a gigabyte; how many events there are then."""
    blocks = -(-GIGABYTE // len(block))
    for _ in range(blocks):
        file.write(block)
    return blocks * EVENTS


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("source", "write"),
    [
        ({"format": "json"}, write_json),
        ({"format": "csv"}, write_csv),
        ({"format": "parquet"}, write_parquet),
        ({"format": "protobuf", **SINGLE}, write_protobuf),
    ],
    ids=["json, gzip", "csv, plain", "parquet", "protobuf"],
)
def test_a_gigabyte_is_taken_in_with_less_than_two_of_memory(
    tmp_path: Path, source: dict[str, Any], write: Callable[[Path], int]
) -> None:
    (tmp_path / "files").mkdir()
    written = write(tmp_path / "files")
    place = {"source": {"kind": "files", "path": "files/*", "settle": "0s", **source}}
    (tmp_path / "events.yaml").write_text(yaml.safe_dump(CONTENT | place), encoding="utf-8")
    try:
        told = taken_in(tmp_path)
    finally:
        for file in [*tmp_path.rglob("*.parquet"), *(tmp_path / "files").iterdir()]:
            file.unlink(missing_ok=True)
    assert (told["records"], told["rejected"]) == (written, 0)
    assert told["peak"] < MOST, told


def taken_in(folder: Path) -> dict[str, int]:
    ended = subprocess.run(
        [sys.executable, "-m", "dedup_platform_tests.costs.taking_in", str(folder)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))
