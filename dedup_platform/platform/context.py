"""What all doors of a platform share: its streams, where their tables and facts are, and how work is tried."""

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import ParamSpec, TypeVar

from pyspark.sql import DataFrame, SparkSession

from dedup_platform import tables
from dedup_platform.errors import UnknownStreamError
from dedup_platform.lake import snapshots
from dedup_platform.lake.catalog import Catalog
from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import bucket_count
from dedup_platform.ledger import Ledger
from dedup_platform.planning.moments import Clock
from dedup_platform.platform.lineage import Lineage
from dedup_platform.retries import retry_on_conflict
from dedup_platform.settings import Settings
from dedup_platform.spark.connect import translate_connect_errors
from dedup_platform.stream import Stream
from dedup_platform.verification.check_columns import count_violations_of_few
from dedup_platform.verification.check_queries import count_violations

P = ParamSpec("P")
T = TypeVar("T")


class Context:
    """The streams of one deployment, by name; Spark starts when it is first needed."""

    def __init__(
        self, settings: Settings, streams: Mapping[str, Stream], spark: Callable[[], SparkSession], clock: Clock
    ) -> None:
        self.settings = settings
        self.streams = dict(streams)
        self.clock = clock
        self.lake = Lakehouse(Catalog(settings), cache(spark))
        self.ledger = Ledger(settings, self.lake.catalog, self.stream)
        self.lineage = Lineage(settings, self.lake.catalog, lambda: self.ledger.engine)

    def stream(self, name: str) -> Stream:
        """A stream by its name; raises UnknownStreamError."""
        if name not in self.streams:
            raise UnknownStreamError(name, self.streams)
        return self.streams[name]

    def prepare(self, name: str) -> Stream:
        """The stream, once its tables are there, have its columns, and nothing is left of who died half-way."""
        definition = self.complete(name)
        retry_on_conflict(self.lake.evolve)(definition)
        self.lake.discard_abandoned(definition)
        return definition

    def complete(self, name: str) -> Stream:
        """The stream, none or all of whose tables are there: one that is missing beside others is created.

        It may be new to this version, or somebody dropped it: it is empty, and all of it is stale. Raises
        IncompatibleChangeError if the tables cannot follow the stream file.
        """
        definition = self.stream(name)
        found = self.lake.check(definition)
        if 0 < len(found) < len(tables.all_of(definition)):
            self.lake.create(definition, bucket_count(next(iter(found.values()))))
        return definition

    def switched_off(self, name: str) -> list[str]:
        """The tables that are there although the stream file has no sessions any more: they stay as they are."""
        definition = self.stream(name)
        others = (table for table in tables.ALL if table not in tables.all_of(definition))
        return [table for table in others if self.lake.catalog.load(definition.name, table)]

    def work(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Work that needs Spark, again if somebody else committed first."""
        with translate_connect_errors(self.settings):
            return retry_on_conflict(step)(*args, **kwargs)

    def rows(self, stream: str, table: str) -> int:
        """How many rows a table has, by its newest snapshot's summary; none before there are tables."""
        loaded = self.lake.catalog.load(self.stream(stream).name, table)
        return snapshots.total_rows(loaded) if loaded else 0

    def read(self, stream: str, table: str) -> DataFrame:
        """A table's current rows. Events and duplicates are the pair of snapshots that belong together."""
        definition = self.stream(stream)
        return self.lake.read(definition, table, self.lake.current(definition, table))

    def violations(self, stream: str, table: str, partitions: Collection[int]) -> dict[int, dict[str, int]]:
        """Ordinal of a partition -> check -> how many of its current rows in a derived table break it."""
        definition = self.stream(stream)
        snapshot_id = self.lake.current(definition, table)
        found = count_violations_of_few(self.lake, definition, table, snapshot_id, partitions)
        if found is None:
            found = count_violations(self.lake.read(definition, table, snapshot_id), definition, table, partitions)
        return found
