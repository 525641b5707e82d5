"""Figures of cells read from their rows, where nobody kept what was counted of them. No Spark."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import polars as pl
from pyiceberg.manifest import DataFile

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.table_files import TableFiles, frame_of, in_larger
from dedup_platform.planning.cells import Cell, closes
from dedup_platform.planning.figures import NO_FIGURES, CellFigures, added_up
from dedup_platform.rules.figures import FIGURE_COLUMN, cell_figures
from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, RAW_EVENTS

_ARRIVAL = "arrival_time"


def read_figures(
    lake: Lakehouse, stream: Stream, table: str, snapshot_id: int, cells: Collection[Cell]
) -> dict[Cell, CellFigures]:
    """The figures of some cells in one snapshot. Reads one column, and of files that cannot hold anything late none."""
    files = lake.files(stream, table, snapshot_id, cells)
    reading = _Reading(stream, table, lake.table_files(stream, table))
    return {cell: added_up(reading.figures(cell, file) for file in files.get(cell, ())) for cell in cells}


@dataclass(frozen=True)
class _Reading:
    """Counts the rows of data files of one table."""

    stream: Stream
    table: str
    files: TableFiles

    def figures(self, cell: Cell, file: DataFile) -> CellFigures:
        """Those of the rows of one file."""
        if self.table == DEDUPLICATED_EVENTS and self._are_in_time(cell, file):
            return NO_FIGURES
        batches = in_larger(self.files.batches(file, [FIGURE_COLUMN[self.table]]))
        return added_up(cell_figures(self.stream, self.table, cell, frame_of(rows)) for rows in batches)

    def _are_in_time(self, cell: Cell, file: DataFile) -> bool:
        bounds = self.files.bounds(file, _ARRIVAL)
        closed = closes(cell.partition, self.stream.partitions.length, self.stream.late.grace)
        return bounds is not None and bounds[1] <= closed


def rejected_by_arrival(lake: Lakehouse, stream: Stream, snapshot_id: int) -> Counter[int]:
    """How many rejected records of one snapshot of `raw_events` arrived in the time of each partition.

    They have no event time. Files of which the bounds say that all arrived in one partition are not read.
    """
    files, found = lake.table_files(stream, RAW_EVENTS), Counter[int]()
    for file in lake.rejected_files(stream, snapshot_id):
        bounds = files.bounds(file, _ARRIVAL)
        partitions = {stream.partitions.ordinal(moment) for moment in bounds} if bounds else set()
        if len(partitions) == 1:
            found[partitions.pop()] += file.record_count
            continue
        place = partition_ordinal(pl.col(_ARRIVAL), stream.partitions.length)
        for rows in map(frame_of, in_larger(files.batches(file, [_ARRIVAL]))):
            found.update(dict(rows.group_by(place).len().iter_rows()))
    return found
