"""The deployment's settings, and the Spark and PyIceberg that they set up: one catalog, seen alike by both."""

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession

from dedup_platform.errors import SettingsError
from dedup_platform.ledger.database import open_database
from dedup_platform.orchestration.embedded import make_dagster_home
from dedup_platform.settings import AWS_JAR, CATALOG, ENV_PREFIX, JARS, POSTGRES_JAR, Settings, load_settings
from dedup_platform.spark.session import public_conf, spark_conf, use_this_python

SECRETS: dict[str, Any] = {
    "catalog_uri": "postgresql://me:hush@localhost/catalog",
    "catalog_credential": "me:hush",
    "catalog_token": "hush",
    "catalog_conf": {"header.x-api-token": "hush"},
    "control_uri": "postgresql://me:hush@localhost/control",
    "dagster_uri": "postgresql+psycopg2://me:hush@localhost/dagster",
    "warehouse": "s3://bucket/lake",
    "s3_access_key_id": "hush",
    "s3_secret_access_key": "hush",
    "spark_conf": {"spark.hadoop.fs.s3a.secret.key": "hush"},
}
UNPRINTABLE = "has a character that cannot be printed, perhaps a line's end behind it"
MOMENT = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_home_alone_is_enough(tmp_path: Path) -> None:
    settings = load_settings(home=tmp_path / "a b")
    assert settings.warehouse == str(tmp_path / "a b/warehouse")
    assert settings.catalog_uri == f"sqlite:///{tmp_path}/a b/catalog.db"
    assert settings.control_uri == f"sqlite:///{tmp_path}/a b/control.db"
    assert settings.dagster_home == tmp_path / "a b/dagster"


def test_home_is_absolute_and_below_the_current_folder_by_default(tmp_path: Path) -> None:
    assert load_settings().home == tmp_path / ".dedup_platform"


def test_environment_variables_say_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        "HOME": "lake",
        "STREAMS": "streams",
        "WAREHOUSE": f"file://{tmp_path}/tables",
        "CATALOG_URI": "sqlite:///catalog.sqlite",
        "CONTROL_URI": "postgresql+psycopg2://me:secret@localhost/control",
        "SPARK_MASTER": "local[1]",
        "SPARK_CONF": '{"spark.sql.shuffle.partitions": "3"}',
        "DRIVER_MEMORY": "512m",
    }
    for name, value in values.items():
        monkeypatch.setenv(ENV_PREFIX + name, value)
    settings = load_settings()
    assert settings.home == tmp_path / "lake"
    assert settings.streams == tmp_path / "streams"
    assert settings.warehouse == str(tmp_path / "tables")
    assert settings.catalog_file == tmp_path / "catalog.sqlite"
    assert settings.control_uri == values["CONTROL_URI"]
    assert spark_conf(settings)["spark.master"] == "local[1]"
    assert spark_conf(settings)["spark.sql.shuffle.partitions"] == "3"
    assert spark_conf(settings)["spark.driver.memory"] == "512m"


def test_nobody_else_can_read_what_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings = Settings(home=tmp_path / "new" / "home")
    before = os.umask(0o022)
    try:
        settings.make_folders()
        open_database(settings.control_uri).dispose()
        Path(settings.home, "control.db").write_bytes(b"not a database" * 100)
        open_database(settings.control_uri).dispose()
        make_dagster_home(settings)
    finally:
        os.umask(before)
    made = {path.name: path.stat().st_mode & 0o777 for path in (settings.home, *settings.home.iterdir())}
    closed = {"home": 0o700, "dagster": 0o700, "catalog.db": 0o600, "control.db": 0o600}
    assert {name: mode for name, mode in made.items() if name in closed} == closed


