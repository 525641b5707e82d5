"""What a sensor's tick costs over tables of many cells. Metadata only: such tables need not hold any data."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType
from pyspark.sql import SparkSession

from benchmarks.bench import Bench
from benchmarks.contenders import OURS
from benchmarks.contenders.ours import STREAM, deployment, stream_file
from benchmarks.data import START
from dedup_platform import tables
from dedup_platform.catalog import SUMMARY, Catalog, head, new_receipt_name
from dedup_platform.fingerprints import fingerprint
from dedup_platform.lakehouse import Lakehouse
from dedup_platform.platform import Platform
from dedup_platform.settings import Settings
from dedup_platform.stream import Stream, load_stream

NAME = "tick"
CELLS = {10: 1, 1_000: 1, 100_000: 32}
"""Cells in each table -> buckets: with one bucket, a hundred thousand cells would be three centuries of days."""
ROWS, BYTES = 10_000, 1_000_000
_DAY = 86_400_000_000


def measure(bench: Bench) -> None:
    """Folds the tables into a new ledger, then plans again and again: with nothing, one cell, and every cell stale."""
    for cells, buckets in CELLS.items():
        task = replace(bench.task(OURS, bench.data, f"work/{NAME}"), buckets=buckets)
        bench.forget(task)
        Path(task.home).mkdir(parents=True)
        file = Path(task.home) / f"{STREAM}.yaml"
        file.write_text(stream_file(task), encoding="utf-8")
        settings, stream = deployment(task), load_stream(file)
        bench.say(f"{NAME}: making the metadata of {cells:,} cells")
        catalog = Catalog(settings)
        places = [(number // task.buckets, number % task.buckets) for number in range(cells)]
        _make_tables(catalog, stream, task.buckets, places)
        platform = Platform.open(settings, {STREAM: stream}, _no_spark)
        _tell(bench, cells, "first fold", [_timed(partial(platform.ledger.sync, STREAM))])
        _expect_stale(platform, 0)
        repeats = range(bench.options.runs)
        _tell(bench, cells, "plan, nothing stale", [_timed(partial(platform.plan, STREAM)) for _ in repeats])
        _tell(bench, cells, "sensor tick, nothing stale", _ticks(settings, stream, task.home, bench.options.runs))
        for what, touched in (("one cell stale", places[-1:]), ("every cell stale", places)):
            _append(catalog.load_table(STREAM, tables.RAW_EVENTS), touched, {})
            _expect_stale(platform, len(touched))
            _tell(bench, cells, f"plan, {what}", [_timed(partial(platform.plan, STREAM)) for _ in repeats])
        bench.forget(task)


def _make_tables(catalog: Catalog, stream: Stream, buckets: int, places: Sequence[tuple[int, int]]) -> None:
    """The five tables with a file in every cell, each built from the one before it, as its receipt says."""
    Lakehouse(catalog, _no_spark).create(stream, buckets)
    _append(catalog.load_table(STREAM, tables.RAW_EVENTS), places, _receipt(catalog, {"files": []}))
    _append(catalog.load_table(STREAM, tables.DUPLICATE_EVENTS), places, {})
    for table, source in tables.INPUT_OF.items():
        built_from = head(catalog.load_table(STREAM, source))
        receipt = {
            "table": table,
            "built_from": {source: {"snapshot": built_from.snapshot_id, "sequence": built_from.sequence_number}},
            "fingerprint": fingerprint(stream, table),
            "reason": "full",
            "checked": [(_ordinal(day), bucket) for day, bucket in places],
            "rewritten": [],
        }
        _append(catalog.load_table(STREAM, table), places, _receipt(catalog, receipt))


def _append(table: Table, places: Sequence[tuple[int, int]], properties: dict[str, str]) -> None:
    """Register a data file in each cell; the files themselves are nowhere."""
    with (
        table.transaction() as transaction,
        transaction.update_snapshot(snapshot_properties=properties).fast_append() as append,
    ):
        for number, (day, bucket) in enumerate(places):
            append.append_data_file(_data_file(table, number, day, bucket))


def _data_file(table: Table, number: int, day: int, bucket: int) -> DataFile:
    bounds = {}
    if "arrival_time" in table.schema().column_names:
        micros = int(START.timestamp()) * 1_000_000 + day * _DAY
        bounds = {table.schema().find_field("arrival_time").field_id: to_bytes(TimestamptzType(), micros)}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(_ordinal(day), bucket),
        record_count=ROWS,
        file_size_in_bytes=BYTES,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    file.spec_id = table.spec().spec_id
    return file


def _receipt(catalog: Catalog, content: dict[str, Any]) -> dict[str, str]:
    """Write a receipt; returns the property by which a snapshot names it."""
    name = new_receipt_name()
    catalog.write_receipt(STREAM, name, {**content, "name": name, "previous": None})
    return {f"{SUMMARY}receipt": name}


def _ticks(settings: Settings, stream: Stream, home: str, times: int) -> list[float]:
    """Seconds of whole ticks of the sensor, as Dagster's daemon evaluates it."""
    from dedup_platform.orchestration.build import build_definitions
    from dedup_platform.orchestration.embedded import open_instance
    from dedup_platform.orchestration.rehearsal import evaluate

    os.environ["DAGSTER_HOME"] = str(Path(home) / "dagster")
    definitions = build_definitions(settings, {STREAM: stream})
    with open_instance(settings) as instance:
        return [_timed(lambda: evaluate(definitions, instance, f"{STREAM}_late_partitions")) for _ in range(times + 1)][
            1:
        ]


def _tell(bench: Bench, cells: int, what: str, seconds: list[float]) -> None:
    bench.say(f"  {what}: {sorted(seconds)[len(seconds) // 2]:.3f} s")
    bench.figures.seconds(f"{NAME}: {what}, {cells:,} cells", OURS, seconds)


def _expect_stale(platform: Platform, cells: int) -> None:
    stale = sum(len(plan.stale) for plan in platform.plan(STREAM))
    assert stale == cells, f"{stale} cells are stale, not {cells}: the ledger is not what this measure means to make"


def _timed(work: Callable[[], object]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def _ordinal(day: int) -> int:
    return int(START.timestamp()) // 86_400 + day


def _no_spark() -> SparkSession:
    raise AssertionError("a tick must not start Spark")
