"""Files of events as they land in a folder: of several formats, compressed or not, few and large or many and small."""

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.message_factory import GetMessageClass

from benchmarks.data import Events, made
from dedup_platform.stream.schemas import message_type, read_protobuf

LANDED_COLUMNS = ("entity_id", "event_id", "event_time", "arrival_time", "page", "amount")
PROTOBUF_SCHEMA = """\
syntax = "proto3";
message Event {
  string entity_id = 1;
  string event_id = 2;
  string event_time = 3;
  string arrival_time = 4;
  string page = 5;
  string amount = 6;
}
"""

_TIME = "strftime({0}, '%Y-%m-%dT%H:%M:%S.%fZ') AS {0}"
_AS_TEXT = f"entity_id, event_id, {_TIME.format('event_time')}, {_TIME.format('arrival_time')}, page, amount"
_SUFFIXES = {"none": "", "gzip": ".gz", "zstd": ".zst"}


@dataclass(frozen=True)
class LandedFiles:
    """The records of some events in files of one format."""

    format: str
    """json, csv, parquet or protobuf."""
    compression: str
    """none, gzip or zstd; of Parquet, that of its pages."""
    files: int
    events: Events

    @property
    def name(self) -> str:
        """A folder's name that tells all."""
        return f"{self.format}-{self.compression}-{self.files}-{self.events.name}"

    def write(self, cache: Path) -> Path:
        """The folder of these files inside `cache`, made unless it is there."""
        source = self.events.write(cache)
        return made(cache / self.name, lambda folder: self._write(source, folder))

    def _write(self, source: Path, folder: Path) -> None:
        columns = ", ".join(LANDED_COLUMNS) if self.format == "parquet" else _AS_TEXT
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'; SET memory_limit = '4GB'")
            connection.execute(f"SET partitioned_write_max_open_files = {self.files}")
            # A file holds what arrived in one stretch of time, as collectors write them.
            rows = f"""
                SELECT {columns}, row_number() OVER (ORDER BY s.arrival_time, event_id) * {self.files}
                    // (1 + count(*) OVER ()) AS file
                FROM read_parquet('{source}/*.parquet') AS s"""
            if self.format == "protobuf":
                _write_protobuf(connection.execute(f"{rows} ORDER BY file").fetchall(), folder)
            else:
                how = f"FORMAT {self.format}, COMPRESSION {self.compression}, PARTITION_BY (file)"
                connection.execute(f"COPY ({rows}) TO '{folder}' ({how})")
        for file in sorted(folder.glob("file=*/*")):
            number = int(file.parent.name.removeprefix("file="))
            suffix = "" if self.format == "parquet" else _SUFFIXES[self.compression]
            file.rename(folder / f"events-{number:05d}.{self.format}{suffix}")
            file.parent.rmdir()


def event_message() -> Any:
    """The class of a Protobuf message of one event."""
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "event.proto"
        schema.write_text(PROTOBUF_SCHEMA, encoding="utf-8")
        return GetMessageClass(message_type(read_protobuf(schema), "Event"))


def _write_protobuf(rows: Iterable[tuple[Any, ...]], folder: Path) -> None:
    message = event_message()
    folder.mkdir()
    for number, of_file in groupby(rows, lambda row: row[-1]):
        with (folder / f"events-{number:05d}.protobuf").open("wb") as file:
            for row in of_file:
                named: Mapping[str, str] = dict(zip(LANDED_COLUMNS, map(str, row), strict=False))
                content = message(**named).SerializeToString()
                file.write(_VarintBytes(len(content)) + content)
