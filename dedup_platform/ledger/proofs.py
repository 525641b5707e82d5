"""Which cells of derived tables are proven to be up to date. Stale is what is wanted less what is proven.

Wanted is every cell of the table and of its input. A cell is proven by a receipt that names it, unless its input has
changed since. A cell with neither a pending change nor a receipt is marked as of unknown provenance (`LOST`), and so is
stale. Such cells are looked for only where some can be: after a first fold, and after a change of the bucket count.
"""

from collections.abc import Iterable, Mapping

import sqlalchemy as sa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform import tables
from dedup_platform.lake.snapshots import (
    ancestry,
    bucket_count,
    changes_numbering,
    committed_at,
    head,
    paired_duplicates,
    since,
)
from dedup_platform.ledger.facts import micros
from dedup_platform.ledger.fold import Fold
from dedup_platform.ledger.schema import BUILT, CELLS, CHANGES, CONSUMER, LOST, in_cells, is_lost, of
from dedup_platform.planning.cells import NO_ENTITY, Cell


def reconcile(
    connection: sa.Connection, stream: str, loaded: Mapping[str, Table], folds: Mapping[str, Fold | None]
) -> None:
    """Bring what is built and what changed into agreement, once folds are written."""
    if not _is_paired(loaded):
        # The duplicates that the events were published with were rolled back: nothing counts as built.
        built = of(BUILT, stream, tables.DEDUPLICATED_EVENTS)
        newest = head(loaded[tables.RAW_EVENTS]).sequence_number
        connection.execute(sa.update(BUILT).where(built).values(fingerprint=LOST, input_sequence=newest))
    for table in filter(loaded.__contains__, tables.INPUT_OF):
        source = tables.INPUT_OF[table]
        if any(fold and (fold.is_whole or fold.numbered_at) for fold in (folds[table], folds[source])):
            _prove(connection, stream, table, loaded)
    for name, fold in folds.items():
        for source, cells in fold.touched(name) if fold else ():
            _prune(connection, stream, source, cells)


def _prove(connection: sa.Connection, stream: str, table: str, loaded: Mapping[str, Table]) -> None:
    source = tables.INPUT_OF[table]
    if bucket_count(loaded[table]) != bucket_count(loaded[source]):
        return  # a change of the number of buckets is under way: its last commit is folded later
    newest = next(filter(changes_numbering, ancestry(loaded[source])), None)
    if newest is not None:
        # What was said before is of the cells of another number of buckets.
        sequence = newest.sequence_number or 0
        connection.execute(sa.delete(CHANGES).where(of(CHANGES, stream, source), CHANGES.c.sequence < sequence))
        connection.execute(sa.delete(BUILT).where(of(BUILT, stream, table), BUILT.c.input_sequence < sequence))
    _add_emptied(connection, stream, table, head(loaded[source]))
    _lose(connection, stream, table, head(loaded[source]).sequence_number or 0)


def _lose(connection: sa.Connection, stream: str, table: str, newest: int) -> None:
    """Mark cells of which nothing is known as of unknown provenance; `newest`: the sequence number of their input."""
    source = tables.INPUT_OF[table]
    place = CELLS.c["partition", "bucket"]
    # Events without an entity are in no session.
    is_wanted = sa.true() if source == tables.RAW_EVENTS else CELLS.c.bucket != NO_ENTITY
    wanted = sa.select(sa.literal(stream), sa.literal(table), *place, sa.literal(newest), sa.literal(LOST)).distinct()
    unknown = wanted.where(
        CELLS.c.stream == stream,
        CELLS.c.table.in_((source, table)),
        is_wanted,
        ~_known(BUILT, stream, table),
        ~_known(CHANGES, stream, source),
    )
    connection.execute(sa.insert(BUILT).from_select([column.name for column in BUILT.c], unknown))


def _add_emptied(connection: sa.Connection, stream: str, table: str, newest: Snapshot) -> None:
    """Let cells of a table's input have changed that have none of the rows it was built from, whatever tells of it.

    Records of raw went to other cells, and are judged anew together with what is there.
    """
    source = tables.INPUT_OF[table]
    made = (table, tables.DUPLICATE_EVENTS) if source == tables.RAW_EVENTS else (table,)
    at, sequence = micros(committed_at(newest)), newest.sequence_number or 0
    # Postgres takes a null without a type for text.
    no_arrival = sa.cast(sa.null(), CHANGES.c.arrival_min.type)
    values = (sa.literal(sequence), sa.literal(at), sa.literal(0), no_arrival, sa.true())
    place = sa.literal(stream), sa.literal(source), *CELLS.c["partition", "bucket"]
    emptied = sa.select(*place, *values).where(
        CELLS.c.stream == stream,
        CELLS.c.table.in_(made),
        ~_known(CELLS.alias(), stream, source),
        ~_known(CHANGES, stream, source),
    )
    connection.execute(sa.insert(CHANGES).from_select([column.name for column in CHANGES.c], emptied.distinct()))


def _known(table: sa.FromClause, stream: str, name: str) -> sa.Exists:
    same = (table.c.partition == CELLS.c.partition, table.c.bucket == CELLS.c.bucket)
    return sa.exists().where(of(table, stream, name), *same)


def _prune(connection: sa.Connection, stream: str, source: str, cells: Iterable[Cell]) -> None:
    """Take out the changes to these cells of an input that whatever is built from them has seen."""
    seen = sa.exists().where(
        of(BUILT, stream, CONSUMER[source]),
        BUILT.c.partition == CHANGES.c.partition,
        BUILT.c.bucket == CHANGES.c.bucket,
        BUILT.c.input_sequence >= CHANGES.c.sequence,
        # It is not known what a lost cell has seen.
        ~is_lost(BUILT),
    )
    for chosen in in_cells(CHANGES, cells):
        connection.execute(sa.delete(CHANGES).where(of(CHANGES, stream, source), chosen, seen))


def _is_paired(loaded: Mapping[str, Table]) -> bool:
    """Whether the duplicates that the newest events name are in the history of `duplicate_events`."""
    pair = paired_duplicates(loaded[tables.DEDUPLICATED_EVENTS])
    return pair is None or since(loaded[tables.DUPLICATE_EVENTS], pair)[1]
