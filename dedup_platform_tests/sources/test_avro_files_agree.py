"""Files of Avro that are read by columns become the rows that their records become one by one."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from dedup_platform.sources.avro import blocks, files
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream
from dedup_platform_tests.sources.hostile_avro import Data, avro_file, click_schema
from dedup_platform_tests.sources.hostile_records import mutated
from dedup_platform_tests.sources.test_columns_agree import assert_same_rows, stored

PATH = "region=eu/clicks.avro"
FIELDS: dict[str, dict[str, Any]] = {
    "names": {"attributes": {"f0": "f0", "f1": "f1", "day": {"field": "at", "type": "timestamp"}}},
    "paths": {"entity_id": {"first_of": ["f0.f1", "user"]}, "attributes": {"f2": "f2.f0", "f3": "f3"}},
    "a hash of all": {"event_id": {"hash": "*"}},
    "several ids": {"event_id": ["id", "user"], "arrival_time": "at"},
}


@pytest.mark.parametrize("said", FIELDS)
@pytest.mark.parametrize("deepest", [-1, 1])
@pytest.mark.parametrize("gathered", [1, 1000, 2**20])
def test_files(
    said: str, deepest: int, gathered: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thorough: bool
) -> None:
    monkeypatch.setattr(blocks, "_BYTES", gathered)
    monkeypatch.setattr(files, "_ALONE", 7)
    stream = click_stream("avro", tmp_path, path="*/*", fields=FIELDS[said])
    for seed in range(100 if thorough else 4):
        random = Random(f"{said} {seed} {deepest} {gathered}")
        schema = click_schema(random, deepest)
        share = random.choice([0, 0.002, 0.01, 0.1])
        content = avro_file(random, schema, Data(random, schema, share).some(150), random.choice([0, 0, 0.2]))
        if random.random() < share * 5:
            content = mutated(random, content)
        assert_same_rows(stream, tmp_path / PATH, stored(random, content) if random.random() < 0.3 else content)


def test_records_without_fields(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Nothing", "fields": []}
    stream: Stream = click_stream("avro", tmp_path, path="*/*")
    assert_same_rows(stream, tmp_path / PATH, avro_file(Random(1), schema, [b""] * 9, 0))
