"""The numbers of each partition that a commit touched, for metadata and plots."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from dedup_platform.lake.staged import Staged
from dedup_platform.ledger import Ledger
from dedup_platform.planning.cells import Cell
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS

Numbers = dict[int, dict[str, float]]


def of_partitions(
    ledger: Ledger,
    stream: Stream,
    table: str,
    checked: Iterable[Cell],
    written: Iterable[Staged],
    found: Mapping[int, Mapping[str, float]],
) -> Numbers:
    """Ordinal -> numbers of the whole partition as it is now, and of what these commits wrote into it.

    What was `found` (`conflicts`, `late_rows` and `longest_lateness_seconds`) speaks of the checked cells only.
    """
    cells = frozenset(checked)
    numbers: Numbers = {partition: defaultdict(float) for partition in sorted({cell.partition for cell in cells})}
    sizes = {table: ledger.sizes_of_partitions(stream.name, table, numbers)}
    if table == DEDUPLICATED_EVENTS:
        sizes[DUPLICATE_EVENTS] = ledger.sizes_of_partitions(stream.name, DUPLICATE_EVENTS, numbers)
    for name, by_cell in sizes.items():
        for cell, size in by_cell.items():
            numbers[cell.partition]["duplicates" if name == DUPLICATE_EVENTS else "rows"] += size.rows
    for cell in set().union(*sizes.values()):
        numbers[cell.partition]["cells_total"] += 1
    _add_written(numbers, written)
    for partition, values in found.items():
        numbers[partition].update(values)
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
