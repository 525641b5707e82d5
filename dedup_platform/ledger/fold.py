"""One step of the fold: gather what snapshots and receipts say, then write it in one transaction."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from dedup_platform import tables
from dedup_platform.lake.receipts import Acceptance, BuildReceipt, ReadFile
from dedup_platform.lake.snapshots import FileChange
from dedup_platform.ledger.facts import micros
from dedup_platform.ledger.schema import (
    ACCEPTED,
    BUILT,
    CELLS,
    CHANGES,
    CONSUMER,
    FIGURES,
    FILES,
    LOST,
    UNTOLD,
    in_cells,
    of,
)
from dedup_platform.planning.cells import NO_ENTITY, Cell

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Proof:
    """From which commit of the input and by which rules some cells of a derived table are built, if that is known."""

    input_sequence: int
    fingerprint: str
    cells: Collection[Cell]
    replaces_all: bool = False
    """Whether what was said before of any cell holds no longer: the number of buckets or the duplicates are others."""
    is_foreign: bool = False
    """Whether a foreign writer changed these cells: the input that they were built from is still the same."""

    @classmethod
    def of(cls, receipt: BuildReceipt) -> "Proof":
        """What a receipt says."""
        return cls(receipt.input.sequence, receipt.fingerprint, receipt.checked, receipt.buckets is not None)


@dataclass(frozen=True)
class FilesTold:
    """Files that were read, and those that people accepted."""

    files: Sequence[ReadFile] = ()
    accepted: Sequence[Acceptance] = ()


Told = Proof | FilesTold


@dataclass
class Size:
    """How snapshots changed what a cell holds."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    arrival_max: int | None = None


@dataclass
class CellChange:
    """What one snapshot brought to one cell."""

    committed_at: int
    rows_added: int = 0
    arrival_min: int | None = None
    disturbed: bool = False
    """Whether rows went that were in the cell, or may have beaten one of its own."""


