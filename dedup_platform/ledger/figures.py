"""What was counted of cells' rows, kept beside the facts: figures of a partition are sums, and need not read its rows.

Nothing here is a fact: it can be counted again from the rows of the cell at any time. The fold forgets it where rows
change.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from dedup_platform.ledger.database import for_reading, lock
from dedup_platform.ledger.facts import TableSize, read_heads
from dedup_platform.ledger.ledger import Ledger
from dedup_platform.ledger.schema import CELLS, FIGURES, in_cells, in_partitions, of
from dedup_platform.planning.cells import Cell
from dedup_platform.planning.figures import CellFigures, Lateness, added_up
from dedup_platform.planning.moments import in_microseconds
from dedup_platform.stream import Stream
from dedup_platform.tables import ALL, DEDUPLICATED_EVENTS


class KeptFigures:
    """The figures of cells that are known without reading rows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def sizes(self, stream: str, partitions: Collection[int] | None = None) -> dict[int, dict[str, TableSize]]:
        """What each table holds in each partition, of all or of these; without the tables that hold nothing there."""
        columns = CELLS.c
        sums = (sa.func.sum(column) for column in (columns.rows, columns.files, columns.bytes))
        # Named, although they are all of them, so that the key of the table answers for few partitions.
        of_tables = (columns.stream == stream, columns.table.in_(ALL))
        query = sa.select(columns.partition, columns.table, sa.func.count(), *sums).where(*of_tables)
        found: dict[int, dict[str, TableSize]] = {}
        with for_reading(self._ledger.engine).connect() as connection:
            for chosen in _in(partitions):
                grouped = query.where(chosen).group_by(columns.partition, columns.table)
                for partition, table, *sizes in connection.execute(grouped):
                    found.setdefault(partition, {})[table] = TableSize(*map(int, sizes))
        return found

    def of_partitions(
        self, stream: Stream, table: str, partitions: Collection[int] | None = None
    ) -> tuple[dict[int, CellFigures], list[Cell]]:
        """The kept figures of each partition, of all or of these, and the cells with rows of which none are kept."""
        here = (FIGURES.c.partition == CELLS.c.partition, FIGURES.c.bucket == CELLS.c.bucket)
        kept = sa.and_(of(FIGURES, stream.name, table), *here, FIGURES.c.grace == _grace(stream, table))
        columns = (*CELLS.c["partition", "bucket"], *FIGURES.c["grace", "conflicts", "longest", "late"])
        query = sa.select(*columns).select_from(CELLS.outerjoin(FIGURES, kept)).where(of(CELLS, stream.name, table))
        # Most cells have nothing to tell, and of a million of them that would take a second.
        tells = sa.or_(FIGURES.c.grace.is_(None), FIGURES.c.conflicts > 0, FIGURES.c.late.is_not(None))
        found: dict[int, list[CellFigures]] = {}
        unknown = []
        with for_reading(self._ledger.engine).connect() as connection:
            for chosen in _in(partitions):
                for partition, bucket, known, *told in connection.execute(query.where(tells, chosen)):
                    if known is None:
                        unknown.append(Cell(partition, bucket))
                    else:
                        found.setdefault(partition, []).append(_figures(*told))
        return {partition: added_up(cells) for partition, cells in found.items()}, sorted(unknown)

    def keep(self, stream: Stream, table: str, snapshot_id: int, figures: Mapping[Cell, CellFigures]) -> None:
        """Keep what was counted of cells in one snapshot, unless the fold has gone on from it."""
        if not figures:
            return
        common = {"stream": stream.name, "table": table, "grace": _grace(stream, table)}
        rows = [common | _row(cell, each) for cell, each in figures.items()]
        with self._ledger.engine.begin() as connection:
            lock(connection, stream.name)
            _, folded = read_heads(connection, stream.name).get(table, (None, None))
            if folded is not None and folded.snapshot_id == snapshot_id:
                for chosen in in_cells(FIGURES, figures):
                    connection.execute(sa.delete(FIGURES).where(of(FIGURES, stream.name, table), chosen))
                connection.execute(sa.insert(FIGURES), rows)


def _in(partitions: Collection[int] | None) -> Iterable[sa.ColumnElement[bool]]:
    return [sa.true()] if partitions is None else in_partitions(CELLS, partitions)


def _grace(stream: Stream, table: str) -> int:
    """In microseconds, by which events are late; 0 where nothing depends on it."""
    return in_microseconds(stream.late.grace) if table == DEDUPLICATED_EVENTS else 0


def _row(cell: Cell, figures: CellFigures) -> dict[str, Any]:
    late = figures.lateness
    return {
        "partition": cell.partition,
        "bucket": cell.bucket,
        "conflicts": figures.conflicts,
        "longest": in_microseconds(late.longest),
        "late": json.dumps([*late.seconds.items()], separators=(",", ":")) if late.seconds else None,
    }


def _figures(conflicts: int, longest: int, late: str | None) -> CellFigures:
    return CellFigures(conflicts, Lateness(dict(json.loads(late)) if late else {}, timedelta(microseconds=longest)))
