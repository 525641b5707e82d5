"""The new content of some cells, compared with what the table holds, so that only what differs is written (rule 6)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, functions as F

from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import CellSize
from dedup_platform.settings import CATALOG
from dedup_platform.stages.cells import bucket, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME, column_names


@dataclass(frozen=True)
class Replacement:
    """Rows for some cells of a table, and which of these cells they would change."""

    lake: Lakehouse
    stream: Stream
    table: str
    base: int
    rows: DataFrame
    changed: frozenset[Cell]
    sizes: Mapping[Cell, CellSize]

    def stage(self, properties: Mapping[str, str]) -> Staged:
        """Write the changed cells, or an empty snapshot if there are none."""
        if not self.changed:
            return self.lake.stage_nothing(self.stream, self.table, self.base, properties)
        return self.lake.stage_cells(self.stream, self.table, self.base, self.rows, self.changed, properties)

    def rows_after(self, staged: Staged | None) -> dict[Cell, int]:
        """Rows in each cell of the table once `staged` is published."""
        rows = {cell: size.rows for cell, size in self.sizes.items() if cell not in self.changed}
        return rows | (staged.rows_by_cell() if staged else {})


@contextmanager
def replacement(
    lake: Lakehouse,
    stream: Stream,
    table: str,
    base: int,
    rows: DataFrame,
    cells: frozenset[Cell],
    sizes: Mapping[Cell, CellSize],
) -> Iterator[Replacement]:
    """Compare `rows` with the table's content in `cells`; `sizes` is what the table holds at `base`."""
    if cells.isdisjoint(sizes):
        # Nothing to compare with, so nothing to compute twice: a first build writes straight away.
        yield Replacement(lake, stream, table, base, rows, cells, sizes)
        return
    kept = rows.where(lake.within(stream, table, cells)).persist()
    try:
        old = lake.read(stream, table, base, cells)
        changed = _differing(kept, old, stream, table, lake.buckets(stream))
        yield Replacement(lake, stream, table, base, kept, changed, sizes)
    finally:
        kept.unpersist()


def _differing(new: DataFrame, old: DataFrame, stream: Stream, table: str, buckets: int) -> frozenset[Cell]:
    place = ["partition", "bucket"]
    before = _contents(old, stream, table, buckets).withColumnRenamed("content", "before")
    both = _contents(new, stream, table, buckets).join(before, place, "full")
    rows = both.where(~F.col("content").eqNullSafe(F.col("before"))).select(*place).collect()
    return frozenset(Cell(row.partition, row.bucket) for row in rows)


def _contents(rows: DataFrame, stream: Stream, table: str, buckets: int) -> DataFrame:
    """What each cell holds, whatever its rows' order: their number and 128 bits of their hashes."""
    names = column_names(stream, table)
    hashes = [F.bit_xor(F.xxhash64(F.lit(seed), *names)).alias(f"hash_{seed}") for seed in (0, 1)]
    return rows.groupBy(
        partition_ordinal(F.col(PARTITION_TIME[table]), stream.partitions.length).alias("partition"),
        bucket(buckets, CATALOG).alias("bucket"),
    ).agg(F.struct(F.count("*").alias("rows"), *hashes).alias("content"))