def test_dagster_home_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    assert load_settings().dagster_home == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("WAREHOUSE", "gs://bucket/lake", "no other object store is supported"),
        ("WAREHOUSE", "s3://bucket", "must name a bucket and a prefix"),
        ("S3_ENDPOINT", "localhost:9000", "should match pattern"),
        ("S3_SECRET_ACCESS_KEY", "secret", "must be set together with DEDUP_PLATFORM_S3_ACCESS_KEY_ID"),
        ("CATALOG_URI", "mysql://localhost/catalog", "must be a SQLite file .* REST catalog"),
        ("CATALOG_URI", "postgresql://localhost", "must be a SQLite file"),
        ("CATALOG_URI", "sqlite://", "must be a SQLite file"),
        ("CATALOG_URI", "https://me:secret@localhost/catalog", "must hold no user or password"),
        ("CATALOG_URI", "glue://", "must be a SQLite file .* AWS Glue"),
        ("CONTROL_URI", "nonsense", "must be a SQLite file .* or a Postgres database"),
        ("CONTROL_URI", "https://localhost/control", "must be a SQLite file"),
        ("CONTROL_URI", "postgresql://me:secret@localhost:port/control", "must be a SQLite file"),
        ("CONTROL_URI", "postgresql://me:se@cret@localhost/control", "holds @ twice"),
        ("DAGSTER_URI", "postgresql://localhost/dagster", r"must begin with postgresql\+psycopg2://"),
        ("CATALOG_TOKEN", "secret\n", UNPRINTABLE),
        ("CATALOG_CREDENTIAL", "me:secret\r\n", UNPRINTABLE),
        ("CATALOG_CONF", '{"header.x": "secret\\n"}', UNPRINTABLE),
        ("S3_ACCESS_KEY_ID", "secret\n", UNPRINTABLE),
        ("S3_SECRET_ACCESS_KEY", "secret\n", UNPRINTABLE),
        ("REGISTRY_LOGIN", "me:secret\n", UNPRINTABLE),
        ("SPARK_REMOTE", "sc://localhost/;token=secret\n", UNPRINTABLE),
        ("SPARK_CONF", "{not json", "must be a JSON object of texts"),
        ("CATALOG_CONF", "{not json", "must be a JSON object of texts"),
        ("DRIVER_MEMORY", "much", "should match pattern"),
    ],
)
def test_unusable_value_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(ENV_PREFIX + name, value)
    with pytest.raises(SettingsError, match=f"{ENV_PREFIX}{name}: .*{reason}") as error:
        load_settings()
    assert len(str(error.value).splitlines()) == 1
    assert "cret" not in str(error.value).replace("CREDENTIAL", "").replace(f"{ENV_PREFIX}S3_SECRET_ACCESS_KEY", "")


def test_a_secret_is_in_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(**SECRETS)
    assert "hush" not in repr(settings) + str(settings)
    monkeypatch.setenv(f"{ENV_PREFIX}CATALOG_URI", "mysql://me:hush@localhost/catalog")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "hush" not in str(caught.value)


def test_java_is_started_without_a_secret_and_a_server_is_told_them_over_its_connection() -> None:
    settings = load_settings(**SECRETS)
    assert "hush" in str(spark_conf(settings))
    assert "hush" not in str(public_conf(settings))
    assert public_conf(settings).keys() < spark_conf(settings).keys()
    there = settings.model_copy(update={"spark_remote": "sc://localhost"})
    assert public_conf(there) == spark_conf(there)


def spark_catalog(settings: Settings) -> dict[str, str]:
    """What Spark's Iceberg catalog is told."""
    prefix = f"spark.sql.catalog.{CATALOG}."
    return {name.removeprefix(prefix): value for name, value in spark_conf(settings).items() if name.startswith(prefix)}


