"""Delta Lake, as its manual teaches deduplication."""

from pyspark.sql import DataFrame

from benchmarks.contender import Output
from benchmarks.contenders.merging import Merging
from benchmarks.contenders.spark import local_paths

PACKAGE = "io.delta:delta-spark_4.1_2.13:4.3.1"


class DeltaMerge(Merging):
    """Two Delta tables in a folder."""

    conf = {  # noqa: RUF012  (as in every contender)
        "spark.jars.packages": PACKAGE,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.parquet.compression.codec": "zstd",
    }

    values = {**Merging.values, "day": "CAST(arrived.event_time AS DATE)"}  # noqa: RUF012  (as in every contender)

    @property
    def events(self) -> str:  # type: ignore[override]
        return f"delta.`{self.out / 'events'}`"

    def create_events(self) -> None:
        self.spark.sql(f"""
            CREATE TABLE {self.events} (
                entity_id STRING, event_id STRING, event_time TIMESTAMP, arrival_time TIMESTAMP, page STRING,
                amount DECIMAL(12, 2), details STRING, day DATE
            ) USING delta PARTITIONED BY (day)""")

    def replace_sessions(self, sessions: DataFrame) -> None:
        sessions.write.format("delta").mode("overwrite").save(str(self.out / "sessions"))

    def sessions(self) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.out / "sessions"))

    def output(self) -> Output:
        return Output(
            *(local_paths(rows.inputFiles()) for rows in (self.spark.read.table(self.events), self.sessions()))
        )
