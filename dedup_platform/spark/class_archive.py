"""An archive of the classes that Spark loads (Java's class data sharing): with it Spark starts in half the time.

`python -m dedup_platform.spark.class_archive` makes it: it starts a Spark, has it do a little of everything, and lets
Java write down what it had loaded. Every Spark that is started afterwards reads it, if it is that of the same Java and
the same PySpark; without one, or with a damaged one, Java loads its classes as ever.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil  # type: ignore[import-untyped]
import pyspark
from pyspark.sql import SparkSession

from dedup_platform.errors import MissingPartError, ServerStartError
from dedup_platform.processes import free_port
from dedup_platform.spark.jars import cache_folder, java

__all__ = ["archive_options", "class_archive", "make_class_archive"]

_SECONDS_TO_WRITE = 600
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java would print a warning where an archive is another Java's, and several where it writes one."""


def class_archive() -> Path:
    """Where the archive is, or would be; MissingPartError if there is no Java."""
    home = java().resolve().parent.parent
    told = home / "release"
    known = f"{home} {told.read_text('utf-8') if told.is_file() else ''} {pyspark.__file__}"
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    return cache_folder() / f"spark-{pyspark.__version__}-{digest}.jsa"


def archive_options() -> str:
    """Options for the Java of a Spark on this machine: nothing unless there is an archive that only we can write."""
    try:
        archive = class_archive()
        found = archive.stat()
    except (MissingPartError, OSError):
        return ""
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        return ""
    return f"'-XX:SharedArchiveFile={archive}' {_QUIET}"


def make_class_archive() -> Path:
    """Make the archive unless it is there; returns where. ServerStartError if Java writes none."""
    archive = class_archive()
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder, "classes.jsa")
        _have_spark_work(Path(folder, "home"), made)
        if not made.is_file():
            raise ServerStartError("Spark", f"did not write {archive.name}", "")
        made.chmod(0o600)
        made.rename(archive)
    return archive


def _have_spark_work(home: Path, made: Path) -> None:
    """Run a Spark that serves others as well, and that writes at its end what it loaded."""
    # Whoever starts a Spark imports this module first.
    from dedup_platform.settings import Settings
    from dedup_platform.spark.connect_server import connect_server
    from dedup_platform.spark.session import JAVA_OPTIONS, spark_session

    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={made} {_QUIET}"
    conf = {"spark.driver.extraJavaOptions": options, "spark.sql.shuffle.partitions": "2"}
    settings = Settings(home=home, spark_master="local[2]", driver_memory="1g", spark_conf=conf)
    with connect_server(settings, free_port()) as server:
        _ask_a_little(spark_session(Settings(home=home, spark_remote=server.remote)))
        process = psutil.Process(server.pid)
        process.send_signal(signal.SIGTERM)
        # The server's own end would not wait for so long.
        psutil.wait_procs([process], timeout=_SECONDS_TO_WRITE)


def _ask_a_little(spark: SparkSession) -> None:
    spark.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, "id long").repartition(2, "id").collect()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.a")
    spark.sql("CREATE TABLE lake.a.a (id long, at timestamp) USING iceberg PARTITIONED BY (days(at))")
    spark.sql("INSERT INTO lake.a.a VALUES (1, current_timestamp())")
    spark.sql("SELECT id, count(*) FROM lake.a.a GROUP BY id ORDER BY id").collect()
    spark.stop()  # or it would look for its server at this process's end


if __name__ == "__main__":
    sys.stderr.write(f"{make_class_archive()}\n")
