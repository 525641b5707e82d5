"""How a Spark session of this platform is set up: Iceberg's catalog, UTC, and quiet defaults for one machine."""

import os
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from dedup_platform.connect import opened
from dedup_platform.settings import CATALOG, JARS, SQLITE_BUSY_SECONDS, Settings

__all__ = ["IVY", "LOOPBACK", "spark_conf", "spark_session", "use_this_python"]

LOOPBACK = "127.0.0.1"

# ParallelGC is about 5 % faster than G1 on this work; the time zone keeps the JVM's own conversions in UTC too.
_JAVA_OPTIONS = "-XX:+UseParallelGC -Duser.timezone=UTC"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
IVY = Path.home() / ".ivy2.5.2"  # Spark 4.1's own default


def spark_conf(settings: Settings) -> dict[str, str]:
    """Every Spark property of the deployment, `spark.master` or `spark.remote` included; `settings.spark_conf` wins.

    Of a Spark Connect server only the session's part is set: the server has its own jars, memory and extensions.
    """
    session = _session() | _catalog(settings)
    if settings.spark_remote:
        own = {name: value for name, value in settings.spark_conf.items() if name.startswith("spark.sql.")}
        return {"spark.remote": settings.spark_remote} | session | own
    return {"spark.master": settings.spark_master} | _application(settings) | session | settings.spark_conf


def spark_session(settings: Settings) -> SparkSession:
    """The running session, or a new one with `spark_conf(settings)`. SparkServerError if its server is not there."""
    settings.make_folders()
    use_this_python(settings)
    builder = SparkSession.builder
    for key, value in spark_conf(settings).items():
        builder = builder.config(key, value)
    return opened(settings, builder.getOrCreate)


def use_this_python(settings: Settings) -> None:
    """Let Python workers be the interpreter that runs now, and ports be on the loopback interface if nobody is outside.

    Spark takes both from the environment only; without this it takes whatever `python3` is on the PATH.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _is_on_loopback(settings):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _is_on_loopback(settings: Settings) -> bool:
    """Whether the driver and all executors are on this machine: a local master, or a cluster on its loopback."""
    master = settings.spark_master
    return master.startswith("local") or urlsplit(master).hostname in (LOOPBACK, "localhost")


def _application(settings: Settings) -> dict[str, str]:
    here = {}
    if _is_on_loopback(settings):
        here = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return here | {
        "spark.app.name": "dedup_platform",
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": f"{_JAVA_OPTIONS} '-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}'",
        "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
        **_jars(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # ten calls to Java for each column, to name its line
        "spark.sql.warehouse.dir": str(settings.home / "spark-warehouse"),
        # One ingest and repair generate about two hundred classes; the default keeps a hundred and compiles them anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _jars() -> dict[str, str]:
    """Iceberg and SQLite's driver, from Ivy's folder where they are, else to be downloaded into it by Spark."""
    # Given as files they need no resolution: half a second less, no network, and no forty lines of report.
    files = [IVY / "jars" / f"{jar.replace(':', '_', 1).replace(':', '-')}.jar" for jar in JARS]
    if all(zipfile.is_zipfile(file) for file in files):
        return {"spark.jars": ",".join(map(str, files))}
    return {"spark.jars.packages": ",".join(JARS), "spark.jars.ivy": str(IVY)}


def _session() -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
    }


def _catalog(settings: Settings) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        # PyIceberg commits too: a session that remembers tables would not see it.
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.uri": f"jdbc:sqlite:{settings.catalog_file}",
        f"{prefix}.jdbc.busy_timeout": str(SQLITE_BUSY_SECONDS * 1000),
        # V1 is the layout of the catalog's tables that PyIceberg's SqlCatalog reads and writes.
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": settings.warehouse,
    }
