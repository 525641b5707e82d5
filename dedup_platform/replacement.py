"""The new content of some cells, compared with what the tables hold, so that only what differs is written (rule 6)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, functions as F

from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import CellSize
from dedup_platform.settings import CATALOG
from dedup_platform.stages.cells import bucket, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import PARTITION_TIME, column_names


@dataclass(frozen=True)
class Target:
    """A table whose cells are to be replaced, from its snapshot `base`, which holds `sizes`."""

    table: str
    base: int
    sizes: Mapping[Cell, CellSize]
    select: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """The table's own rows among those that were computed."""


class Difference(NamedTuple):
    """A cell whose content would change: the rows that it would hold, and the events in it, before and after."""

    rows: int
    events_before: int
    events_after: int


@dataclass(frozen=True)
class Replacement:
    """Rows for some cells of a table, and which of these cells they would change."""

    lake: Lakehouse
    stream: Stream
    target: Target
    rows: DataFrame
    changed: frozenset[Cell]
    differences: Mapping[Cell, Difference] | None
    """None if there was nothing to compare with."""

    def stage(self, properties: Mapping[str, str]) -> Staged:
        """Write the changed cells, or an empty snapshot if there are none."""
        table, base = self.target.table, self.target.base
        if not self.changed:
            return self.lake.stage_nothing(self.stream, table, base, properties)
        return self.lake.stage_cells(self.stream, table, base, self.rows, self.changed, properties)

    def rows_after(self, staged: Staged | None) -> dict[Cell, int]:
        """Rows in each cell of the table once `staged` is published."""
        rows = {cell: size.rows for cell, size in self.target.sizes.items() if cell not in self.changed}
        return rows | (staged.rows_by_cell() if staged else {})

    def count_events(self, staged: Staged) -> tuple[int, int]:
        """The events in the changed cells of a table of fragments or sessions, before and after."""
        found = list(self.differences.values()) if self.differences is not None else None
        # Only if the files hold as much as was compared does the comparison speak for them.
        if found is not None and staged.rows_added == sum(each.rows for each in found):
            return sum(each.events_before for each in found), sum(each.events_after for each in found)
        before, after = (
            self.lake.read(self.stream, self.target.table, snapshot, self.changed)
            .agg(F.sum("event_count"))
            .collect()[0][0]
            or 0
            for snapshot in (staged.base, staged.snapshot_id)
        )
        return before, after


@contextmanager
def replacements(
    lake: Lakehouse, stream: Stream, rows: DataFrame, cells: frozenset[Cell], targets: Sequence[Target]
) -> Iterator[list[Replacement]]:
    """Compare what the targets would hold in `cells`, all of it computed by `rows`, with what they hold."""
    if all(cells.isdisjoint(target.sizes) for target in targets):
        # Nothing to compare with, so nothing to compute twice: a first build writes straight away.
        yield [Replacement(lake, stream, target, target.select(rows), cells, None) for target in targets]
        return
    kept = rows.where(lake.within(stream, targets[0].table, cells)).persist()
    try:
        found = _differences(lake, stream, kept, cells, targets)
        yield [
            Replacement(lake, stream, target, target.select(kept), frozenset(found[target.table]), found[target.table])
            for target in targets
        ]
    finally:
        kept.unpersist()


def _differences(
    lake: Lakehouse, stream: Stream, rows: DataFrame, cells: frozenset[Cell], targets: Sequence[Target]
) -> dict[str, dict[Cell, Difference]]:
    """The cells of each target that would change; one job for them all."""
    sides = []
    for target in targets:
        old = lake.read(stream, target.table, target.base, cells)
        for side, content in ((1, target.select(rows)), (-1, old)):
            sides.append(_hashed(content, stream, target.table, lake.buckets(stream)).withColumn("side", F.lit(side)))
    is_new, is_old = F.col("side") == 1, F.col("side") == -1
    contents = (
        reduce(DataFrame.unionByName, sides)
        .groupBy("table", "partition", "bucket")
        .agg(
            F.count_if(is_new).alias("rows"),
            F.coalesce(F.sum(F.when(is_old, F.col("events"))), F.lit(0)).alias("before"),
            F.coalesce(F.sum(F.when(is_new, F.col("events"))), F.lit(0)).alias("after"),
            F.sum("side").alias("surplus"),
            *(F.bit_xor(name).alias(name) for name in HASHES),
        )
    )
    # Equal rows on both sides cancel, whatever their order: what is left is a difference.
    found: dict[str, dict[Cell, Difference]] = {target.table: {} for target in targets}
    for row in contents.where(" or ".join(f"{name} != 0" for name in ("surplus", *HASHES))).collect():
        found[row.table][Cell(row.partition, row.bucket)] = Difference(row.rows, row.before, row.after)
    return found


HASHES = ("hash_0", "hash_1")
"""Together 128 bits of a row."""


def _hashed(rows: DataFrame, stream: Stream, table: str, buckets: int) -> DataFrame:
    names = column_names(stream, table)
    # Spark hashes a null as if it were not there: a value that moved to another column would go unseen.
    nulls = [F.col(name).isNull() for name in names]
    return rows.select(
        F.lit(table).alias("table"),
        partition_ordinal(F.col(PARTITION_TIME[table]), stream.partitions.length).alias("partition"),
        bucket(buckets, CATALOG).alias("bucket"),
        (F.col("event_count") if "event_count" in names else F.lit(1)).cast("long").alias("events"),
        *(F.xxhash64(F.lit(seed), *nulls, *names).alias(name) for seed, name in enumerate(HASHES)),
    )
