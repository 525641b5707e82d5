"""What is counted of a cell's rows for the figures of its partition (docs/semantics.md), over columns."""

from datetime import datetime, timedelta

import polars as pl

from dedup_platform.planning.cells import Cell, closes
from dedup_platform.planning.figures import DIGITS, NO_FIGURES, NOT_LATE, CellFigures, Lateness
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS

FIGURE_COLUMN = {DUPLICATE_EVENTS: "kind", DEDUPLICATED_EVENTS: "arrival_time"}
"""The one column of each table that figures are counted of."""
_MOST_DIGITS = 12
"""All the time that there is has 3e11 seconds."""


def cell_figures(stream: Stream, table: str, cell: Cell, rows: pl.DataFrame) -> CellFigures:
    """The figures of all rows of a cell, or of a share of them, which have at least the table's `FIGURE_COLUMN`."""
    if not rows.height:
        return NO_FIGURES
    column = rows[FIGURE_COLUMN[table]]
    if table == DUPLICATE_EVENTS:
        return CellFigures(conflicts=int((column == "conflict").sum()))
    return CellFigures(lateness=lateness(column, closes(cell.partition, stream.partitions.length, stream.late.grace)))


def lateness(arrivals: pl.Series, closes: datetime) -> Lateness:
    """How late the events of one partition are that arrived at these times; what arrives as it closes is not late."""
    late = (arrivals - closes).rename("late")
    late = late.filter(late > timedelta(0))
    longest = late.max()
    if not isinstance(longest, timedelta):
        return NOT_LATE
    counted = late.to_frame().group_by(rounded(pl.col("late").dt.total_seconds())).len().sort("late")
    return Lateness(dict(counted.iter_rows()), longest)


def rounded(numbers: pl.Expr) -> pl.Expr:
    """Whole numbers, none of them negative, rounded down to `DIGITS` digits."""
    found = numbers
    # Comparisons, since a logarithm of floats is off by one at powers of ten.
    for digits in range(DIGITS, _MOST_DIGITS):
        scale = 10 ** (digits + 1 - DIGITS)
        found = pl.when(numbers >= 10**digits).then(numbers // scale * scale).otherwise(found)
    return found
