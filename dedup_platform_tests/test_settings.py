"""The deployment's settings, and the Spark and PyIceberg that they set up: one catalog, seen alike by both."""

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import NestedField, StringType, TimestamptzType
from pyspark.sql import SparkSession

from dedup_platform.errors import SettingsError
from dedup_platform.settings import CATALOG, ENV_PREFIX, Settings, load_settings
from dedup_platform.spark import spark_conf, use_this_python

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


def test_dagster_home_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "elsewhere"))
    assert load_settings().dagster_home == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("WAREHOUSE", "s3://bucket/lake", "object stores are not supported in this version"),
        ("CATALOG_URI", "postgresql://localhost/catalog", "must be a SQLite file"),
        ("CATALOG_URI", "sqlite://", "must be a SQLite file"),
        ("CONTROL_URI", "nonsense", "must be a SQLAlchemy URL"),
        ("SPARK_CONF", "{not json", "must be a JSON object of texts"),
        ("DRIVER_MEMORY", "much", "should match pattern"),
    ],
)
def test_unusable_value_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(ENV_PREFIX + name, value)
    with pytest.raises(SettingsError, match=f"{ENV_PREFIX}{name}.*{reason}"):
        load_settings()


def test_a_password_is_in_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings(
        control_uri="postgresql://me:secret@localhost/control", spark_conf={"spark.hadoop.fs.s3a.secret.key": "secret"}
    )
    assert "secret" not in repr(settings) + str(settings)
    monkeypatch.setenv(f"{ENV_PREFIX}CATALOG_URI", "postgresql://me:secret@localhost/catalog")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "secret" not in str(caught.value)


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
