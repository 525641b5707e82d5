"""What becomes of facts about tables that are there no more: nothing else folds them away."""

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.ledger.schema import BUILT, CELLS, CHANGES, HEADS, METADATA, UNTOLD, of


def forget(connection: sa.Connection, stream: str) -> None:
    """Forget all facts about a stream."""
    for table in METADATA.sorted_tables:
        connection.execute(sa.delete(table).where(table.c.stream == stream))


def forget_table(connection: sa.Connection, stream: str, name: str) -> None:
    """Forget a derived table that the stream has no longer, and what waits for it: nobody folds that any more."""
    for table in (HEADS, CELLS, CHANGES, BUILT, UNTOLD):
        connection.execute(sa.delete(table).where(of(table, stream, name)))
    connection.execute(sa.delete(CHANGES).where(of(CHANGES, stream, tables.INPUT_OF[name])))
