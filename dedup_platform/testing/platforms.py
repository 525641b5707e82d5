"""A platform for a test: its own lake and control database, an existing Spark session, a clock that stands still."""

from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dedup_platform.settings import CATALOG, Settings
from dedup_platform.spark.session import spark_conf
from dedup_platform.spark.workers import InProcess
from dedup_platform.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dedup_platform.platform import Platform


def temporary_platform(
    home: Path, streams: Stream | Iterable[Stream], spark: "SparkSession", clock: Callable[[], datetime], **places: Any
) -> "Platform":
    """A platform whose tables live in `home`, or where `places` (settings) say, on the Spark application that runs.

    `spark` must be a session made with `spark_conf`; its own lake is not touched.
    """
    from dedup_platform.platform import Platform

    settings = Settings(home=home, **places)
    settings.make_folders()
    session = session_of(settings, spark)
    named = {each.name: each for each in ([streams] if isinstance(streams, Stream) else streams)}
    return Platform(settings, named, spark=lambda: session, clock=clock)


def light_platform(
    home: Path, streams: Stream | Iterable[Stream], clock: Callable[[], datetime], **places: Any
) -> "Platform":
    """The same without Spark: all work is done in this process, so a repair of a few rows takes a tenth of a second.

    What asks Spark itself (`verify`, `maintain`, `read`) fails.
    """
    from dedup_platform.platform import Platform

    settings = Settings(home=home, **places)
    settings.make_folders()
    named = {each.name: each for each in ([streams] if isinstance(streams, Stream) else streams)}
    return Platform(settings, named, spark=lambda: cast("SparkSession", InProcess()), clock=clock)


def session_of(settings: Settings, spark: "SparkSession") -> "SparkSession":
    """Another session of the same application whose catalog is that of these settings: catalogs belong to sessions."""
    session = spark.newSession()
    for name, value in spark_conf(settings).items():
        if name.startswith(f"spark.sql.catalog.{CATALOG}"):
            session.conf.set(name, value)
    return session
