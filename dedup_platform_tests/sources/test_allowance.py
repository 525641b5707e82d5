"""A file whose records are much more than the file is read up to a limit, however it is packed inside."""

import gzip
import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_platform.sources.files import files_of_group, read_group
from dedup_platform.sources.listing import list_files
from dedup_platform_tests.sources.click_streams import click_stream

NOW = datetime.max.replace(tzinfo=UTC)
MANY = 400_000
RATIO = 3


def avro(codec: str) -> bytes:
    fields = [{"name": name, "type": "string"} for name in ("user", "id", "at")]
    file = BytesIO()
    events = [dict.fromkeys(("user", "id", "at"), "")] * MANY
    fastavro.writer(file, {"type": "record", "name": "E", "fields": fields}, events, codec)
    return file.getvalue()


def parquet() -> bytes:
    file = BytesIO()
    pq.write_table(pa.table(dict.fromkeys(("user", "id", "at"), pa.array(["x"]).take([0] * MANY))), file)
    return file.getvalue()


FILES: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "avro.deflate": ("avro", avro("deflate"), {}),
    "avro.xz": ("avro", avro("xz"), {}),
    "parquet": ("parquet", parquet(), {}),
    "csv": ("csv", b"user,id,at," + b"x" * 60_000 + b"\n" + b"a\n" * 1000, {}),
    "csv.gz": ("csv", gzip.compress(b"user,id,at," + b"x" * 60_000 + b"\n" + b"a\n" * MANY), {}),
    "json.gz": ("json", gzip.compress(b'{"R":[' + b"1," * MANY + b"1]}\n"), {"explode": "R"}),
}


@pytest.mark.parametrize("name", FILES)
def test_both_ways_of_reading_end_at_the_same_record(tmp_path: Path, name: str) -> None:
    file_format, content, said = FILES[name]
    (tmp_path / f"a.{name}").write_bytes(content)
    stream = click_stream(file_format, tmp_path)
    source = stream.source.model_copy(update={"max_unpacked_ratio": RATIO, **said})
    stream = stream.model_copy(update={"source": source})
    groups = [[(file, 0) for file in list_files(stream, NOW).ready]]
    rows = pl.concat(read_group(stream, groups, 0))
    sizes = pl.col("payload").bin.size() + pl.col("payload_context").str.len_chars() + 16
    assert rows.select(sizes.sum()).item() < 2 * max(4 * 2**20, RATIO * len(content)) + 70_000
    assert 60 < len(rows) < MANY
    *_, last = rows.iter_rows(named=True)
    assert last["rejection_reason"] == "damaged_file"
    damage = json.loads(last["payload_context"])["damage"]["reason"]
    assert f"its records take more than twice {RATIO} times its size" in damage
    assert rows["rejection_reason"].eq_missing("damaged_file").sum() == 1

    [read] = files_of_group(stream, groups, 0)
    alone = (delivered for part in read.parts() for delivered in part.records)
    places = [(*place[2:], payload, context) for (payload, _, context), _, place in alone]
    assert places == rows.select("source_offset", "source_index", "payload", "payload_context").rows()
