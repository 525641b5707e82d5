"""How a Spark session of this platform is set up: Iceberg's catalog, UTC, and quiet defaults for one machine."""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock, get_ident
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from sqlalchemy.engine import URL, make_url

from dedup_platform.settings import CATALOG, SQLITE_BUSY_SECONDS, Settings, revealed
from dedup_platform.spark.class_archive import archive_options
from dedup_platform.spark.connect import opened
from dedup_platform.spark.connect_token import remote_by_name
from dedup_platform.spark.jars import jars_conf, require_jars
from dedup_platform.spark.watching import note_session

__all__ = [
    "JAVA_OPTIONS",
    "LOOPBACK",
    "open_session",
    "properties_file",
    "public_conf",
    "spark_conf",
    "spark_session",
    "use_this_python",
]

LOOPBACK = "127.0.0.1"

# ParallelGC is about 5 % faster than G1 on this work; the time zone keeps the JVM's own conversions in UTC too.
JAVA_OPTIONS = "-XX:+UseParallelGC -Duser.timezone=UTC"
# Where workers are this Python it can be imported. It imports more than this package may.
_DAEMON = "dedup_platform.worker_daemon"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_STARTING = Lock()
"""One thread at a time starts Spark: what Java is told on the way is in the environment, which is the process's."""
# Of properties whose names look so, Spark shows no value in its UI, its logs and its answers; its own default knows
# fewer names.
_SECRET = "(?i)secret|password|token|credential|access[.-]?key"


def spark_conf(settings: Settings) -> dict[str, str]:
    """Every Spark property of the deployment, `spark.master` or `spark.remote` included; `settings.spark_conf` wins.

    Some are secret. Of a Spark Connect server only the session's part is set: the server has its own jars, memory and
    extensions.
    """
    session = _session() | _catalog(settings)
    if settings.spark_remote:
        own = {name: value for name, value in settings.spark_conf.items() if name.startswith("spark.sql.")}
        return {"spark.remote": remote_by_name(settings.spark_remote, settings)} | session | own
    return {"spark.master": settings.spark_master} | _application(settings) | session | settings.spark_conf


def public_conf(settings: Settings) -> dict[str, str]:
    """What a session is built with: all properties for a server, and none that is secret for a Spark of its own.

    PySpark starts Java with them in its command, which every user of the machine can see.
    """
    conf = spark_conf(settings)
    return conf if settings.spark_remote else {name: value for name, value in conf.items() if not _is_secret(name)}


def spark_session(settings: Settings) -> SparkSession:
    """The running session, or a new one with `spark_conf(settings)`. SparkServerError if its server is not there."""
    settings.make_folders()
    use_this_python(settings)
    builder = SparkSession.builder
    for key, value in public_conf(settings).items():
        builder = builder.config(key, value)
    return open_session(settings, builder.getOrCreate)


def open_session(settings: Settings, build: Callable[[], SparkSession]) -> SparkSession:
    """What `build` gives, which knows `public_conf(settings)`, with the secret properties of the settings.

    Raises SparkServerError if the server that the settings name is not there, WrongJarError if a jar is not what it
    should be.
    """
    if settings.spark_remote:
        session = opened(settings, build)
        note_session(session)
        return session
    require_jars(settings)
    secrets = {name: value for name, value in spark_conf(settings).items() if _is_secret(name)}
    with _STARTING, _file_for_java(secrets) if secrets else nullcontext():
        session = build()
    for name, value in secrets.items():
        if name.startswith("spark.sql."):
            # Where Java ran already, nobody read the file.
            session.conf.set(name, value)
    # Threads that work side by side get equal shares of Spark.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", f"thread {get_ident()}")
    note_session(session)
    return session