def test_the_catalog_in_postgres_is_said_to_both() -> None:
    settings = load_settings(catalog_uri="postgresql://me:p%40ss@localhost:5433/lake?sslmode=require")
    assert settings.catalog_properties() == {
        "type": "sql",
        "uri": "postgresql+psycopg2://me:p%40ss@localhost:5433/lake?sslmode=require",
        "pool_pre_ping": "true",
        "warehouse": settings.warehouse,
        "py-io-impl": "dedup_platform.lake.durable.DurableFileIO",
    }
    assert spark_catalog(settings) == {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "jdbc.schema-version": "V1",
        "uri": "jdbc:postgresql://localhost:5433/lake?sslmode=require",
        "jdbc.user": "me",
        "jdbc.password": "p@ss",
        "cache-enabled": "false",
        "warehouse": settings.warehouse,
    }
    assert settings.jars == (*JARS, POSTGRES_JAR)


def test_a_rest_catalog_is_said_to_both() -> None:
    settings = load_settings(
        catalog_uri="https://host/ws",
        catalog_credential="id:secret",
        catalog_token="token",
        catalog_conf={"scope": "PRINCIPAL_ROLE:ALL", "warehouse": "lake"},
    )
    said = {
        "uri": "https://host/ws",
        "credential": "id:secret",
        "token": "token",
        "oauth2-server-uri": "https://host/ws/v1/oauth/tokens",
        "scope": "PRINCIPAL_ROLE:ALL",
        "warehouse": "lake",
    }
    files = {"py-io-impl": "dedup_platform.lake.durable.DurableFileIO"}
    assert settings.catalog_properties() == {"type": "rest", **files, **said}
    assert spark_catalog(settings) == {
        "catalog-impl": "org.apache.iceberg.rest.RESTCatalog",
        "rest.auth.type": "oauth2",
        "cache-enabled": "false",
        **said,
    }
    assert settings.jars == JARS


@pytest.mark.parametrize(("account", "said"), [("", {}), ("/123456789012", {"glue.id": "123456789012"})])
def test_glue_is_said_to_both(account: str, said: dict[str, str]) -> None:
    settings = load_settings(catalog_uri=f"glue://eu-west-1{account}", warehouse="s3://bucket/lake/")
    place = {"warehouse": "s3://bucket/lake"}
    assert settings.catalog_properties() == {"type": "glue", "glue.region": "eu-west-1", **said, **place}
    assert spark_catalog(settings) == {
        "catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
        "client.region": "eu-west-1",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "cache-enabled": "false",
        **said,
        **place,
    }
    assert settings.jars == (*JARS, AWS_JAR)


def test_a_warehouse_on_s3_is_said_to_both() -> None:
    keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret"}
    settings = load_settings(
        warehouse="s3://bucket/lake",
        s3_endpoint="http://localhost:9000",
        s3_access_key_id="key",
        s3_secret_access_key="secret",
        catalog_conf={"s3.connect-timeout": "5", "other": "x"},
    )
    assert settings.file_properties() == {
        "s3.endpoint": "http://localhost:9000",
        "s3.region": "us-east-1",
        "s3.force-virtual-addressing": "false",
        "s3.connect-timeout": "5",
        **keys,
    }
    assert settings.catalog_properties().items() > settings.file_properties().items()
    assert (
        spark_catalog(settings).items()
        > {
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": "http://localhost:9000",
            "client.region": "us-east-1",
            "s3.path-style-access": "true",
            **keys,
        }.items()
    )
    assert settings.jars == (*JARS, AWS_JAR)


def test_amazons_own_s3_is_asked_as_its_clients_do_by_themselves() -> None:
    settings = load_settings(warehouse="s3://bucket/lake", s3_region="eu-west-1")
    assert settings.file_properties() == {"s3.region": "eu-west-1"}
    assert "s3.path-style-access" not in spark_catalog(settings)


