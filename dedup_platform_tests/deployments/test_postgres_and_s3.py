"""The catalog and the control database in Postgres, the warehouse on S3: all that touches either of them works."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dedup_platform import tables
from dedup_platform.lake.receipts import FilesReceipt, ReadFile
from dedup_platform.maintenance.procedures import remove_orphans
from dedup_platform.platform import Platform
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform.testing.servers import PostgresServer, S3Server
from dedup_platform_tests.homes import all_rows
from dedup_platform_tests.servers import new_name

NOW = utc("2024-06-01")
DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")


@dataclass(frozen=True)
class Deployed:
    """A platform whose tables are nowhere on this machine's disk, after one ingest and repair."""

    folder: Path
    stream: Stream
    spark: SparkSession
    places: dict[str, Any]

    def platform(self) -> Platform:
        """One that remembers nothing."""
        return temporary_platform(self.folder, self.stream, self.spark, HeldClock(NOW), **self.places)

    def stored(self, s3: S3Server) -> Iterator[str]:
        """The keys of all objects of the warehouse."""
        bucket, _, prefix = self.places["warehouse"].removeprefix("s3://").partition("/")
        for page in s3.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            yield from (each["Key"] for each in page.get("Contents", ()))


@pytest.fixture(scope="module")
def places(s3_server: S3Server, postgres_server: PostgresServer) -> dict[str, Any]:
    bucket = new_name()
    s3_server.create_bucket(bucket)
    return {
        "warehouse": f"s3://{bucket}/a/lake",
        "s3_endpoint": s3_server.endpoint,
        "s3_access_key_id": s3_server.access_key,
        "s3_secret_access_key": s3_server.secret_key,
        "catalog_uri": postgres_server.create_database(new_name()),
        "control_uri": postgres_server.create_database(new_name()),
    }


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, places: dict[str, Any]) -> Deployed:
    folder = tmp_path_factory.mktemp("deployed")
    stream = make_stream(folder, "elsewhere", start=DAYS[0], buckets=0)
    found = Deployed(folder / "home", stream, spark, places)
    times = [utc(f"{day}T10:0{minute}") for day in DAYS for minute in range(3)]
    write_batch(stream, lay_out([record("a", f"{time}", time, page="/", quantity=1) for time in times], "first.json"))
    run(found.platform(), stream)
    return found


def run(platform: Platform, stream: Stream) -> None:
    platform.ingest(stream.name)
    platform.repair(stream.name)


def test_a_late_event_is_repaired_and_nothing_lies_on_this_machine(deployed: Deployed, s3_server: S3Server) -> None:
    late = record("a", "late", utc("2024-03-02T10:10"), utc("2024-03-20T10:00"), page="/", quantity=1)
    write_batch(deployed.stream, lay_out([late], "late.json"))
    platform = deployed.platform()
    run(platform, deployed.stream)
    assert platform.verify(deployed.stream.name) == []
    assert platform.rows(deployed.stream.name, RAW_EVENTS) == 10
    assert [path.name for path in deployed.folder.rglob("*") if path.is_file()] == []
    folders = {tuple(key.split("/")[2:5]) for key in deployed.stored(s3_server)}
    assert {(deployed.stream.name, table, "metadata") for table in tables.ALL} < folders
    assert (deployed.stream.name, RAW_EVENTS, "data") in folders


def test_receipts_are_read_back_and_a_missing_one_is_none(deployed: Deployed) -> None:
    catalog = deployed.platform().lake.catalog
    receipt = FilesReceipt(files=(ReadFile("a", 0, 1, "e", 1),))
    catalog.write_receipt(deployed.stream.name, receipt)
    assert catalog.read_receipt(deployed.stream.name, receipt.name) == receipt
    assert catalog.read_receipt(deployed.stream.name, "none.json") is None


def test_a_lost_control_database_is_rebuilt(deployed: Deployed, postgres_server: PostgresServer) -> None:
    elsewhere = deployed.places | {"control_uri": postgres_server.create_database(new_name())}
    before, after = (
        temporary_platform(deployed.folder, deployed.stream, deployed.spark, HeldClock(NOW), **places).status(
            deployed.stream.name
        )
        for places in (deployed.places, elsewhere)
    )
    assert after == before


def test_an_orphan_goes_and_what_is_needed_stays(deployed: Deployed, s3_server: S3Server) -> None:
    platform, stream = deployed.platform(), deployed.stream
    table = platform.lake.catalog.load_table(stream.name, RAW_EVENTS)
    for name in ("old", "new"):
        with table.io.new_output(f"{table.location()}/data/{name}.parquet").create() as file:
            file.write(b"nobody's")
    before = set(deployed.stored(s3_server))
    [old] = Path(s3_server.log.parent).rglob("old.parquet")
    os.utime(old, (0, 0))
    assert remove_orphans(platform.lake, stream, RAW_EVENTS, timedelta(days=1)) == 1
    [gone] = before - set(deployed.stored(s3_server))
    assert gone.endswith("old.parquet")
    assert platform.verify(stream.name) == []


def test_buckets_change_and_maintenance_runs_and_no_row_changes(deployed: Deployed) -> None:
    name = deployed.stream.name
    rows = all_rows(deployed.platform())
    deployed.platform().change_buckets(name, 4)
    platform = deployed.platform()
    sizes = {upkeep.table: upkeep.after.bytes for upkeep in platform.maintain(name)}
    assert sizes.keys() == {*tables.ALL, tables.AUDIT}
    assert all(sizes.values())
    assert all_rows(platform) == rows
    assert platform.verify(name) == []
    assert not any(plan.stale for plan in platform.plan(name))


def test_workers_are_told_how_to_read_files_and_nothing_of_the_catalog(deployed: Deployed) -> None:
    files = deployed.platform().lake.table_files(deployed.stream, RAW_EVENTS)
    assert set(files.properties) == {
        "s3.endpoint",
        "s3.region",
        "s3.force-virtual-addressing",
        "s3.access-key-id",
        "s3.secret-access-key",
    }
