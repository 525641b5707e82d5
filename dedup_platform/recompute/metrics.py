"""What a commit did in each partition that it touched, for metadata and plots.

What the partitions hold since, `platform.figures` tells.
"""

from collections.abc import Iterable, Mapping

from dedup_platform.lake.staged import Staged
from dedup_platform.planning.cells import Cell

Numbers = Mapping[int, Mapping[str, float]]


def of_partitions(checked: Iterable[Cell], written: Iterable[Staged]) -> Numbers:
    """Ordinal -> `cells_checked` in it, and `cells_rewritten` and `bytes_written` by all that was written together."""
    numbers: dict[int, dict[str, float]] = {}
    for cell in checked:
        values = numbers.setdefault(cell.partition, {"cells_checked": 0, "cells_rewritten": 0, "bytes_written": 0})
        values["cells_checked"] += 1
    rewritten = set()
    for change in (change for staged in written for change in staged.changes):
        if change.cell and change.cell.partition in numbers:
            rewritten.add(change.cell)
            numbers[change.cell.partition]["bytes_written"] += change.bytes if change.sign > 0 else 0
    for cell in rewritten:
        numbers[cell.partition]["cells_rewritten"] += 1
    return dict(sorted(numbers.items()))
