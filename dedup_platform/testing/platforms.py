"""A platform for a test: its own lake and control database, an existing Spark session, a clock that stands still."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dedup_platform.settings import CATALOG, Settings
from dedup_platform.spark.session import spark_conf
from dedup_platform.spark.workers import InProcess
from dedup_platform.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from dedup_platform.platform import Platform


class _WorksHere(InProcess):
    """Tasks are done in this process; whatever asks Spark itself is passed on to a session, made only then."""

    def __init__(self, session: "Callable[[], SparkSession]") -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session(), name)


def temporary_platform(
    home: Path,
    streams: Stream | Iterable[Stream],
    spark: "SparkSession",
    clock: Callable[[], datetime],
    *,
    in_process: bool = False,
    **places: Any,
) -> "Platform":
    """A platform whose tables live in `home`, or where `places` (settings) say, on the Spark application that runs.

    `spark` must be a session made with `spark_conf`; its own lake is not touched. With `in_process` this process does
    the tasks of ingests and repairs, in a quarter of the time, and Spark the rest.
    """
    from dedup_platform.platform import Platform

    settings = Settings(home=home, **places)
    settings.make_folders()
    session = cache(lambda: session_of(settings, spark))
    chosen = (lambda: cast("SparkSession", _WorksHere(session))) if in_process else session
    named = {each.name: each for each in ([streams] if isinstance(streams, Stream) else streams)}
    return Platform(settings, named, spark=chosen, clock=clock)


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
