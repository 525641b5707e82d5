"""What the ledger tells: values read from its SQL tables."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.ledger.schema import BUILT, CELLS, CHANGES, HEADS, LOST, in_cells, in_partitions, of
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.facts import Change
from dedup_platform.planning.moments import EPOCH, microseconds, utc_datetime

MANY = 10_000
"""From so many pending cells on, all cells of their partitions are looked at."""
_ROWS_AT_ONCE = 1_000
"""Row by row takes longer, and many that live at once keep Python's collector of garbage busy."""


@dataclass(frozen=True)
class Head:
    """The snapshot of main up to which a table is folded; `receipt` is the newest one known."""

    snapshot_id: int
    sequence: int
    receipt: str | None
    complete: bool
    """False if a receipt of this table is lost, so that not all of its positions are known."""


@dataclass(frozen=True)
class CellSize:
    """What a table holds in one cell."""

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True)
class TableSize:
    """What a table holds in all of its cells. Rejected records are in none."""

    cells: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0


def read_heads(connection: sa.Connection, stream: str) -> dict[str, tuple[str, Head]]:
    """Table -> its UUID and head."""
    query = sa.select(*HEADS.c["table", "uuid", "snapshot_id", "sequence", "receipt", "complete"])
    rows = connection.execute(query.where(HEADS.c.stream == stream))
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
            sa.func.max(sa.case((columns.disturbed, 1), else_=0)),
        )
        .where(of(CHANGES, stream, source))
        .group_by(columns.partition, columns.bucket)
    )
    found = connection.execute(query).yield_per(_ROWS_AT_ONCE)
    for partition, bucket, sequence, rows, first, last, arrival, disturbed in found:
        yield Change(
            Cell(partition, bucket),
            sequence,
            int(rows),
            moment(first) or EPOCH,
            moment(last) or EPOCH,
            moment(arrival),
            bool(disturbed) and source == tables.RAW_EVENTS,
        )


def read_outdated(connection: sa.Connection, stream: str, table: str, fingerprint: str) -> Iterator[Cell]:
    """The cells of a table that were built under another fingerprint than this one."""
    built = BUILT.c.fingerprint
    # An index finds what lies before a value and what lies after it, but not what differs from it.
    others = (
        sa.select(BUILT.c.partition, BUILT.c.bucket).where(of(BUILT, stream, table), other)
        for other in (built < fingerprint, built > fingerprint)
    )
    for partition, bucket in connection.execute(sa.union_all(*others)):
        yield Cell(partition, bucket)


def read_overtaken(connection: sa.Connection, stream: str, table: str, fingerprint: str, around: int) -> Iterator[Cell]:
    """Cells built under this fingerprint next to one that was built later, from newer input, under another.

    The records that came to that neighbour meanwhile were evaluated there by its rules and are pending no longer; by
    the rules of this fingerprint they may concern these cells, which have not seen them.
    """
    own, other = BUILT.alias("own"), BUILT.alias("other")
    is_own = (of(own, stream, table), own.c.fingerprint == fingerprint)
    is_other = (of(other, stream, table), other.c.fingerprint.not_in((fingerprint, f"{LOST}:{fingerprint}")))
    first = connection.execute(sa.select(sa.func.min(own.c.input_sequence)).where(*is_own)).scalar()
    last = connection.execute(sa.select(sa.func.max(other.c.input_sequence)).where(*is_other)).scalar()
    # While a change of settings is taken in, cells of the new ones are the newer ones.
    if first is None or last is None or last <= first:
        return
    near = other.c.partition.between(own.c.partition - around, own.c.partition + around)
    is_newer = other.c.input_sequence > own.c.input_sequence
    overtaking = sa.exists().where(*is_other, other.c.bucket == own.c.bucket, near, is_newer)
    for partition, bucket in connection.execute(sa.select(own.c.partition, own.c.bucket).where(*is_own, overtaking)):
        yield Cell(partition, bucket)


def read_common_fingerprint(connection: sa.Connection, stream: str, table: str, up_to: int) -> str | None:
    """The one fingerprint of all cells of a derived table that have seen all of the input up to a sequence number."""
    same = (BUILT.c.partition == CELLS.c.partition, BUILT.c.bucket == CELLS.c.bucket)
    is_built = sa.exists().where(of(BUILT, stream, table), *same)
    waiting = of(CHANGES, stream, tables.INPUT_OF[table]), CHANGES.c.sequence <= up_to
    for unproven in (sa.exists().where(of(CELLS, stream, table), ~is_built), sa.exists().where(*waiting)):
        if connection.execute(sa.select(unproven)).scalar_one():
            return None
    found = (
        connection.execute(sa.select(BUILT.c.fingerprint).where(of(BUILT, stream, table)).distinct()).scalars().all()
    )
    return found[0] if len(found) == 1 else None


def read_arrivals(connection: sa.Connection, stream: str, pending: Iterable[Cell], around: int) -> dict[Cell, datetime]:
    """The latest arrival in each cell of raw that is at most `around` partitions from a pending one."""
    cells, steps = list(pending), range(-around, around + 1)
    if len(cells) < MANY:
        chosen_cells = in_cells(CELLS, (Cell(cell.partition + step, cell.bucket) for cell in cells for step in steps))
    else:
        # Those of other buckets are not asked for, but to leave them out costs more than to read them.
        chosen_cells = in_partitions(CELLS, {cell.partition + step for cell in cells for step in steps})
    arrivals: dict[Cell, datetime] = {}
    for chosen in chosen_cells:
        query = sa.select(*CELLS.c["partition", "bucket", "arrival_max"]).where(
            of(CELLS, stream, tables.RAW_EVENTS), chosen, CELLS.c.arrival_max.is_not(None)
        )
        for partition, bucket, latest in connection.execute(query).yield_per(_ROWS_AT_ONCE):
            arrivals[Cell(partition, bucket)] = moment(latest) or EPOCH
    return arrivals


def read_arrivals_by_partition(connection: sa.Connection, stream: str) -> dict[int, datetime | None]:
    """The latest arrival in each partition of raw."""
    columns = CELLS.c
    query = sa.select(columns.partition, sa.func.max(columns.arrival_max)).where(of(CELLS, stream, tables.RAW_EVENTS))
    return {partition: moment(latest) for partition, latest in connection.execute(query.group_by(columns.partition))}


def read_sizes(
    connection: sa.Connection, stream: str, table: str, chosen: Iterable[sa.ColumnElement[bool]]
) -> dict[Cell, CellSize]:
    """What the table holds in the cells that these conditions choose."""
    query = sa.select(*CELLS.c["partition", "bucket", "rows", "files", "bytes"]).where(of(CELLS, stream, table))
    return {
        Cell(row[0], row[1]): CellSize(*row[2:]) for each in chosen for row in connection.execute(query.where(each))
    }


def micros(time: datetime | None) -> int | None:
    """A time as microseconds since 1970."""
    return None if time is None else microseconds(time)


@lru_cache(maxsize=4096)
def moment(micros: int | None) -> datetime | None:
    """A time of microseconds since 1970."""
    return None if micros is None else utc_datetime(micros)