@dataclass
class Fold:
    """The facts of some snapshots of one table, gathered before they are written."""

    sizes: dict[Cell, Size] = field(default_factory=dict)
    cell_changes: dict[tuple[Cell, int], CellChange] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    """What receipts say, oldest first, and which cells no receipt speaks for."""
    newest_receipt: str | None = None
    complete: bool = True
    is_whole: bool = False
    """Whether nothing of the table was folded before."""
    numbered_at: int = 0
    """The sequence number of the snapshot that gave it another number of buckets: its cells are others since."""
    emptied_without_receipt: dict[tuple[int, datetime], frozenset[int]] = field(default_factory=dict)
    """Sequence number and time of snapshots that removed rows without a receipt -> the buckets that lost some."""

    def add(self, change: FileChange, sequence: int, at: datetime) -> None:
        """Take in one data file that a snapshot added or took away."""
        if change.cell is None:
            return
        self.resize(change)
        cell_changes = self.change_of(change.cell, sequence, at)
        cell_changes.rows_added += change.rows if change.sign > 0 else 0
        # What goes matters as far as what comes: it beats no longer what arrived after it.
        cell_changes.arrival_min = _earliest(cell_changes.arrival_min, micros(change.arrival_min))
        cell_changes.disturbed |= change.sign < 0

    def change_of(self, cell: Cell, sequence: int, at: datetime) -> CellChange:
        """What a snapshot brought to a cell, to be filled in; without anything, that it changed the cell."""
        return self.cell_changes.setdefault((cell, sequence), CellChange(micros(at) or 0))

    def disturb(self, cells: Iterable[Cell], sequence: int, at: datetime) -> None:
        """Let a snapshot have disturbed these cells, whatever else it brought to them."""
        for cell in cells:
            self.change_of(cell, sequence, at).disturbed = True

    def resize(self, change: FileChange) -> None:
        """Take in one data file that holds no news: a compaction changes what a cell is made of, not what it says."""
        if change.cell is None:
            return
        size = self.sizes.setdefault(change.cell, Size())
        size.rows += change.sign * change.rows
        size.files += change.sign
        size.bytes += change.sign * change.bytes
        size.arrival_max = _latest(size.arrival_max, micros(change.arrival_max))

    @property
    def proofs(self) -> list[Proof]:
        """What is told of how cells were built, oldest first."""
        return [each for each in self.told if isinstance(each, Proof)]

    def write(self, connection: sa.Connection, stream: str, name: str, beside: Collection[str]) -> None:
        """Add everything to the SQL tables. What waits for a table that is not among those `beside`, nobody asks."""
        held = self._write_sizes(connection, stream, name)
        if name in tables.FIGURED:
            self._forget_figures(connection, stream, name)
        if name in CONSUMER:
            self._disturb_emptied(connection, stream, name)
            if CONSUMER[name] in beside:
                self._write_news(connection, stream, name)
            self._write_untold(connection, stream, name, held)
        if name == tables.RAW_EVENTS:
            _write_files(connection, stream, self.told)
        elif name in tables.INPUT_OF:
            _write_built(connection, stream, name, self.proofs)

    def touched(self, name: str) -> Iterator[tuple[str, set[Cell]]]:
        """Input tables and their cells of which something came or was seen, so that changes may be told no longer."""
        if name in CONSUMER:
            yield name, {cell for cell, _ in self.cell_changes}
        if name in tables.INPUT_OF:
            yield tables.INPUT_OF[name], {cell for proof in self.proofs for cell in proof.cells}

    def _write_sizes(self, connection: sa.Connection, stream: str, name: str) -> set[Cell]:
        """Returns which of the cells hold files now."""
        known = _read_known(connection, stream, name, self.sizes)
        rows = []
        for cell, size in self.sizes.items():
            old = known.get(cell, Size())
            if old.files + size.files:
                values = {
                    "rows": old.rows + size.rows,
                    "files": old.files + size.files,
                    "bytes": old.bytes + size.bytes,
                    "arrival_max": _latest(old.arrival_max, size.arrival_max),
                }
                rows.append(_place(stream, name, cell) | values)
        _delete(connection, CELLS, [_place(stream, name, cell) for cell in known])
        _insert(connection, CELLS, rows)
        return {Cell(row["partition"], row["bucket"]) for row in rows}

    def _forget_figures(self, connection: sa.Connection, stream: str, name: str) -> None:
        """What was counted of cells holds no longer where their rows changed; a compaction leaves them as they are."""
        if self.numbered_at:
            connection.execute(sa.delete(FIGURES).where(of(FIGURES, stream, name)))
        else:
            changed = {cell for cell, _ in self.cell_changes}
            _delete(connection, FIGURES, [_place(stream, name, cell) for cell in changed])

    def _disturb_emptied(self, connection: sa.Connection, stream: str, name: str) -> None:
        """Which other cells the removed rows concerned is unknown: all cells of their buckets are evaluated again."""
        for (sequence, at), buckets in self.emptied_without_receipt.items():
            query = sa.select(*CELLS.c["partition", "bucket"]).where(of(CELLS, stream, name))
            cells = connection.execute(query.where(CELLS.c.bucket.in_(buckets)))
            self.disturb((Cell(*row) for row in cells), sequence, at)

    def _write_news(self, connection: sa.Connection, stream: str, name: str) -> None:
        # Events without an entity are in no session, so nothing is built from their cells of deduplicated events.
        rows = [
            _place(stream, name, cell) | {"sequence": sequence} | vars(cell_changes)
            for (cell, sequence), cell_changes in self.cell_changes.items()
            if cell.bucket != NO_ENTITY or name == tables.RAW_EVENTS
        ]
        _insert(connection, CHANGES, rows)

    def _write_untold(self, connection: sa.Connection, stream: str, name: str, held: Collection[Cell]) -> None:
        if self.numbered_at:
            connection.execute(sa.delete(UNTOLD).where(of(UNTOLD, stream, name)))
        rows: dict[Cell, dict[str, Any]] = {}
        for (cell, sequence), cell_changes in sorted(self.cell_changes.items(), key=lambda each: each[0][1]):
            is_disturbed = cell_changes.disturbed and name == tables.RAW_EVENTS
            if sequence > self.numbered_at and (is_disturbed or cell not in held):
                told = {"sequence": sequence, "committed_at": cell_changes.committed_at, "disturbed": is_disturbed}
                rows[cell] = _place(stream, name, cell) | told
        _replace(connection, UNTOLD, list(rows.values()))


