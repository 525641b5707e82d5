"""Which further cells a recomputation must take in, so that linked cells change together (rule 9).

The rules alone: what links cells in the data is asked of whoever can read it. Pure: no Spark, no files, no clock.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dedup_platform.planning.cells import Cell, Cells, grown
from dedup_platform.planning.facts import Facts, linked_cells

Link = tuple[Cell, Cell]
Span = tuple[int, int, int]
"""Bucket, first and last partition of a session that reaches over more than one."""


@dataclass(frozen=True)
class WidenedSessions:
    """The cells to rebuild, and all cells that hold fragments of the sessions that start in them (and maybe others)."""

    cells: Cells
    read: Cells


def with_linked_keys(cells: Cells, facts: Facts, around: int, ask: Callable[[Cells], Iterable[Link]]) -> Cells:
    """These cells, and those whose verdicts must change together with theirs.

    Facts tell which neighbours can matter at all. Which of them share a key within the window, the data tell: `ask`
    says which pairs of some cells do. Where a record went, no data are left to tell where it is now and whom it had
    beaten: all cells that may be concerned go together. So do overtaken ones with what is near them, since once that is
    built by the same rules, nothing tells any more that they were overtaken.
    """
    while True:
        cells = _with_disturbed(cells, facts)
        if facts.overtaken:
            cells |= grown(cells, around) & facts.overtaken
        suspects = _suspects(facts, cells, around)
        if not suspects:
            return cells
        linked = {cell for link in ask(cells | suspects) if not cells.isdisjoint(link) for cell in link} & suspects
        if not linked:
            return cells
        cells |= linked


def with_whole_buckets(cells: Cells, facts: Facts) -> Cells:
    """These cells, and all that waits in their buckets.

    A session is in the table once, whole, if the commit that takes in a part of what changed in its bucket takes in all
    of it. A transitive closure over chains and old sessions would suffice, but is harder to prove correct.
    """
    buckets = {cell.bucket for cell in cells}
    return cells | {cell for cell in facts.pending if cell.bucket in buckets}


def with_sessions(
    changed: Cells, step: int, before: Iterable[Span], ask: Callable[[Cells], Iterable[Span]]
) -> WidenedSessions:
    """The cells spanned by sessions that touch the changed ones, as they were (`before`) and as they are.

    `changed` holds all that waits in its buckets. `ask` tells the spans of the chains that the fragments of some cells
    form. A chain is followed as far as it goes: what is read grows until every chain that matters ends inside it.
    """
    # Twice: a fragment beyond the first one tells whether a chain that comes near goes on to it.
    read = grown(changed, 2 * step)
    spanned_before = _spanned(before, changed)
    while True:
        now = list(ask(read))
        cells = changed | spanned_before | _spanned(now, changed)
        needed = grown(cells | _spanned(now, cells), step)
        if needed <= read:
            return WidenedSessions(cells, read)
        # Doubling keeps a session of a thousand partitions from being followed one partition at a time.
        step *= 2
        read |= grown(needed, step)


def _with_disturbed(cells: Cells, facts: Facts) -> Cells:
    return cells if cells.isdisjoint(facts.disturbed) else cells | facts.disturbed


def _suspects(facts: Facts, cells: Cells, around: int) -> Cells:
    if not around:
        return frozenset()
    touched = {neighbour for cell in cells for neighbour in linked_cells(cell, facts, around)}
    near = grown(cells, around)
    touching = {cell for cell in near & facts.changes.keys() if not cells.isdisjoint(linked_cells(cell, facts, around))}
    return frozenset(touched | touching | (near & facts.outdated)) - cells


def _spanned(spans: Iterable[Span], cells: Cells) -> Cells:
    """All cells of the spans that touch any of these cells."""
    partitions: dict[int, set[int]] = defaultdict(set)
    for cell in cells:
        partitions[cell.bucket].add(cell.partition)
    return frozenset(
        Cell(partition, bucket)
        for bucket, first, last in spans
        if any(partition in partitions[bucket] for partition in range(first, last + 1))
        for partition in range(first, last + 1)
    )
