"""Which further cells a recomputation must take in, so that linked cells change together (rule 9, design section 5)."""

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame, functions as F

from dedup_platform.lakehouse import Lakehouse
from dedup_platform.lateness import Cell, Facts, linked_cells, reach
from dedup_platform.settings import CATALOG
from dedup_platform.stages.cells import bucket
from dedup_platform.stages.deduplicated import linked_partitions
from dedup_platform.stages.sessions import spans, stitch_edges
from dedup_platform.stream import Stream
from dedup_platform.tables import RAW_EVENTS, SESSION_FRAGMENTS, SESSIONS

Cells = frozenset[Cell]
Span = tuple[int, int, int]
"""Bucket, first and last partition of a session that spans more than one."""


@dataclass(frozen=True)
class WidenedSessions:
    """The cells to rebuild, and all cells that hold fragments of the sessions that start in them (and maybe others)."""

    cells: Cells
    read: Cells


def grown(cells: Iterable[Cell], around: int) -> Cells:
    """These cells and those at most `around` partitions before or after them."""
    return frozenset(Cell(cell.partition + step, cell.bucket) for cell in cells for step in range(-around, around + 1))


def with_linked(lake: Lakehouse, stream: Stream, raw_snapshot: int, facts: Facts, cells: Cells) -> Cells:
    """These cells and those that share a key with them within the window, if news of the one matter to the other.

    Manifests tell which neighbours can matter at all; only if there are any is the data asked.
    """
    around = reach(stream.deduplicate.window, stream.partitions.length)
    buckets = lake.buckets(stream)
    while suspects := _suspects(facts, cells, around):
        records = lake.read(stream, RAW_EVENTS, raw_snapshot, cells | suspects)
        pairs = linked_partitions(records.withColumn("_bucket", bucket(buckets, CATALOG)), stream).collect()
        links = [{Cell(pair.earlier, pair.bucket), Cell(pair.later, pair.bucket)} for pair in pairs]
        linked = {cell for link in links if not link.isdisjoint(cells) for cell in link} & suspects
        if not linked:
            return cells
        cells |= linked
    return cells


def _suspects(facts: Facts, cells: Cells, around: int) -> Cells:
    if not around:
        return frozenset()
    touched = {neighbour for cell in cells for neighbour in linked_cells(cell, facts, around)}
    near = grown(cells, around)
    touching = {cell for cell in near & facts.changes.keys() if not cells.isdisjoint(linked_cells(cell, facts, around))}
    return frozenset(touched | touching | (near & facts.outdated)) - cells


def with_sessions(
    lake: Lakehouse, stream: Stream, fragments_snapshot: int, sessions_snapshot: int, facts: Facts, changed: Cells
) -> WidenedSessions:
    """The cells spanned by sessions that touch the changed ones, as they were and as they are.

    A chain is followed as far as it goes: what is read grows until every chain that matters ends inside it.
    """
    step = reach(stream.sessions.timeout, stream.partitions.length)
    pending = {*facts.changes, *facts.outdated}
    read = grown(changed, 2 * step)
    while True:
        fragments = lake.read(stream, SESSION_FRAGMENTS, fragments_snapshot, read)
        spanning = _with_bucket(stitch_edges(fragments, stream), lake, stream)
        now, before = _collect_spans(spanning, _overlapping(lake, stream, sessions_snapshot, changed), stream)
        cells = changed | _spanned(now, changed) | _spanned(before, changed)
        more = frozenset(cells & pending)
        needed = grown(cells | _spanned(now, cells), step)
        if more <= changed and needed <= read:
            return WidenedSessions(cells, read)
        changed |= more
        # Doubling keeps a session of a thousand partitions from being followed one partition at a time.
        step *= 2
        read |= grown(needed, step)


def _overlapping(lake: Lakehouse, stream: Stream, snapshot: int, changed: Cells) -> DataFrame:
    """The sessions of the table that lie at least partly between the first and the last of these cells."""
    first = stream.partitions.start_of(min(cell.partition for cell in changed))
    end = stream.partitions.start_of(max(cell.partition for cell in changed) + 1)
    overlapping = (F.col("started_at") < F.lit(end)) & (F.col("ended_at") >= F.lit(first))
    return _with_bucket(lake.read(stream, SESSIONS, snapshot).where(overlapping), lake, stream)


def _with_bucket(sessions: DataFrame, lake: Lakehouse, stream: Stream) -> DataFrame:
    return sessions.withColumn("_bucket", bucket(lake.buckets(stream), CATALOG))


def _collect_spans(now: DataFrame, before: DataFrame, stream: Stream) -> tuple[set[Span], set[Span]]:
    """The spans of sessions as they are and as they were, in one job."""
    marked = [spans(sessions, stream).withColumn("is_now", F.lit(sessions is now)) for sessions in (now, before)]
    found: dict[bool, set[Span]] = {True: set(), False: set()}
    for row in marked[0].unionByName(marked[1]).collect():
        found[row.is_now].add((row.bucket, row.first, row.last))
    return found[True], found[False]


def _spanned(spans_found: set[Span], cells: Cells) -> Cells:
    """All cells of the spans that touch any of these cells."""
    touching = set()
    for number, first, last in spans_found:
        span = {Cell(partition, number) for partition in range(first, last + 1)}
        if not span.isdisjoint(cells):
            touching |= span
    return frozenset(touching)
