"""From files that landed to records on disk, and on to sessions: what each contender does, for every format alike.

All keep every record: its typed fields, its payload, its file and its number in that, in Parquet by day. What a record
is called and which fields it has, the sources' names say: `events-00000.json.gz`.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, functions as F

from benchmarks.contender import TIMEOUT_MINUTES, Output, parquet_files
from benchmarks.contenders.duckdb_sql import DuckDbSql
from benchmarks.contenders.ours import STREAM, Ours
from benchmarks.contenders.spark import KEY, SparkContender, sessions_by_window
from benchmarks.data import START
from benchmarks.landed_files import LANDED_COLUMNS, PROTOBUF_SCHEMA, event_message
from dedup_platform import tables
from dedup_platform.stream import Stream, load_stream

_STREAM_FILE = """\
name: {name}
source: {{kind: files, path: "{sources}/events-*", format: {format}, settle: 0s{more}}}
fields:
  entity_id: entity_id
  event_id: event_id
  event_time: event_time
  arrival_time: arrival_time
  attributes: {{page: page, amount: {{field: amount, type: "decimal(12,2)"}}}}
partitions: {{granularity: day, start: {start:%Y-%m-%d}}}
buckets: {buckets}
deduplicate: {{window: 1d}}
sessions: {{timeout: {timeout}m, aggregates: {{revenue: {{sum: amount}}, pages: {{count: page}}}}}}
late: {{settle: 0s}}
"""
_TYPES = (
    "entity_id VARCHAR, event_id VARCHAR, event_time TIMESTAMPTZ, arrival_time TIMESTAMPTZ, page VARCHAR, "
    "amount DECIMAL(12,2)"
)
_READ = {
    "json": """
        SELECT unnest(json_transform(json, '{{"entity_id": "VARCHAR", "event_id": "VARCHAR", "page": "VARCHAR",
                "event_time": "TIMESTAMPTZ", "arrival_time": "TIMESTAMPTZ", "amount": "DECIMAL(12,2)"}}')),
            encode(json::VARCHAR) AS payload, parse_filename(filename) AS source, row_number() OVER () AS source_offset
        FROM read_ndjson_objects('{files}', filename = true)""",
    "csv": """
        SELECT entity_id, event_id, event_time::TIMESTAMPTZ AS event_time, arrival_time::TIMESTAMPTZ AS arrival_time,
            page, amount::DECIMAL(12,2) AS amount,
            encode(concat_ws(',', entity_id, event_id, event_time, arrival_time, page, amount)) AS payload,
            parse_filename(filename) AS source, row_number() OVER () AS source_offset
        FROM read_csv('{files}', header = true, all_varchar = true, filename = true)""",
    "parquet": """
        SELECT {columns}, encode(to_json(struct_pack({columns}))::VARCHAR) AS payload,
            parse_filename(filename) AS source, file_row_number AS source_offset
        FROM read_parquet('{files}', filename = true, file_row_number = true)""",
}


def format_of(sources: str) -> str:
    """Of which format the files of a folder are."""
    return next(Path(sources).glob("events-*")).suffixes[0].removeprefix(".")


class OursIngesting(Ours):
    """This platform, from nothing."""

    @property
    def stream(self) -> Stream:
        file = Path(self.task.home) / f"{STREAM}.yaml"
        schema = file.with_suffix(".proto")
        schema.write_text(PROTOBUF_SCHEMA, encoding="utf-8")
        of_format = format_of(self.task.sources)
        more = f", protobuf: {{schema: {schema}, message: Event}}" if of_format == "protobuf" else ""
        said = {"name": STREAM, "sources": self.task.sources, "format": of_format, "more": more, "start": START}
        text = _STREAM_FILE.format(**said, buckets=self.task.buckets, timeout=TIMEOUT_MINUTES)
        file.write_text(text, encoding="utf-8")
        return load_stream(file)

    def clear(self) -> None:
        self.clear_all()

    def from_nothing(self) -> dict[str, Any]:
        """All records, and all tables that are made of them."""
        return self.update()

    def records(self) -> list[str]:
        """The files with all records."""
        return self._data_files(tables.RAW_EVENTS)


class DuckDbIngesting(DuckDbSql):
    """One statement for the records, two for what is made of them."""

    def ingest(self) -> dict[str, Any]:
        files, columns = f"{self.task.sources}/events-*", ", ".join(LANDED_COLUMNS)
        read = _READ[format_of(self.task.sources)].format(files=files, columns=columns)
        self.out.mkdir(parents=True)
        self._connection.execute(
            f"""COPY (SELECT *, event_time::DATE AS day FROM ({read})) TO '{self.out / "records"}'
                (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, PARTITION_BY (day))"""
        )
        return {}

    def from_nothing(self) -> dict[str, Any]:
        self.ingest()
        return self._built(f"{self.out / 'records'}/*", LANDED_COLUMNS)

    def records(self) -> list[str]:
        return parquet_files(self.out / "records")


class SparkIngesting(SparkContender):
    """A job for the records, and the tutorial's two for what is made of them."""

    def prepare(self) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        super().prepare()

    def ingest(self) -> dict[str, Any]:
        records = self._read().withColumn("day", F.to_date("event_time"))
        records.write.option("compression", "zstd").partitionBy("day").parquet(str(self.out / "records"))
        return {}

    def from_nothing(self) -> dict[str, Any]:
        self.ingest()
        records, events = (str(self.out / name) for name in ("records", "events"))
        once = self.spark.read.parquet(records).select(*LANDED_COLUMNS).dropDuplicates(KEY)
        once.write.option("compression", "zstd").parquet(events)
        by_window = sessions_by_window(self.spark.read.parquet(events))
        by_window.write.option("compression", "zstd").parquet(str(self.out / "sessions"))
        return {}

    def rebuild(self) -> dict[str, Any]:
        return self.from_nothing()

    def records(self) -> list[str]:
        return parquet_files(self.out / "records")

    def output(self) -> Output:
        return Output(parquet_files(self.out / "events"), parquet_files(self.out / "sessions"))

    def _read(self) -> DataFrame:
        read, sources = self.spark.read, self.task.sources
        place = (F.col("_metadata.file_name").alias("source"), F.monotonically_increasing_id().alias("source_offset"))
        types = _TYPES.replace("VARCHAR", "STRING").replace("TIMESTAMPTZ", "TIMESTAMP")
        match format_of(sources):
            case "json":
                parsed = F.from_json("value", types).alias("fields")
                lines = read.text(sources).select(F.col("value").cast("binary").alias("payload"), parsed, *place)
                return lines.select("fields.*", "payload", "source", "source_offset")
            case "csv":
                lines = read.csv(sources, header=True)
                payload = F.concat_ws(",", *LANDED_COLUMNS).cast("binary").alias("payload")
                typed = [F.col(name).cast(_spark_type(types, name)).alias(name) for name in LANDED_COLUMNS]
                return lines.select(*typed, payload, *place)
            case "parquet":
                payload = F.to_json(F.struct(*LANDED_COLUMNS)).cast("binary").alias("payload")
                return read.parquet(sources).select(*LANDED_COLUMNS, payload, *place)
        files = read.format("binaryFile").load(sources).select("path", "content")
        texts = ", ".join(f"{name} string" for name in LANDED_COLUMNS)
        taken = files.mapInArrow(_messages, f"{texts}, payload binary, source string, source_offset long")
        typed = [F.col(name).cast(_spark_type(types, name)).alias(name) for name in LANDED_COLUMNS]
        return taken.select(*typed, "payload", "source", "source_offset")


def _spark_type(types: str, name: str) -> str:
    return dict(each.split(" ", 1) for each in types.split(", "))[name]


def _messages(files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages of files, each behind its length."""
    message = event_message()
    for batch in files:
        for path, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            rows = []
            for number, payload in enumerate(_parts(content)):
                event = message.FromString(payload)
                fields = {name: getattr(event, name) for name in LANDED_COLUMNS}
                name = path.rpartition("/")[2]
                rows.append({**fields, "payload": payload, "source": name, "source_offset": number})
            yield from pa.Table.from_pylist(rows).to_batches()


def _parts(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        length = shift = 0
        while True:
            byte = content[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield content[at : at + length]
        at += length