def _read_known(connection: sa.Connection, stream: str, name: str, cells: Iterable[Cell]) -> dict[Cell, Size]:
    query = sa.select(*CELLS.c["partition", "bucket", "rows", "files", "bytes", "arrival_max"])
    return {
        Cell(row[0], row[1]): Size(*row[2:])
        for chosen in in_cells(CELLS, cells)
        for row in connection.execute(query.where(of(CELLS, stream, name), chosen))
    }


def _write_built(connection: sa.Connection, stream: str, name: str, proofs: Iterable[Proof]) -> None:
    built: dict[Cell, dict[str, Any]] = {}
    for proof in proofs:
        if proof.replaces_all:
            connection.execute(sa.delete(BUILT).where(of(BUILT, stream, name)))
            built.clear()
        values = {"input_sequence": proof.input_sequence, "fingerprint": proof.fingerprint}
        found = dict.fromkeys(proof.cells, values)
        if proof.is_foreign:
            known = _read_built(connection, stream, name, proof.cells) | {
                cell: built[cell] for cell in proof.cells if cell in built
            }
            found |= {cell: before | {"fingerprint": _lost(before["fingerprint"])} for cell, before in known.items()}
        built |= found
    _replace(connection, BUILT, [_place(stream, name, cell) | values for cell, values in built.items()])


def _read_built(connection: sa.Connection, stream: str, name: str, cells: Iterable[Cell]) -> dict[Cell, dict[str, Any]]:
    """How each of these cells was built, so far as it is known."""
    query = sa.select(*BUILT.c["partition", "bucket", "input_sequence", "fingerprint"]).where(of(BUILT, stream, name))
    rows = (row for chosen in in_cells(BUILT, cells) for row in connection.execute(query.where(chosen)))
    return {Cell(row[0], row[1]): {"input_sequence": row[2], "fingerprint": row[3]} for row in rows}


def _lost(fingerprint: str) -> str:
    return fingerprint if fingerprint.startswith(LOST) else f"{LOST}:{fingerprint}"


def _write_files(connection: sa.Connection, stream: str, told: Iterable[Told]) -> None:
    positions = [each for each in told if isinstance(each, FilesTold)]
    files = {(file.path, file.generation): file for each in positions for file in each.files}
    accepted = dict.fromkeys(file for each in positions for file in each.accepted)
    _replace(connection, FILES, [{"stream": stream, **vars(file)} for file in files.values()])
    _replace(connection, ACCEPTED, [{"stream": stream, **vars(file)} for file in accepted])


def _replace(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    """Put these rows in the place of those that have the same keys."""
    _delete(connection, table, rows)
    _insert(connection, table, rows)


def _delete(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    """Delete the rows that have the same keys as these."""
    keys = [column.name for column in table.primary_key]
    statement = sa.delete(table).where(*(table.c[key] == sa.bindparam(f"old_{key}") for key in keys))
    if rows:
        connection.execute(statement, [{f"old_{key}": row[key] for key in keys} for row in rows])


def _insert(connection: sa.Connection, table: sa.Table, rows: Rows) -> None:
    if rows:
        connection.execute(sa.insert(table), rows)


def _place(stream: str, name: str, cell: Cell) -> dict[str, Any]:
    return {"stream": stream, "table": name, "partition": cell.partition, "bucket": cell.bucket}


def _latest(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


def _earliest(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
