"""Work on the fragments of one bucket, done by a task of Spark, which writes the cells as their sessions end."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import polars as pl

from dedup_platform.planning.cells import Cell
from dedup_platform.recompute.chunks import Chunk, file_bytes, split_evenly
from dedup_platform.recompute.tasks import CellResult, Store
from dedup_platform.rules.partitions import partition_ordinal
from dedup_platform.rules.sessions import Stitched, stitch_slices
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSION_FRAGMENTS, SESSIONS, column_names

SLICE_BYTES = 32 * 2**20
"""Fragments are read in slices of time of about so many bytes of files."""


@dataclass(frozen=True)
class Sessionization:
    """Rules 4 and 5 for chunks of fragments; what lies around must hold whole chains."""

    stream: Stream
    slice_bytes: int = SLICE_BYTES

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[CellResult]:
        """The file of sessions that start in each cell of the chunk.

        Only the chains that may go on, and the sessions of cells that they start in, stay in memory.
        """
        waiting = {cell.partition: cell for cell in sorted(chunk.cells)}
        held: dict[int, pl.DataFrame] = {}
        for ends, found in self._stitched(chunk, store):
            for partition, rows in _by_partition(found.sessions, self.stream).items():
                if partition in waiting:
                    held[partition] = pl.concat([held[partition], rows]) if partition in held else rows
            begun = set(_ordinals(found.unfinished, "first_event_time", self.stream))
            for partition in [each for each in waiting if (ends is None or each < ends) and each not in begun]:
                rows = held.pop(partition, found.sessions.clear())
                yield self._written(waiting.pop(partition), rows, chunk, store)

    def _stitched(self, chunk: Chunk, store: Store) -> Iterator[tuple[int | None, Stitched]]:
        """The sessions of each slice, with the partition that the next one begins with; None for the last one."""
        names = column_names(self.stream, SESSION_FRAGMENTS)
        files = dict(sorted((*chunk.cells.items(), *chunk.around.items())))
        partitions = [cell.partition for cell in files]
        slices = list(split_evenly(list(files.values()), file_bytes, self.slice_bytes)) or [[]]
        sizes = accumulate(map(len, slices))
        ends = [partitions[size] if size < len(partitions) else None for size in sizes]
        begins = [None if end is None else self.stream.partitions.start_of(end) for end in ends]
        frames = (store.read(SESSION_FRAGMENTS, [file for found in part for file in found], names) for part in slices)
        return zip(ends, stitch_slices(zip(frames, begins, strict=True), self.stream), strict=True)

    def _written(self, cell: Cell, rows: pl.DataFrame, chunk: Chunk, store: Store) -> CellResult:
        old, names = chunk.old[SESSIONS].get(cell, ()), column_names(self.stream, SESSIONS)
        is_changed, file = store.replace(SESSIONS, cell, old, rows.sort("started_at"), ("session_id",), names)
        before = store.count_events(SESSIONS, old) if is_changed and old else 0
        last = max(_ordinals(rows, "ended_at", self.stream), default=cell.partition)
        after = int(rows["event_count"].sum())
        return CellResult(cell, SESSIONS, is_changed, file, before, after, reaches=last - cell.partition)


def _by_partition(sessions: pl.DataFrame, stream: Stream) -> dict[int, pl.DataFrame]:
    placed = sessions.with_columns(_partition=_ordinals(sessions, "started_at", stream))
    parts = placed.partition_by("_partition", as_dict=True, include_key=False, maintain_order=True)
    return {partition: rows for (partition,), rows in parts.items()}


def _ordinals(rows: pl.DataFrame, column: str, stream: Stream) -> pl.Series:
    """The partition that each row's time lies in."""
    return rows.select(partition_ordinal(pl.col(column), stream.partitions.length)).to_series()
