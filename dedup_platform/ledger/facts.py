"""What the ledger tells: values read from its SQL tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.lateness import EPOCH, Cell, Change
from dedup_platform.ledger.schema import CELLS, CHANGES, HEADS, of


@dataclass(frozen=True)
class Head:
    """The snapshot of main up to which a table is folded; `receipt` is the newest one known."""

    snapshot_id: int
    sequence: int
    receipt: str | None
    complete: bool
    """False if a receipt of this table is lost, so that not all of its positions are known."""


@dataclass(frozen=True)
class ReadFile:
    """One generation of a file that was read; size and etag are unknown if they had to be derived from raw."""

    path: str
    generation: int
    size: int | None
    etag: str | None
    records: int


@dataclass(frozen=True)
class CellSize:
    """What a table holds in one cell."""

    rows: int
    files: int
    bytes: int


def read_heads(connection: sa.Connection, stream: str) -> dict[str, tuple[str, Head]]:
    """Table -> its UUID and head; the rows stay locked until the transaction ends."""
    query = sa.select(*HEADS.c["table", "uuid", "snapshot_id", "sequence", "receipt", "complete"])
    rows = connection.execute(query.where(HEADS.c.stream == stream).with_for_update())
    return {row[0]: (row[1], Head(*row[2:])) for row in rows}


def read_changes(connection: sa.Connection, stream: str, source: str) -> Iterator[Change]:
    """What the table built from `source` has not seen, a row each cell."""
    columns = CHANGES.c
    query = (
        sa.select(
            columns.partition,
            columns.bucket,
            sa.func.max(columns.sequence),
            sa.func.sum(columns.rows_added),
            sa.func.min(columns.committed_at),
            sa.func.max(columns.committed_at),
            sa.func.min(columns.arrival_min),
        )
        .where(of(CHANGES, stream, source))
        .group_by(columns.partition, columns.bucket)
    )
    for partition, bucket, sequence, rows, first, last, arrival in connection.execute(query):
        yield Change(
            Cell(partition, bucket), sequence, int(rows), _time(first) or EPOCH, _time(last) or EPOCH, _time(arrival)
        )


def read_arrivals(connection: sa.Connection, stream: str, pending: Iterable[Cell], around: int) -> dict[Cell, datetime]:
    """The latest arrival in each cell of raw in the partitions around the pending ones."""
    partitions = [cell.partition for cell in pending]
    if not partitions:
        return {}
    query = sa.select(CELLS.c.partition, CELLS.c.bucket, CELLS.c.arrival_max).where(
        of(CELLS, stream, tables.RAW_EVENTS),
        CELLS.c.partition.between(min(partitions) - around, max(partitions) + around),
        CELLS.c.arrival_max.is_not(None),
    )
    return {Cell(row[0], row[1]): _time(row[2]) or EPOCH for row in connection.execute(query)}


def micros(time: datetime | None) -> int | None:
    """A time as microseconds since 1970."""
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)
