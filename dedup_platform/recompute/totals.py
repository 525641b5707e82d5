"""What receipts carry on of a whole table: how many events its rows count, and how far its sessions reach.

Where no receipt tells, because it is lost or older than the question, the data files do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.types import TimestamptzType

from dedup_platform.lake.lakehouse import Lakehouse
from dedup_platform.lake.snapshots import files_by_cell
from dedup_platform.ledger import Head
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.recompute.chunks import CellFiles, Chunk, chunks_of_cells
from dedup_platform.recompute.receipts import newest_receipt
from dedup_platform.recompute.tasks import Store, gather
from dedup_platform.stream import Stream
from dedup_platform.tables import SESSIONS


@dataclass(frozen=True)
class Counting:
    """Counts the events in the fragments or sessions of each chunk."""

    table: str

    def __call__(self, chunk: Chunk, store: Store) -> Iterator[int]:
        """One number for each cell."""
        return (store.count_events(self.table, files) for files in chunk.cells.values())


def count_events(lake: Lakehouse, stream: Stream, table: str, files: CellFiles) -> int:
    """The events in the fragments or sessions of these files, counted."""
    files_of_table = {table: lake.table_files(stream, table)}
    return sum(gather(lake.spark(), chunks_of_cells(files, files, {}), Counting(table), files_of_table))


def total_events(lake: Lakehouse, stream: Stream, table: str, head: Head, recount: bool = False) -> int:
    """The events in all fragments or sessions of the newest snapshot; with `recount`, whatever the receipt says."""
    receipt = newest_receipt(lake.catalog, stream.name, head)
    if receipt and receipt.events is not None and not recount:
        return receipt.events
    return count_events(
        lake, stream, table, files_by_cell(lake.catalog.load_table(stream.name, table), head.snapshot_id)
    )


def longest_reach(lake: Lakehouse, stream: Stream, head: Head) -> int:
    """At most so many partitions does any session of the newest snapshot go on beyond the one that it starts in."""
    receipt = newest_receipt(lake.catalog, stream.name, head)
    if receipt and receipt.longest_reach is not None:
        return receipt.longest_reach
    loaded = lake.catalog.load_table(stream.name, SESSIONS)
    ended_at, length = loaded.schema().find_field("ended_at").field_id, stream.partitions.length
    return max(
        (
            int(from_bytes(TimestamptzType(), file.upper_bounds[ended_at])) // in_microseconds(length) - cell.partition
            for cell, files in files_by_cell(loaded, head.snapshot_id).items()
            for file in files
        ),
        default=0,
    )
