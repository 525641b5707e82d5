"""Writes a table's current rows to one file, one data file after the other, so that memory stays small. No Spark."""

import json
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan

from dedup_platform import tables
from dedup_platform.changes.reading import BEFORE_ALL, FeedReader
from dedup_platform.cli.console import told_to_its_end
from dedup_platform.cli.process import ON_INTERRUPT
from dedup_platform.errors import DedupPlatformError
from dedup_platform.platform import Platform
from dedup_platform.replay.rejected import COLUMNS

STDOUT = Path("-")


class _Writer(Protocol):
    def write_table(self, table: pa.Table) -> None: ...
    def close(self) -> None: ...


_FORMULA = r"^[=+\-@\t\r\n]"
"""How a text begins that spreadsheets run, or may."""


def export(
    platform: Platform,
    stream: str,
    table: str,
    to: Path,
    told: Callable[[int], None] = lambda _: None,
    is_safe: bool = False,
) -> int:
    """Write the rows to `to`, a .csv or .parquet file or `-` for csv on standard output; returns how many there are.

    A file appears under its name only when it is whole. In csv, structs become columns like `first_arrived.source`,
    binary columns base64, lists JSON, and if `is_safe` no text is one that a spreadsheet would run. Changes of a feed
    are in their order. `told` is called with the rows written so far. KeyError for another ending.
    """
    rows = 0
    scan = _scan(platform, stream, table)
    schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    with _destination(to) as (writer_of, file):
        writer = writer_of(file, schema)
        if is_safe:
            writer = _Safe(writer)
        is_feed = table in tables.FOLLOWED
        for batch in _changes(platform, stream, table, schema) if is_feed else _batches(scan, schema):
            writer.write_table(batch)
            rows += len(batch)
            told(rows)
        writer.close()
    return rows


def _scan(platform: Platform, stream: str, table: str) -> DataScan:
    definition = platform.stream(stream)
    name = tables.RAW_EVENTS if table == tables.REJECTED_EVENTS else table
    loaded = platform.lake.catalog.load(stream, name)
    if loaded is None:
        of_stream = (*tables.all_of(definition), *tables.followers_of(definition).values(), tables.AUDIT)
        why = "nothing was taken in yet" if name in of_stream else "the stream file has no sessions"
        raise DedupPlatformError(f"{stream}.{table} does not exist: {why}")
    scan = loaded.scan(snapshot_id=platform.lake.current(definition, name))
    return scan.filter("event_time is null").select(*COLUMNS) if table == tables.REJECTED_EVENTS else scan


def _batches(scan: DataScan, schema: pa.Schema) -> Iterator[pa.Table]:
    # One task at a time: PyIceberg's own batch reader opens all files at once.
    for task in sorted(scan.plan_files(), key=lambda task: (str(task.file.partition), task.file.file_path)):
        reader = ArrowScan(scan.table_metadata, scan.io, scan.projection(), AlwaysTrue())
        for batch in reader.to_record_batches([task]):
            yield pa.Table.from_batches([batch]).cast(schema)


def _changes(platform: Platform, stream: str, feed: str, schema: pa.Schema) -> Iterator[pa.Table]:
    """All changes of a feed, in their order."""
    reader = FeedReader(platform.lake, platform.stream(stream), tables.FOLLOWED[feed], sink="")
    return (changes.to_arrow().select(schema.names).cast(schema) for changes in reader.changes(BEFORE_ALL))


@contextmanager
def _destination(to: Path) -> Iterator[tuple[Callable[[BinaryIO, pa.Schema], _Writer], BinaryIO]]:
    if to == STDOUT:
        with told_to_its_end():
            yield Csv, sys.stdout.buffer
        return
    part = to.with_name(f".{to.name}.part")
    ON_INTERRUPT.append(partial(part.unlink, missing_ok=True))
    try:
        with part.open("wb") as file:
            yield WRITERS[to.suffix], file
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)


class Csv:
    """Arrow's csv writer, for tables with structs and bytes."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self._file = file
        self._writer = pa.csv.CSVWriter(file, _flat(schema.empty_table()).schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(_flat(table))

    def close(self) -> None:
        self._writer.close()
        self._file.flush()


class _Safe:
    """Puts an apostrophe before texts that a spreadsheet would take for formulas, as it does itself on being told."""

    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def write_table(self, table: pa.Table) -> None:
        flat = _flat(table)
        for i, field in enumerate(flat.schema):
            if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
                flat = flat.set_column(i, field.name, pc.replace_substring_regex(flat.column(i), _FORMULA, r"'\0"))
        self._writer.write_table(flat)

    def close(self) -> None:
        self._writer.close()


def _flat(table: pa.Table) -> pa.Table:
    flat = table.flatten()
    for i, field in enumerate(flat.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            values = [None if value is None else b64encode(value).decode() for value in flat.column(i).to_pylist()]
            flat = flat.set_column(i, field.name, pa.array(values, pa.string()))
        elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
            texts = [None if value is None else json.dumps(value) for value in flat.column(i).to_pylist()]
            flat = flat.set_column(i, field.name, pa.array(texts, pa.string()))
    return flat


WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], _Writer]] = {".csv": Csv, ".parquet": pa.parquet.ParquetWriter}
"""Ending of the file -> its format."""
