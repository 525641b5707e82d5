"""The cells of one table after the work on them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from pyiceberg.manifest import DataFile

from dedup_platform.lake.staged import Staged
from dedup_platform.planning.cells import Cell, Cells
from dedup_platform.planning.figures import CellFigures, added_up
from dedup_platform.recompute.chunks import CellFiles
from dedup_platform.recompute.tasks import CellResult


@dataclass(frozen=True)
class Rebuilt:
    """The cells of one table after the work on them: what changed, and the files to take away and to add."""

    table: str
    cells: tuple[CellResult, ...]
    old: CellFiles

    @classmethod
    def of(cls, table: str, written: Iterable[CellResult], old: CellFiles) -> "Rebuilt":
        """This table's part of what was written."""
        return cls(table, tuple(each for each in written if each.table == table), old)

    @cached_property
    def changed(self) -> Cells:
        """The cells whose rows differ from before."""
        return frozenset(each.cell for each in self.cells if each.is_changed)

    @property
    def removed(self) -> list[DataFile]:
        """The old files of the changed cells."""
        return [file for cell in self.changed for file in self.old.get(cell, ())]

    @property
    def added(self) -> list[DataFile]:
        """The new files of the changed cells."""
        return [each.file for each in self.cells if each.file and each.cell in self.changed]

    def count_events(self) -> tuple[int, int]:
        """The events in the changed cells of a table of fragments, before and after."""
        changed = [each for each in self.cells if each.is_changed]
        return sum(each.events_before for each in changed), sum(each.events_after for each in changed)

    def rows_after(self, staged: Staged | None) -> dict[Cell, int]:
        """Rows in each cell once `staged` is published, which holds what changed."""
        unchanged = {cell: count_rows(files) for cell, files in self.old.items() if cell not in self.changed}
        return unchanged | (staged.rows_by_cell() if staged else {})

    def figures(self) -> dict[Cell, CellFigures]:
        """What was counted of the rows of each cell, of all its shares together."""
        shares: dict[Cell, list[CellFigures]] = {}
        for each in self.cells:
            shares.setdefault(each.cell, []).append(each.figures)
        return {cell: added_up(found) for cell, found in shares.items()}


def count_rows(files: Iterable[DataFile]) -> int:
    """The rows in some files together."""
    return sum(file.record_count for file in files)
