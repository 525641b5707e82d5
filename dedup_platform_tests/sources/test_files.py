"""Files through Spark: rows of raw_events from good, bad and damaged files, and the totals of real data."""

import gzip
import json
import os
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cramjam
import fastavro
import polars as pl
import pytest
import zstandard
from hypothesis import given, settings, strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession, functions as F

from dedup_platform import schemas
from dedup_platform.errors import SourceChangedError
from dedup_platform.sources.decoding import EventDecoder
from dedup_platform.sources.files import list_files, read_files, read_group, records_of
from dedup_platform.sources.listing import SourceFile
from dedup_platform.stream import Stream
from dedup_platform_tests.sources.click_streams import click_stream, decode_kept
from dedup_platform_tests.sources.schemas import message_class, write_protos

NOW = datetime(2100, 1, 1, tzinfo=UTC)
HEADER = b"user,id,at\n"
LINES = b"".join(b"u%d,e%d,2024-03-01T00:00:%02d\n" % (n % 7, n, n % 60) for n in range(3000))

FEW = b"".join(LINES.splitlines(keepends=True)[:10])


def rows_of(spark: SparkSession, stream: Stream) -> list[Row]:
    files = [(file, 0) for file in list_files(stream, NOW).ready]
    return sorted(read_files(spark, stream, files).collect(), key=lambda row: (row.source, row.source_offset))


