"""What the ledger knows about a derived table and its input: the facts that plans are made of. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from dedup_platform.planning.cells import Cell, neighbours


class Change(NamedTuple):
    """What the commits that a derived cell has not seen yet did to one cell of its input."""

    cell: Cell
    sequence: int
    """Sequence number of the newest of these commits."""
    rows_added: int
    first_commit: datetime
    last_commit: datetime
    arrival_min: datetime | None = None
    """Earliest arrival among the new rows; None where the input does not tell."""
    disturbed: bool = False
    """Whether rows may have been removed that were in the cell, or that had beaten one of its own: a verdict may change
    without a new row."""


@dataclass(frozen=True)
class Facts:
    """All that the ledger knows about one derived table and its input at one moment."""

    stream: str
    table: str
    changes: Mapping[Cell, Change]
    outdated: frozenset[Cell]
    """Cells that were built with other settings or by an older version of the rule, and the overtaken ones."""
    fingerprint: str
    arrival_max: Mapping[Cell, datetime] = field(default_factory=dict)
    """Latest arrival in each cell of the input near a changed one (only where `reach` > 0)."""
    overtaken: frozenset[Cell] = frozenset()
    """Cells built with the current settings next to one that was built later with others: the records that came to that
    one meanwhile were never evaluated here under the current settings."""
    reach: int = 0
    """Partitions on either side of a cell that a record of it can beat or be beaten in."""

    @cached_property
    def arrival_min(self) -> Mapping[Cell, datetime]:
        """Earliest arrival among the new rows of each changed cell, where the input tells."""
        return {cell: change.arrival_min for cell, change in self.changes.items() if change.arrival_min is not None}

    @property
    def pending(self) -> frozenset[Cell]:
        """All cells that are stale for themselves; others may be linked to them."""
        return self.outdated | self.changes.keys()

    @cached_property
    def disturbed(self) -> frozenset[Cell]:
        """Cells that go together: records were removed from them or moved between them, or may have beaten theirs.

        How far a removed record reached follows from the current window, not from that of whoever removed it.
        """
        changed = {cell for cell, change in self.changes.items() if change.disturbed}
        near = {other for cell in changed for other in neighbours(cell, self.reach) if other in self.arrival_max}
        return frozenset(changed | near)


def linked_cells(cell: Cell, facts: Facts, cells_around: int) -> Iterator[Cell]:
    """The cells of the same bucket in which a waiting record of this cell can change a verdict.

    A newcomer cannot beat what arrived before it, so only cells with an arrival at or after its own count.
    """
    first, latest = facts.arrival_min.get(cell), facts.arrival_max
    if first is not None:
        yield from (each for each in neighbours(cell, cells_around) if each in latest and first <= latest[each])
