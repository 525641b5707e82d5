"""The numbers of each partition that a commit touched, for metadata and plots."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from pyspark.sql import functions as F

from dedup_platform.lakehouse import Lakehouse, Staged
from dedup_platform.lateness import Cell
from dedup_platform.ledger import Ledger
from dedup_platform.stages.cells import microseconds, partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS

Numbers = dict[int, dict[str, float]]


def of_partitions(
    lake: Lakehouse, ledger: Ledger, stream: Stream, table: str, checked: Iterable[Cell], written: Iterable[Staged]
) -> Numbers:
    """Ordinal -> numbers of the whole partition as it is now, and of what these commits wrote into it.

    `conflicts`, `late_rows` and `longest_lateness_seconds` speak of the checked cells only: the rows tell them.
    """
    cells = frozenset(checked)
    numbers: Numbers = {partition: defaultdict(float) for partition in sorted({cell.partition for cell in cells})}
    sizes = {table: ledger.sizes_of_partitions(stream.name, table, numbers)}
    if table == DEDUPLICATED_EVENTS:
        sizes[DUPLICATE_EVENTS] = ledger.sizes_of_partitions(stream.name, DUPLICATE_EVENTS, numbers)
        _add_verdicts(numbers, lake, ledger, stream, cells)
    for name, by_cell in sizes.items():
        for cell, size in by_cell.items():
            numbers[cell.partition]["duplicates" if name == DUPLICATE_EVENTS else "rows"] += size.rows
    for cell in set().union(*sizes.values()):
        numbers[cell.partition]["cells_total"] += 1
    _add_written(numbers, written)
    return {partition: dict(values) for partition, values in numbers.items()}


def _add_written(numbers: Numbers, written: Iterable[Staged]) -> None:
    rewritten = set()
    for staged in written:
        for change in staged.changes:
            if change.cell and change.cell.partition in numbers:
                rewritten.add(change.cell)
                numbers[change.cell.partition]["bytes_written"] += change.bytes if change.sign > 0 else 0
    for values in numbers.values():
        values["cells_rewritten"] = 0
    for cell in rewritten:
        numbers[cell.partition]["cells_rewritten"] += 1


def _add_verdicts(numbers: Numbers, lake: Lakehouse, ledger: Ledger, stream: Stream, cells: frozenset[Cell]) -> None:
    heads: Mapping[str, int] = {name: head.snapshot_id for name, head in ledger.sync(stream.name).items()}
    length = stream.partitions.length
    place = partition_ordinal(F.col("event_time"), length).alias("partition")
    closes = (F.col("partition") + 1) * F.lit(microseconds(length)) + F.lit(microseconds(stream.late.grace))
    events = lake.read(stream, DEDUPLICATED_EVENTS, heads[DEDUPLICATED_EVENTS], cells)
    lateness = events.select(place, F.unix_micros("arrival_time").alias("arrival"), F.lit(0).alias("conflict"))
    duplicates = lake.read(stream, DUPLICATE_EVENTS, heads[DUPLICATE_EVENTS], cells).where("kind = 'conflict'")
    conflicts = duplicates.select(place, F.lit(None).cast("long").alias("arrival"), F.lit(1).alias("conflict"))
    late = F.col("arrival") - closes
    for row in (
        lateness.unionByName(conflicts)
        .groupBy("partition")
        .agg(F.count_if(late > 0).alias("late"), F.max(late).alias("longest"), F.sum("conflict").alias("conflicts"))
        .collect()
    ):
        numbers[row.partition]["late_rows"] = row.late
        numbers[row.partition]["longest_lateness_seconds"] = max(row.longest or 0, 0) / 1_000_000
        numbers[row.partition]["conflicts"] = row.conflicts