@contextmanager
def _file_for_java(secrets: Mapping[str, str]) -> Iterator[None]:
    """Let a Java that is started now read these properties from a file, which then is gone."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with NamedTemporaryFile("w", suffix=".conf", encoding="utf-8") as file:
        file.write(properties_file(secrets))
        file.flush()
        words = ["--properties-file", file.name, "--load-spark-defaults"]
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{shlex.join(words)} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


def properties_file(conf: Mapping[str, str]) -> str:
    """Properties as Java reads them from a file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in conf.items())


def _escaped(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _is_secret(name: str) -> bool:
    return re.search(_SECRET, name) is not None


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
        if os.environ.get("PYSPARK_PYTHON", sys.executable) == sys.executable:
            here["spark.python.daemon.module"] = _DAEMON
    log_settings = f"'-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}'"
    return here | {
        "spark.app.name": "dedup_platform",
        "spark.driver.memory": settings.driver_memory,
        "spark.scheduler.mode": "FAIR",
        "spark.driver.extraJavaOptions": " ".join(filter(None, (JAVA_OPTIONS, archive_options(), log_settings))),
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        **jars_conf(settings.jars),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.python.sql.dataFrameDebugging.enabled": "false",  # ten calls to Java for each column, to name its line
        "spark.sql.warehouse.dir": str(settings.home / "spark-warehouse"),
        # One ingest and repair generate about two hundred classes; the default keeps a hundred and compiles them anew.
        "spark.sql.codegen.cache.maxEntries": "2000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.regex": _SECRET,
    }


def _session() -> dict[str, str]:
    return {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
    }


def _catalog(settings: Settings) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    properties = {
        # PyIceberg commits too: a session that remembers tables would not see it.
        "cache-enabled": "false",
        "warehouse": settings.warehouse,
        **_catalog_of_kind(settings),
        **_s3(settings),
        **settings.catalog_conf,
    }
    named = {f"{prefix}.{name}": value for name, value in properties.items()}
    return {prefix: "org.apache.iceberg.spark.SparkCatalog", **named}


def _catalog_of_kind(settings: Settings) -> dict[str, str]:
    """What `Settings.catalog_properties` says to PyIceberg, as Iceberg's own implementations want it."""
    # V1 is the layout of the catalog's tables that PyIceberg's SqlCatalog reads and writes.
    jdbc = {"catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog", "jdbc.schema-version": "V1"}
    match settings.catalog_kind:
        case "sqlite":
            busy = {"jdbc.busy_timeout": str(SQLITE_BUSY_SECONDS * 1000)}
            return {**jdbc, **busy, "uri": f"jdbc:sqlite:{settings.catalog_file}"}
        case "postgresql":
            return {**jdbc, **_postgres(settings.catalog_uri)}
        case "rest":
            known = settings.rest_identity()
            auth = {"rest.auth.type": "oauth2"} if known else {}
            rest = {"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "uri": settings.catalog_uri}
            return {**rest, **auth, **known}
        case "glue":
            region, account = settings.glue
            glue = {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog", "client.region": region}
            return {**glue, **({"glue.id": account} if account else {})}


def _postgres(uri: str) -> dict[str, str]:
    """The address for JDBC, and beside it who we are: Spark's messages tell the address."""
    url = make_url(uri)
    address = URL.create("postgresql", host=url.host, port=url.port, database=url.database, query=url.query)
    who = {"jdbc.user": url.username, "jdbc.password": url.password}
    return {"uri": f"jdbc:{address.render_as_string()}", **{name: value for name, value in who.items() if value}}


def _s3(settings: Settings) -> dict[str, str]:
    if not settings.is_on_s3:
        return {}
    files = settings.file_properties()
    found = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": settings.s3_endpoint,
        "client.region": files.get("s3.region"),
        "s3.path-style-access": str(settings.s3_path_style).lower() if settings.s3_endpoint else None,
        "s3.access-key-id": revealed(settings.s3_access_key_id),
        "s3.secret-access-key": revealed(settings.s3_secret_access_key),
    }
    return {name: value for name, value in found.items() if value is not None}
