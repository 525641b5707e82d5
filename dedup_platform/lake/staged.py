"""What was written but is not published yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dedup_platform.lake.snapshots import FileChange
from dedup_platform.planning.cells import Cell

STAGING = "staged_"
"""Prefix of the branches that rows are written to before they are published."""


@dataclass(frozen=True)
class Staged:
    """Rows that are written but not published: the snapshot that would become main's, and what it changes."""

    stream: str
    table: str
    branch: str
    base: int
    snapshot_id: int
    changes: tuple[FileChange, ...]
    spec_id: int | None = None
    """The partitioning that becomes the table's in the same commit; None if it stays."""
    written_in: frozenset[int] = frozenset()
    """The partitionings that the new files were written in: each must still be the table's when they are published."""
    token: int | None = None
    """Of the claim under which it was written; None if it was under none."""
    table_properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that the table gets in the same commit; it keeps them wherever main is moved later."""

    @property
    def rows_added(self) -> int:
        """Rows in the files that the snapshot adds."""
        return sum(change.rows for change in self.changes if change.sign > 0)

    @property
    def bytes_added(self) -> int:
        """Bytes of these files."""
        return sum(change.bytes for change in self.changes if change.sign > 0)

    def rows_by_cell(self) -> dict[Cell, int]:
        """Rows added to each cell; rejected rows are in none."""
        rows: dict[Cell, int] = {}
        for change in self.changes:
            if change.sign > 0 and change.cell is not None:
                rows[change.cell] = rows.get(change.cell, 0) + change.rows
        return rows
