"""The figures of partitions: one door to them, so that metadata, checks, commands and reports tell the same.

All are of the whole partition as its tables are now. They are sums over cells of what was counted when those were
built; where that is not kept (the control database is new, or somebody else wrote the cell), one column of it is read.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dedup_platform import tables
from dedup_platform.lake.snapshots import files_by_cell
from dedup_platform.ledger import KeptFigures, TableSize
from dedup_platform.planning.figures import NO_FIGURES, CellFigures, Lateness, added_up
from dedup_platform.platform.context import Context
from dedup_platform.recompute.chunks import file_bytes
from dedup_platform.recompute.figures import read_figures, rejected_by_arrival
from dedup_platform.recompute.rebuilt import count_rows
from dedup_platform.stream import Stream

PERCENTILES = (50, 95, 99)
_NOTHING = TableSize()


@dataclass(frozen=True)
class PartitionFigures:
    """What the tables hold in one partition (docs/semantics.md, "Figures of a partition")."""

    sizes: Mapping[str, TableSize] = field(default_factory=dict)
    """What each table holds; one that holds nothing here may be left out."""
    counted: CellFigures = NO_FIGURES
    rejected: int = 0
    """Rejected records that arrived in the time of the partition, where somebody asked: they have no event time."""

    def rows(self, table: str) -> int:
        """The rows of a table."""
        return self.sizes.get(table, _NOTHING).rows

    def cells(self, table: str) -> int:
        """The cells in which a table has rows."""
        return self.sizes.get(table, _NOTHING).cells

    @property
    def conflicts(self) -> int:
        """Duplicates that differ from the record that beats them in a typed column."""
        return self.counted.conflicts

    @property
    def copies(self) -> int:
        """The other duplicates."""
        return self.rows(tables.DUPLICATE_EVENTS) - self.conflicts

    @property
    def late(self) -> Lateness:
        """The late ones of the deduplicated events."""
        return self.counted.lateness

    def lateness(self) -> dict[str, float | None]:
        """How many events are late and how late they are, in seconds; without any late one no percentile is known."""
        return {
            "late_rows": self.late.events,
            "longest_lateness_seconds": self.late.longest.total_seconds(),
            **{f"lateness_p{percent}_seconds": self.late.percentile(percent) for percent in PERCENTILES},
        }

    def plain(self) -> dict[str, float | None]:
        """All of them, by the names that programs know them by."""
        return {
            "records": self.rows(tables.RAW_EVENTS),
            "events": self.rows(tables.DEDUPLICATED_EVENTS),
            "copies": self.copies,
            "conflicts": self.conflicts,
            **self.lateness(),
            "rejected": self.rejected,
            "sessions": self.rows(tables.SESSIONS),
        }


def total(figures: Iterable[PartitionFigures]) -> PartitionFigures:
    """The figures of several partitions together."""
    each = list(figures)
    sizes = {table: _sum([one.sizes[table] for one in each if table in one.sizes]) for table in tables.ALL}
    return PartitionFigures(sizes, added_up(one.counted for one in each), sum(one.rejected for one in each))


def _sum(sizes: Sequence[TableSize]) -> TableSize:
    cells, rows = sum(each.cells for each in sizes), sum(each.rows for each in sizes)
    return TableSize(cells, rows, sum(each.files for each in sizes), sum(each.bytes for each in sizes))


class Figures:
    """The figures of the partitions of a platform's streams. From metadata and single columns; needs no Spark."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._kept = KeptFigures(context.ledger)

    def of(self, stream: str, partitions: Collection[int] | None = None) -> dict[int, PartitionFigures]:
        """Ordinal -> figures: of all partitions that hold rows, or of just these. Empty before there are tables."""
        definition = self._context.stream(stream)
        heads = self._context.ledger.sync(stream)
        if not heads:
            return {}
        sizes = self._kept.sizes(stream, partitions)
        counted = {
            table: self._counted(definition, table, heads[table].snapshot_id, partitions) for table in tables.FIGURED
        }
        for partition, (size, figures) in self._paired(definition, partitions).items():
            sizes.setdefault(partition, {})[tables.DUPLICATE_EVENTS] = size
            counted[tables.DUPLICATE_EVENTS][partition] = figures
        return {
            partition: PartitionFigures(
                sizes.get(partition, {}), added_up(each[partition] for each in counted.values() if partition in each)
            )
            for partition in sorted(sizes if partitions is None else partitions)
        }

    def of_all(self, stream: str) -> dict[int, PartitionFigures]:
        """Ordinal -> figures of all partitions that hold rows, or in whose time rejected records arrived."""
        held, heads = self.of(stream), self._context.ledger.sync(stream)
        if not heads:
            return {}
        head, nothing = heads[tables.RAW_EVENTS].snapshot_id, PartitionFigures()
        rejected = rejected_by_arrival(self._context.lake, self._context.stream(stream), head)
        return {
            partition: replace(held.get(partition, nothing), rejected=rejected[partition])
            for partition in sorted({*held, *rejected})
        }

    def _counted(
        self, stream: Stream, table: str, snapshot_id: int, partitions: Collection[int] | None
    ) -> dict[int, CellFigures]:
        kept, unknown = self._kept.of_partitions(stream, table, partitions)
        if not unknown:
            return kept
        read = read_figures(self._context.lake, stream, table, snapshot_id, unknown)
        self._kept.keep(stream, table, snapshot_id, read)
        found = {partition: [each] for partition, each in kept.items()}
        for cell, each in read.items():
            found.setdefault(cell.partition, []).append(each)
        return {partition: added_up(cells) for partition, cells in found.items()}

    def _paired(self, stream: Stream, partitions: Collection[int] | None) -> dict[int, tuple[TableSize, CellFigures]]:
        """Duplicates as readers see them, in partitions in which newer ones wait for the events that belong to them."""
        lake, table = self._context.lake, tables.DUPLICATE_EVENTS
        changed = {cell.partition for cell in lake.unpaired_cells(stream)}
        wanted = changed if partitions is None else changed.intersection(partitions)
        if not wanted:
            return {}
        pair = lake.current(stream, table)
        # All manifests are read: it is rare that somebody looks, or died, between the two commits.
        found_in = files_by_cell(lake.catalog.load_table(stream.name, table), pair)
        files = {cell: found for cell, found in found_in.items() if cell.partition in wanted}
        figures = read_figures(lake, stream, table, pair, files)
        found = {}
        for partition in wanted:
            cells = [cell for cell in files if cell.partition == partition]
            inside = [file for cell in cells for file in files[cell]]
            size = TableSize(len(cells), count_rows(inside), len(inside), file_bytes(inside))
            found[partition] = (size, added_up(figures[cell] for cell in cells))
        return found
