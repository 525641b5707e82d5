"""Whether the tables agree as of one snapshot of `raw_events`: which that is, and which snapshots of the others.

Their newest snapshots do if everything derived has taken in all that raw held at some snapshot of it, and nothing that
came later. Commits that came later may wait, as they always do while an ingest goes on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from dedup_platform.lake.snapshots import (
    ancestry,
    bucket_count,
    changes,
    changes_numbering,
    paired_duplicates,
    rewrites_only,
)
from dedup_platform.ledger.database import for_reading
from dedup_platform.ledger.facts import read_heads
from dedup_platform.ledger.ledger import Ledger
from dedup_platform.ledger.schema import BUILT, CHANGES, in_cells, of
from dedup_platform.planning.cells import Cell, grown, reach
from dedup_platform.stream import Stream
from dedup_platform.tables import DEDUPLICATED_EVENTS, DUPLICATE_EVENTS, INPUT_OF, RAW_EVENTS, all_of

MANY = 100
"""What more commits of raw brought that wait is not looked at, but only whether anything was built since the first."""


@dataclass(frozen=True)
class _Look:
    """What the ledger says at one moment of tables in which nothing derived waits for anything derived."""

    heads: Mapping[str, int]
    waits_from: int | None
    """The sequence number of the first commit of raw that is not taken in; None if all are."""
    built_up_to: int
    """That of the last commit which any cell was built from."""


def agreeing_snapshots(ledger: Ledger, stream: Stream, fingerprints: Mapping[str, str]) -> dict[str, int] | None:
    """Table -> its snapshot; None if the newest ones of the derived tables agree as of no snapshot of raw.

    `fingerprints` are those of the rules by which each derived table must be built. Reads metadata only.
    """
    if not ledger.sync(stream.name):
        return None
    with for_reading(ledger.engine).connect() as connection:
        look = _look(connection, stream.name, fingerprints)
    loaded = {name: table for name in all_of(stream) if (table := ledger.catalog.load(stream.name, name))}
    # A process whose stream file says otherwise may have folded other tables: of what waits for ours it knows nothing.
    if look is None or not loaded.keys() == look.heads.keys() == {*all_of(stream)}:
        return None
    if len(set(map(bucket_count, loaded.values()))) > 1:
        return None
    as_of = _as_of(ledger, stream, look, loaded[RAW_EVENTS])
    beside = _duplicates(loaded, look)
    if as_of is None or beside is None:
        return None
    return {RAW_EVENTS: as_of, DUPLICATE_EVENTS: beside, **{table: look.heads[table] for table in fingerprints}}


def _look(connection: sa.Connection, stream: str, fingerprints: Mapping[str, str]) -> _Look | None:
    for table, settings in fingerprints.items():
        built, source = BUILT.c.fingerprint, INPUT_OF[table]
        others = sa.exists().where(of(BUILT, stream, table), sa.or_(built < settings, built > settings))
        waits = sa.exists().where(of(CHANGES, stream, source), sa.literal(source != RAW_EVENTS))
        if connection.execute(sa.select(sa.or_(others, waits))).scalar_one():
            return None
    first = sa.select(sa.func.min(CHANGES.c.sequence)).where(of(CHANGES, stream, RAW_EVENTS))
    last = sa.select(sa.func.max(BUILT.c.input_sequence)).where(of(BUILT, stream, DEDUPLICATED_EVENTS))
    heads = {name: found.snapshot_id for name, (_, found) in read_heads(connection, stream).items()}
    return _Look(heads, connection.execute(first).scalar(), connection.execute(last).scalar() or 0)


def _as_of(ledger: Ledger, stream: Stream, look: _Look, raw: Table) -> int | None:
    """The newest snapshot of raw all of which is taken in, if nothing after it is."""
    newer: list[Snapshot] = []
    for snapshot in ancestry(raw, look.heads[RAW_EVENTS]):
        sequence = snapshot.sequence_number or 0
        if look.waits_from is None or sequence < look.waits_from:
            is_last = look.built_up_to <= sequence or _saw_nothing(ledger, stream, look, raw, newer)
            return snapshot.snapshot_id if is_last else None
        newer.append(snapshot)
    return None


def _saw_nothing(ledger: Ledger, stream: Stream, look: _Look, raw: Table, newer: Sequence[Snapshot]) -> bool:
    """Whether the cells that were built from these commits are not near any that those changed."""
    read = [snapshot for snapshot in newer if (snapshot.sequence_number or 0) <= look.built_up_to]
    if len(read) > MANY or any(map(changes_numbering, read)):
        return False
    changed = {cell: sequence for sequence, cell in sorted(_changed(raw, read), reverse=True)}
    around = reach(stream.deduplicate.window, stream.partitions.length)
    with for_reading(ledger.engine).connect() as connection:
        # What is built now must be what the look was of.
        heads = {name: found.snapshot_id for name, (_, found) in read_heads(connection, stream.name).items()}
        if any(heads.get(name) != at for name, at in look.heads.items() if name != RAW_EVENTS):
            return False
        built = list(_built(connection, stream.name, grown(changed, around)))
    return not any(
        changed.get(near, look.built_up_to + 1) <= sequence
        for cell, sequence in built
        for near in grown({cell}, around)
    )


def _changed(raw: Table, snapshots: Collection[Snapshot]) -> Iterator[tuple[int, Cell]]:
    for snapshot in snapshots:
        if not rewrites_only(snapshot):
            for change in changes(raw, snapshot):
                if change.cell is not None:
                    yield snapshot.sequence_number or 0, change.cell


def _built(connection: sa.Connection, stream: str, cells: Collection[Cell]) -> Iterator[tuple[Cell, int]]:
    query = sa.select(*BUILT.c["partition", "bucket", "input_sequence"]).where(of(BUILT, stream, DEDUPLICATED_EVENTS))
    for chosen in in_cells(BUILT, cells):
        for partition, bucket, sequence in connection.execute(query.where(chosen)):
            yield Cell(partition, bucket), sequence


def _duplicates(loaded: Mapping[str, Table], look: _Look) -> int | None:
    """The snapshot of duplicates that belongs to the events: the empty first one while none were published."""
    events, duplicates = loaded[DEDUPLICATED_EVENTS], loaded[DUPLICATE_EVENTS]
    pair = paired_duplicates(events, look.heads[DEDUPLICATED_EVENTS])
    if pair is None:
        pair = list(ancestry(duplicates))[-1].snapshot_id
    return pair if duplicates.snapshot_by_id(pair) else None
