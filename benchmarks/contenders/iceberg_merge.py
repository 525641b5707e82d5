"""Iceberg tables as its manual teaches to write them, without this platform."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from benchmarks.contender import Output
from benchmarks.contenders.merging import Merging
from benchmarks.contenders.spark import local_paths
from dedup_platform.settings import JARS


class IcebergMerge(Merging):
    """Two Iceberg tables of a catalog that is a folder."""

    events = "plain.bench.events"
    _sessions = "plain.bench.sessions"

    @property
    def conf(self) -> Mapping[str, str]:  # type: ignore[override]
        return {
            "spark.jars.packages": JARS[0],
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.plain.type": "hadoop",
            "spark.sql.catalog.plain.warehouse": str(self.out),
            "spark.sql.catalog.plain.cache-enabled": "false",
        }

    def create_events(self) -> None:
        self.spark.sql(f"""
            CREATE TABLE {self.events} (
                entity_id STRING, event_id STRING, event_time TIMESTAMP, arrival_time TIMESTAMP, page STRING,
                amount DECIMAL(12, 2), details STRING
            ) USING iceberg PARTITIONED BY (days(event_time))
            TBLPROPERTIES ('write.parquet.compression-level' = '1')""")

    def replace_sessions(self, sessions: DataFrame) -> None:
        sessions.writeTo(self._sessions).using("iceberg").tableProperty(
            "write.parquet.compression-level", "1"
        ).createOrReplace()

    def sessions(self) -> DataFrame:
        return self.spark.read.table(self._sessions)

    def output(self) -> Output:
        return Output(*(self._data_files(table) for table in (self.events, self._sessions)))

    def _data_files(self, table: str) -> list[str]:
        rows = self.spark.read.table(f"{table}.files").select("file_path").collect()
        return local_paths([row.file_path for row in rows])