def test_connect_server_gets_only_the_sessions_part(tmp_path: Path) -> None:
    own = {"spark.executor.memory": "9g", "spark.sql.shuffle.partitions": "3"}
    conf = spark_conf(Settings(home=tmp_path, spark_remote="sc://127.0.0.1:15002", spark_conf=own))
    assert conf["spark.remote"] == "sc://127.0.0.1:15002"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert conf["spark.sql.shuffle.partitions"] == "3"
    application = {"spark.master", "spark.jars", "spark.jars.packages", "spark.driver.memory", "spark.executor.memory"}
    assert not (application | {"spark.sql.extensions"}) & conf.keys()


@pytest.mark.parametrize(
    ("master", "is_here"),
    [
        ("local[*]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077", True),
        ("spark://10.0.0.7:7077", False),
        ("spark://first:7077,second:7077", False),
        ("yarn", False),
        ("k8s://https://10.0.0.7:6443", False),
    ],
)
def test_ports_are_on_loopback_unless_others_must_reach_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, is_here: bool
) -> None:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    settings = Settings(home=tmp_path, spark_master=master)
    use_this_python(settings)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ.get("SPARK_LOCAL_IP") == ("127.0.0.1" if is_here else None)
    assert spark_conf(settings).get("spark.driver.host") == ("127.0.0.1" if is_here else None)
    # Elsewhere nobody knows whether the package can be imported before a task has brought it.
    assert ("spark.python.daemon.module" in spark_conf(settings)) == is_here


def test_workers_of_another_python_come_from_sparks_own_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert "spark.python.daemon.module" not in spark_conf(Settings(home=tmp_path))


def test_session_is_utc_and_its_workers_are_this_python(spark: SparkSession) -> None:
    def executable(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield pa.record_batch({"python": [sys.executable] * len(batch)})

    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert {row.python for row in spark.range(2).mapInArrow(executable, "python string").collect()} == {sys.executable}


def test_table_of_pyiceberg_is_read_and_written_by_spark(spark: SparkSession, settings: Settings) -> None:
    catalog = load_catalog(CATALOG, **settings.catalog_properties())
    schema = Schema(NestedField(1, "entity_id", StringType()), NestedField(2, "event_time", TimestamptzType()))
    days = PartitionField(2, 1000, DayTransform(), "event_time_day")
    buckets = PartitionField(1, 1001, BucketTransform(4), "entity_id_bucket")
    catalog.create_namespace("by_pyiceberg")
    table = catalog.create_table("by_pyiceberg.events", schema, partition_spec=PartitionSpec(days, buckets))
    with table.transaction() as transaction, transaction.update_snapshot({"files": "none"}).fast_append():
        pass
    spark.sql(f"INSERT INTO {CATALOG}.by_pyiceberg.events VALUES ('a', TIMESTAMP '2026-01-31 23:59:59.999999')")
    table.refresh()
    assert [snapshot.parent_snapshot_id is None for snapshot in table.snapshots()] == [True, False]
    assert table.scan().to_arrow().to_pylist() == [{"entity_id": "a", "event_time": MOMENT}]
    assert table.inspect.partitions()["partition"].to_pylist()[0]["entity_id_bucket"] in range(4)


def test_table_of_spark_is_read_and_written_by_pyiceberg(spark: SparkSession, settings: Settings) -> None:
    name = f"{CATALOG}.by_spark.events"
    spark.sql(f"CREATE NAMESPACE {CATALOG}.by_spark")
    spark.sql(f"CREATE TABLE {name} (entity_id string, event_time timestamp)")
    spark.sql(f"INSERT INTO {name} VALUES ('a', TIMESTAMP '2026-01-31 23:59:59.999999')")
    table = load_catalog(CATALOG, **settings.catalog_properties()).load_table("by_spark.events")
    assert table.scan().to_arrow().to_pylist() == [{"entity_id": "a", "event_time": MOMENT}]
    table.append(pa.table({"entity_id": ["b"], "event_time": pa.array([MOMENT], pa.timestamp("us", "UTC"))}))
    spark.sql(f"REFRESH TABLE {name}")
    assert sorted(row.entity_id for row in spark.table(name).collect()) == ["a", "b"]
