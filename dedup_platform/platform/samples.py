"""Some of the rows that a commit brought, for people to look at: few of them, read from what the commit itself touched.

What this costs is bounded, whatever was committed: where the first files are many or large, others are not looked at.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import polars as pl
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from dedup_platform.lake.snapshots import added_rejected_files, cell_of, own_files
from dedup_platform.lake.table_files import frame_of
from dedup_platform.planning.cells import Cell
from dedup_platform.platform.context import Context
from dedup_platform.recompute.chunks import file_bytes
from dedup_platform.replay.rejected import RejectedRecord, without_ends
from dedup_platform.tables import ARRIVAL_ORDER, RAW_EVENTS, SESSIONS, column_names

FEW: Final = 5
MOST_BYTES: Final = 16 * 2**20
"""So much is read for a sample, and the batch or cell with which it is reached is the last one."""
MOST_FILES: Final = 16
"""Each is opened, which takes longer on S3 than reading it."""

NEW, CHANGED = "new", "changed"


def changed_sessions(context: Context, stream: str, snapshot_id: int) -> list[dict[str, Any]]:
    """Sessions that one commit of `sessions` brought or changed, as rows, each with its `change`.

    The smallest cells that it rewrote are read, as they are and as they were.
    """
    definition = context.stream(stream)
    loaded, files = context.lake.catalog.load_table(stream, SESSIONS), context.lake.table_files(definition, SESSIONS)
    columns, found = column_names(definition, SESSIONS), list[dict[str, Any]]()
    for before, after in _rewritten(loaded, snapshot_id):
        old, new = (frame_of(files.read(each, columns)) for each in (before, after))
        told = new.join(old, on=columns, how="anti", nulls_equal=True).sort("started_at", "session_id")
        change = pl.when(pl.col("session_id").is_in(old["session_id"].implode())).then(pl.lit(CHANGED))
        found += told.select(change.otherwise(pl.lit(NEW)).alias("change"), *columns).head(FEW - len(found)).to_dicts()
        if len(found) >= FEW:
            break
    return found


def newly_rejected(context: Context, stream: str, snapshot_ids: Collection[int]) -> list[RejectedRecord]:
    """Records that these snapshots of `raw_events` added and that are rejected: of each reason the first, then more.

    Of a payload there is the beginning only.
    """
    definition, read = context.stream(stream), 0
    loaded, files = (
        context.lake.catalog.load_table(stream, RAW_EVENTS),
        context.lake.table_files(definition, RAW_EVENTS),
    )
    best: pl.DataFrame | None = None
    added = [
        file
        for snapshot in loaded.snapshots()
        if snapshot.snapshot_id in snapshot_ids
        for file in added_rejected_files(loaded, snapshot)
    ]
    for batch in (
        each
        for file in added[:MOST_FILES]
        for each in files.batches(file, (*ARRIVAL_ORDER, "rejection_reason", "payload"))
    ):
        rows = frame_of(without_ends(batch))
        rows = (rows if best is None else pl.concat([best, rows])).sort(ARRIVAL_ORDER)
        place = pl.int_range(pl.len()).over("rejection_reason")
        best = rows.sort(place, *ARRIVAL_ORDER).head(FEW)
        read += batch.nbytes
        if read >= MOST_BYTES:
            break
    return [] if best is None else [RejectedRecord(**row) for row in best.iter_rows(named=True)]


def _rewritten(table: Table, snapshot_id: int) -> Iterator[tuple[list[DataFile], list[DataFile]]]:
    """The files of each cell before a commit and after it, the smallest first."""
    snapshot = table.snapshot_by_id(snapshot_id)
    removed, added = own_files(table, snapshot) if snapshot else ([], [])
    cells: dict[Cell | None, tuple[list[DataFile], list[DataFile]]] = {}
    for place, files in enumerate((removed, added)):
        for file in files:
            cells.setdefault(cell_of(file), ([], []))[place].append(file)
    opened, read = 0, 0
    for before, after in sorted(cells.values(), key=lambda pair: file_bytes([*pair[0], *pair[1]])):
        opened, read = opened + len(before) + len(after), read + file_bytes([*before, *after])
        if opened > MOST_FILES or read > MOST_BYTES:
            return
        if after:
            yield before, after
