"""The catalog behind Iceberg's REST protocol: Spark and PyIceberg both commit through it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from dedup_platform.errors import UnreachableError
from dedup_platform.lake.catalog import Catalog
from dedup_platform.settings import CATALOG, Settings
from dedup_platform.tables import RAW_EVENTS
from dedup_platform.testing import HeldClock, lay_out, make_stream, record, temporary_platform, utc, write_batch
from dedup_platform_tests.deployments.rest_catalog import RestCatalogServer, rest_catalog

CREDENTIAL = "me:secret"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogServer]:
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{tmp_path}/behind.db", warehouse=str(tmp_path / "warehouse"))
    # One at a time, but each in a thread of its own: the catalog's connections go from one to the next.
    with rest_catalog(catalog, CREDENTIAL) as started:
        yield started
    catalog.close()


def test_a_stream_lives_behind_it(
    tmp_path: Path, server: RestCatalogServer, spark: SparkSession, thorough: bool
) -> None:
    stream = make_stream(tmp_path, "behind", start="2024-03-01", buckets=0)
    platform = temporary_platform(
        tmp_path / "home",
        stream,
        spark,
        HeldClock(utc("2024-06-01")),
        catalog_uri=server.uri,
        catalog_credential=CREDENTIAL,
        warehouse=str(tmp_path / "warehouse"),
    )
    for number, day in enumerate(("2024-03-02", "2024-03-03", "2024-03-01")):
        found = record("a", day, utc(f"{day}T10:00"), utc(f"{day}T10:00"), page="/", quantity=1)
        write_batch(stream, lay_out([found], f"{number}.json"))
        platform.ingest(stream.name)
        platform.repair(stream.name)
    if thorough:
        platform.change_buckets(stream.name, 2)
        platform.maintain(stream.name)
    assert platform.verify(stream.name) == []
    assert platform.rows(stream.name, RAW_EVENTS) == 3
    assert not any(plan.stale for plan in platform.plan(stream.name))
    assert len(server.asked) == 2, "Spark and PyIceberg call themselves differently"
    # What the server lends for a table's files goes to the workers, and what it wants to know us by does not.
    lent = {"s3.session-token": "lent"}
    assert platform.lake.table_files(stream, RAW_EVENTS).properties == platform.settings.file_properties() | lent
    assert not (tmp_path / "home" / "catalog.db").exists()


def test_a_wrong_credential_is_told_with_its_variable_and_without_it(tmp_path: Path, server: RestCatalogServer) -> None:
    settings = Settings(home=tmp_path, catalog_uri=server.uri, catalog_credential="me:not-the-secret")
    with pytest.raises(UnreachableError, match="DEDUP_PLATFORM_CATALOG_URI: ") as error:
        assert Catalog(settings).iceberg
    assert "not-the-secret" not in str(error.value)


def test_a_server_that_is_not_there_is_told_with_its_variable(tmp_path: Path, server: RestCatalogServer) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(UnreachableError, match=f"DEDUP_PLATFORM_CATALOG_URI: .*{server.server_port}"):
        assert Catalog(Settings(home=tmp_path, catalog_uri=server.uri)).iceberg