def test_rows_have_the_columns_of_raw_events(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(
        b'\xef\xbb\xbfuser,id,at,n,c\r\nu,"e\n1",2024-03-01T00:00:00.5Z,3,1.5\r\n,e2,x,,\r\n'
    )
    kinds = {
        "n": {"field": "n", "type": "long"},
        "c": {"field": "c", "type": "decimal(8,2)"},
        "d": {"field": "d", "type": "date"},
    }
    stream = click_stream("csv", tmp_path, fields={"attributes": kinds})
    [file] = list_files(stream, NOW).ready
    frame = read_files(spark, stream, [(file, 3)])
    assert frame.schema == schemas.raw_schema(stream)
    good, bad = frame.collect()
    context = '{"format":"csv","header":["user","id","at","n","c"]}'
    arrival, moment = (
        time.replace(tzinfo=None) for time in (file.modified, datetime(2024, 3, 1, 0, 0, 0, 500_000, UTC))
    )
    assert tuple(good) == (
        "u", "e\n1", moment, arrival, 3, good.c, None,
        b'u,"e\n1",2024-03-01T00:00:00.5Z,3,1.5', context, "a.csv", 3, 0, 0, None,
    )  # fmt: skip
    assert str(good.c) == "1.50"
    assert tuple(bad) == (
        *(None,) * 3, arrival, *(None,) * 3, b",e2,x,,", context, "a.csv", 3, 1, 0, "unreadable_event_time",
    )  # fmt: skip


BAD_FILES: dict[str, tuple[bytes, list[str | None]]] = {
    "a_empty.csv": (b"", []),
    "b_header.csv": (HEADER, []),
    "c_missing_column.csv": (b"user,at\nu,2024-03-01\n", ["missing_field:id"]),
    "d_extra_column.csv": (b"x,user,id,at\n1,u,e,2024-03-01\n", [None]),
    "e_bom_crlf.csv": (b"\xef\xbb\xbfuser,id,at\r\nu,e,2024-03-01\r\n", [None]),
    "f_invalid_utf8.csv": (HEADER + b"u,e\xff,2024-03-01\nu,e,2024-03-01\n", ["malformed_record", None]),
    "g_nul.csv": (HEADER + b"u,\0,2024-03-01\n", ["malformed_record"]),
    "h_long_line.csv": (HEADER + b"u," + b"e" * 10_000_000 + b",2024-03-01\n", [None]),
    "i_duplicate_header.csv": (b"user,id,at,id\nu,e,2024-03-01,f\n", ["malformed_record"]),
    "j_header_again.csv": (HEADER + HEADER, ["unreadable_event_time"]),
    "k_year_1.csv": (HEADER + b"u,e,0001-01-01\n", ["impossible_event_time"]),
    "l_year_9999.csv": (HEADER + b"u,e,9999-12-31\n", ["event_time_in_future"]),
    "m_epoch.csv": (HEADER + b"u,e,1709251200\n", ["unreadable_event_time"]),
    "n_long_entity.csv": (HEADER + b"u" * 10_000 + b",e,2024-03-01\n", [None]),
    "o_truncated.csv.gz": (gzip.compress(HEADER + b"u,e,2024-03-01\n")[:-4], [None, "damaged_file"]),
    "p_not_gzip.csv.gz": (HEADER, ["damaged_file"]),
    "q_truncated.csv.zst": (zstandard.compress(HEADER + b"u,e,2024-03-01\n")[:-1], ["damaged_file"]),
    "q_truncated.csv.sz": (bytes(cramjam.snappy.compress(HEADER))[:-1], ["damaged_file"]),
    "r_good.csv.sz": (bytes(cramjam.snappy.compress(HEADER + b"u,e,2024-03-01\n")), [None]),
    "r_good.csv.zst": (zstandard.compress(HEADER + b"u,e,2024-03-01\n"), [None]),
}


def test_no_bad_file_harms_another(spark: SparkSession, tmp_path: Path) -> None:
    for name, (content, _) in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    stream = click_stream("csv", tmp_path)
    decoder = EventDecoder(stream)
    found: dict[str, list[str | None]] = {name: [] for name in BAD_FILES}
    for row in rows_of(spark, stream):
        assert row.source_offset == len(found[row.source])
        found[row.source].append(row.rejection_reason)
        again = decode_kept(decoder, row.payload, row.payload_context, row.source, row.arrival_time.replace(tzinfo=UTC))
        assert (again[0], again[1], again[-1]) == (row.entity_id, row.event_id, row.rejection_reason)
    assert found == {name: reasons for name, (_, reasons) in BAD_FILES.items()}


def test_avro_and_protobuf_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    schemas, avro, protobuf = (tmp_path / name for name in ("schemas", "avro", "protobuf"))
    for folder in (schemas, avro, protobuf):
        folder.mkdir()
    write_protos(schemas)
    batch = message_class(schemas, "pkg.Batch")(
        events=[{"user": f"u{n}", "id": f"e{n}", "n": n, "at": {"seconds": 1_709_290_800}} for n in range(3)]
    ).SerializeToString()
    (protobuf / "events.pb").write_bytes(2 * (bytes([len(batch)]) + batch))
    fields = [{"name": name, "type": kind} for name, kind in {"user": "string", "id": "string", "n": "long"}.items()]
    schema = {"type": "record", "name": "Event", "fields": [*fields, {"name": "at", "type": "string"}]}
    clicks = [{"user": f"u{n}", "id": f"e{n}", "n": n, "at": "2024-03-01T11:00:00Z"} for n in range(3)]
    with (avro / "events.avro").open("wb") as file:
        fastavro.writer(file, schema, clicks)
    part = {"schema": str(schemas / "events.proto"), "message": "pkg.Batch", "records": "events"}
    source = {"kind": "files", "path": f"{protobuf}/*", "format": "protobuf", "protobuf": part, "settle": "0s"}
    attributes = {"attributes": {"n": {"field": "n", "type": "long"}}}
    from_protobuf = rows_of(spark, click_stream("protobuf", source=source, fields=attributes))
    (schemas / "events.proto").unlink()
    from_avro = rows_of(spark, click_stream("avro", avro, fields=attributes))
    found, same = (
        [(row.entity_id, row.event_id, row.event_time, row.n, row.rejection_reason) for row in rows]
        for rows in (from_protobuf, from_avro)
    )
    at = datetime(2024, 3, 1, 11)  # noqa: DTZ001  # as Spark shows it
    assert found == 2 * [(f"u{n}", f"e{n}", at, n, None) for n in range(3)]
    assert same == found[:3]
    assert [row.source_offset for row in from_protobuf] == list(range(6))


@pytest.mark.parametrize("change", ["written", "gone"])
def test_a_file_that_is_not_as_it_was_listed_fails_the_job_by_name(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    (tmp_path / "a.csv").write_bytes(HEADER)
    (tmp_path / "b.csv").write_bytes(HEADER)
    stream = click_stream("csv", tmp_path)
    files = [(file, 0) for file in list_files(stream, NOW).ready]
    if change == "gone":
        (tmp_path / "a.csv").unlink()
    else:
        (tmp_path / "a.csv").write_bytes(HEADER + b"u,e,2024-03-01\n")
    what = (
        "SourceError: a.csv: cannot be read: No such file or directory"
        if change == "gone"
        else "SourceChangedError: a.csv changed since it was listed"
    )
    with pytest.raises(PySparkException, match=what):
        read_files(spark, stream, files).collect()


@pytest.mark.parametrize("is_hidden", [False, True], ids=["longer", "with its old size and time"])
def test_a_file_written_while_it_is_read_is_noticed_at_its_end(tmp_path: Path, is_hidden: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(HEADER + LINES * 10)
    stream = click_stream("csv", tmp_path)
    [file] = list_files(stream, NOW).ready
    records = records_of(stream, file)
    next(records)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    with path.open("r+b") as other:
        other.seek(0, os.SEEK_SET if is_hidden else os.SEEK_END)
        other.write(b"u,e,2024-03-01\n")
    if is_hidden:
        os.utime(path, ns=times)
    with pytest.raises(SourceChangedError):
        list(records)


def test_many_small_files_and_a_large_one(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.csv").write_bytes(HEADER + FEW)
    (tmp_path / "large.csv").write_bytes(HEADER + LINES * 20)
    stream = click_stream("csv", tmp_path)
    rows = read_files(spark, stream, [(file, 0) for file in list_files(stream, NOW).ready]).groupBy("source")
    found = rows.agg(F.count("*"), F.count_distinct("source_offset"), F.max("source_offset")).collect()
    assert {tuple(row) for row in found if row.source == "large.csv"} == {("large.csv", 60_000, 60_000, 59_999)}
    assert [tuple(row)[1:] for row in found if row.source != "large.csv"] == [(10, 10, 9)] * 300


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([100] * 300, 9),
        ([100_000] * 1000, 16),
        ([10], 1),
        ([2**30] * 3, 3),
        ([2**30, *[2**20] * 99], 16),
        ([2**25] * 99, 32),
    ],
)
def test_files_share_tasks(spark: SparkSession, sizes: list[int], tasks: int) -> None:
    files = [(SourceFile(f"{number}", f"/{number}", size, "", NOW), 0) for number, size in enumerate(sizes)]
    assert read_files(spark, click_stream("csv"), files).rdd.getNumPartitions() == tasks


def test_no_files_are_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    assert read_files(spark, click_stream("csv", tmp_path), []).collect() == []


@pytest.mark.parametrize("ratio", [200, 500])
def test_a_file_that_unpacks_to_much_more_than_its_size_is_read_up_to_a_limit(tmp_path: Path, ratio: int) -> None:
    line = b'{"user":"u","id":"e","at":"2024-03-01","note":"' + b"x" * 10_000 + b'"}\n'
    packed = gzip.compress(line * 3000, mtime=0)
    (tmp_path / "a.json.gz").write_bytes(packed)
    (tmp_path / "b.json").write_bytes(line)
    source = click_stream("json", tmp_path).source.model_copy(update={"max_unpacked_ratio": ratio})
    stream = click_stream("json", tmp_path).model_copy(update={"source": source})
    a, b = list_files(stream, NOW).ready
    *records, (rest, reason, context) = records_of(stream, a)
    most = max(2**22, ratio * len(packed))
    assert most - len(line) < sum(len(payload or b"") + 1 for payload, _, _ in records) <= most
    assert (reason, len(rest or b"") < len(line)) == ("damaged_file", True)
    assert f"more than {ratio} times its size, which is source.max_unpacked_ratio" in context
    rows = pl.concat(read_group(stream, [[(a, 0), (b, 0)]], 0))
    assert rows.group_by("source").len().sort("source").rows() == [("a.json.gz", len(records) + 1), ("b.json", 1)]


@given(st.integers(0, len(gzip.compress(HEADER + LINES)) - 1))
@settings(max_examples=40, deadline=None)
def test_a_truncated_gzip_loses_no_complete_record(tmp_path_factory: pytest.TempPathFactory, length: int) -> None:
    content = gzip.compress(HEADER + LINES, mtime=0)[:length]
    folder = tmp_path_factory.mktemp("inbox")
    (folder / "a.csv.gz").write_bytes(content)
    stream = click_stream("csv", folder)
    [file] = list_files(stream, NOW).ready
    *records, (rest, reason, context) = records_of(stream, file)
    decoded = zlib.decompressobj(wbits=31).decompress(content)
    *complete, unfinished = decoded.removeprefix(HEADER).split(b"\n") if len(decoded) > len(HEADER) else [decoded]
    assert [payload for payload, _, _ in records] == complete
    assert (rest, reason) == (unfinished if decoded != HEADER else b"", "damaged_file")
    assert "reason" in json.loads(context)["damage"]


def real(name: str, file_format: str, data_dir: Path, **fields: Any) -> Stream:
    return click_stream(
        file_format, data_dir / name, partitions={"granularity": "day", "start": "2010-01-01"}, fields=fields
    )


def totals(spark: SparkSession, stream: Stream) -> tuple[int, ...]:
    rows = read_files(spark, stream, [(file, 0) for file in list_files(stream, NOW).ready])
    counts = rows.agg(
        F.count("*"),
        F.count("rejection_reason"),
        F.count_distinct("event_id"),
        F.count("entity_id"),
        F.count_distinct("entity_id"),
        F.count_distinct("source", "source_offset"),
    )
    return tuple(counts.collect()[0])


def test_totals_of_online_retail(spark: SparkSession, data_dir: Path) -> None:
    stream = real(
        "online_retail", "csv", data_dir, entity_id="CustomerID", event_id={"hash": "*"}, event_time="InvoiceDate"
    )
    assert totals(spark, stream) == (541_909, 0, 536_641, 541_909 - 135_080, 4_372, 541_909)


def test_totals_of_cloudtrail(spark: SparkSession, data_dir: Path) -> None:
    fields = {
        "entity_id": "source_ip",
        "event_id": "event_id",
        "event_time": "event_time",
        "arrival_time": "delivered_at",
    }
    assert totals(spark, real("cloudtrail", "json", data_dir, **fields)) == (2_900, 0, 2_900, 2_900, 16, 2_900)


def test_the_delivery_stamps_of_cloudtrail_s_file_names_are_those_of_its_fields(data_dir: Path) -> None:
    base = {"entity_id": "source_ip", "event_id": "event_id", "event_time": "event_time"}
    named = {"file_name": r"(\d{8}T\d{4}Z)_", "format": "%Y%m%dT%H%MZ"}
    arrivals = [
        _arrivals(real("cloudtrail", "json", data_dir, **base, arrival_time=rule)) for rule in ("delivered_at", named)
    ]
    assert arrivals[0] == arrivals[1]


def _arrivals(stream: Stream) -> list[int]:
    decoder = EventDecoder(stream)
    return [
        _arrival(decoder, stream, file, content)
        for file in list_files(stream, NOW).ready
        for _, content, _ in records_of(stream, file)
    ]


def _arrival(decoder: EventDecoder, stream: Stream, file: SourceFile, content: Any) -> int:
    arrival: int = decoder.decode(content, decoder.delivery(file.path, file.modified, stream.source.format))[3]
    return arrival
