"""Rows of Parquet that are read by columns become the rows, payloads and reasons that they become one by one."""

import io
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dedup_platform.sources import parquet_records
from dedup_platform.sources.compression import Packed
from dedup_platform.sources.parquet_records import parquet_batches
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_tables import table
from dedup_platform_tests.sources.test_columns_agree import PATH, assert_same_rows

NAMES = ["user", "id", "at", "arrived", "n", "day", 'q"é', "x y"]
STREAMS: dict[str, dict[str, Any]] = {
    "texts": {"fields": {"attributes": {"n": "n", "day": {"field": "day", "type": "timestamp"}, "spaced": "x y"}}},
    "types": {
        "fields": {
            "arrival_time": "arrived",
            "attributes": {
                "n": {"field": "n", "type": "double"},
                "day": {"field": "day", "type": "timestamp"},
                "cents": {"field": "x y", "type": "decimal(12,2)"},
            },
        },
        "missing_entity": "reject",
    },
    "other times": {
        "fields": {"event_time": {"field": "at", "timezone": "Europe/Berlin"}, "attributes": {"at": "at"}},
        "late": {"horizon": "4000d"},
    },
    "epochs": {"fields": {"event_time": {"field": "at", "format": "epoch_s"}, "event_id": {"hash": "*"}}},
}


@pytest.mark.parametrize("said", STREAMS)
def test_rows_and_reasons(said: str, tmp_path: Path, thorough: bool) -> None:
    stream = click_stream("parquet", tmp_path, path="*/*", **STREAMS[said])
    for seed in range(250 if thorough else 12):
        random = Random(f"{said} {seed}")
        assert_same_rows(stream, tmp_path / PATH, written(random, table(random, NAMES, 200)))


def test_payloads(thorough: bool) -> None:
    plain = 0
    for seed in range(1000 if thorough else 60):
        random = Random(f"payload {seed}")
        content = written(random, table(random, NAMES, 200))
        [rows] = parquet_records._read(io.BytesIO(content), 1024)
        values = [parquet_records._json(column) for column in rows.columns]
        alone = parquet_records._objects(rows.schema.names, values, rows.num_rows)
        found = [
            payload for payloads, _, _ in parquet_batches(Packed(io.BytesIO(content), PATH)) for payload in payloads
        ]
        assert found == alone.to_pylist()
        plain += bool(parquet_records._Rows.of(rows).columns)
    assert plain > seed / 2, "most are read by columns"


def written(random: Random, rows: pa.Table) -> bytes:
    """As a file, in which anything may be a dictionary."""
    content = io.BytesIO()
    pq.write_table(rows, content, use_dictionary=random.random() < 0.5, store_schema=random.random() < 0.8)
    return content.getvalue()
