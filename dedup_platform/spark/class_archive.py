"""An archive of the classes that Spark loads (Java's class data sharing): with it Spark starts in half the time.

`python -m dedup_platform.spark.class_archive` makes it: it starts a Spark, has it do a little of everything, and lets
Java write down what it had loaded. Every Spark that is started afterwards reads it, if it is that of the same Java and
the same PySpark; without one, or with a damaged one, Java loads its classes as ever.
"""

import hashlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil  # type: ignore[import-untyped]
import pyspark

from dedup_platform.errors import MissingPartError, ServerStartError
from dedup_platform.spark.jars import java

__all__ = ["archive_options", "class_archive", "make_class_archive"]

_SECONDS_TO_WRITE = 600
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Java would print a warning where an archive is another Java's, and several where it writes one."""


def class_archive() -> Path:
    """Where the archive is, or would be; MissingPartError if there is no Java."""
    home = java().resolve().parent.parent
    told = home / "release"
    known = f"{home} {told.read_text('utf-8') if told.is_file() else ''} {pyspark.__file__}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(known.encode()).hexdigest()[:16]
    return cache / "dedup_platform" / f"spark-{pyspark.__version__}-{digest}.jsa"


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
        said = _have_spark_work(Path(folder, "home"), made)
        if not made.is_file():
            raise ServerStartError("Spark", f"did not write {archive.name}", said)
        made.chmod(0o600)
        made.rename(archive)
    return archive


def _have_spark_work(home: Path, made: Path) -> str:
    """Run a Spark that serves others as well, and writes at its end what it loaded; returns what it printed."""
    worked = subprocess.run(
        [sys.executable, "-c", _WORK, str(home), str(_free_port()), f"-XX:ArchiveClassesAtExit={made} {_QUIET}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_TO_WRITE,
    )
    return worked.stdout + worked.stderr


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


_WORK = """
import sys
from dedup_platform.spark.class_archive import _serve_and_end
_serve_and_end(*sys.argv[1:])
"""
_ASK = """
import sys
from dedup_platform.spark.class_archive import _ask_a_little
_ask_a_little(*sys.argv[1:])
"""


def _serve_and_end(home: str, port: str, options: str) -> None:
    from dedup_platform.settings import Settings
    from dedup_platform.spark.connect_server import connect_server
    from dedup_platform.spark.session import JAVA_OPTIONS

    conf = {"spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {options}", "spark.sql.shuffle.partitions": "2"}
    settings = Settings(home=Path(home), spark_master="local[2]", driver_memory="1g", spark_conf=conf)
    with connect_server(settings, int(port)) as server:
        subprocess.run([sys.executable, "-c", _ASK, home, server.remote], stdin=subprocess.DEVNULL, check=True)
        process = psutil.Process(server.pid)
        process.send_signal(signal.SIGTERM)
        # The server's own end would not wait for so long.
        psutil.wait_procs([process], timeout=_SECONDS_TO_WRITE)


def _ask_a_little(home: str, remote: str) -> None:
    from dedup_platform.settings import Settings
    from dedup_platform.spark.session import spark_session

    spark = spark_session(Settings(home=Path(home), spark_remote=remote))
    spark.range(0, 10, 1, 2).mapInArrow(lambda batches: batches, "id long").repartition(2, "id").collect()
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.a")
    spark.sql("CREATE TABLE lake.a.a (id long, at timestamp) USING iceberg PARTITIONED BY (days(at))")
    spark.sql("INSERT INTO lake.a.a VALUES (1, current_timestamp())")
    spark.sql("SELECT id, count(*) FROM lake.a.a GROUP BY id ORDER BY id").collect()


if __name__ == "__main__":
    sys.stderr.write(f"{make_class_archive()}\n")
